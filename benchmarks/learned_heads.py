"""Which form of the learned law fits real heads, and what else fits it:  python benchmarks/learned_heads.py

Prints the table of the docs: heads of rxnfp and MiniLM that are not random, by four forms of the
law (tied and untied; cut by weight decay alone, or by width, too), and the share of controls that each
form accepts:
spectra drawn from the law itself, fresh heads, and spectra of other shapes. Claims of the page can fail here.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import attnlaw
from attnlaw.analysis.fit.learned import LearnedFit, fit_learned
from attnlaw.analysis.fit.model_fits import fit_spectra

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))

from analysis.fit.blurred import blurred
from real_checkpoints import fetch

FORMS = [(attention, limited) for limited in (False, True) for attention in ("tied", "untied")]
MODELS = {"rxnfp-pretrained": 256, "rxnfp-finetuned": 256, "minilm": 384}
SHAPES = ((64, 256), (32, 384))
KINDS = ("qk", "vo")


def every_form(values: np.ndarray, size: int) -> list[LearnedFit]:
    fits = [fit_learned(values, size, attention, limited) for attention, limited in FORMS]
    return [fit for fit in fits if fit is not None]


def heads(model: str, kind: str) -> list[np.ndarray]:
    """Singular values of the heads that are not random."""
    audit = attnlaw.audit(fetch(model), jobs=1)
    fits = fit_spectra(audit.spectra, audit.matrices).matrices
    keys = ["layer", "head", "kind"]
    rows = audit.spectra.join(fits.select(*keys, "law"), on=keys)
    rows = rows.filter((rows["kind"] == kind) & (rows["law"] != "random"))
    values = [np.array(spectrum) for spectrum in rows["singular_values"].to_list()]
    return [spectrum[spectrum > 1e-9 * spectrum[0]] for spectrum in values]


def own_draws(k: int, size: int, rng: np.random.Generator, attention: str, limited: bool) -> list[np.ndarray]:
    """One spectrum for each of 6 x 6 ranks and noises; b uniform below t where width is limited."""
    spectra = []
    for rank in 2.0 ** np.linspace(-4, 1, 6):
        for noise in 2.0 ** np.linspace(-3, 1.5, 6):
            x = blurred(rng, size, max(1, round(rank * size)), noise, attention)
            t = 0.5 * (x[-k] + x[-k - 1])
            spectra.append(x[-k:] - t * (rng.random() if limited else 1.0))
    return spectra


def controls(k: int, size: int, rng: np.random.Generator) -> dict[str, list[np.ndarray]]:
    """Forty spectra each that the theory does not give."""

    def fresh() -> np.ndarray:
        factors = rng.standard_normal((2, size, k))
        return np.linalg.svd(factors[0] @ factors[1].T, compute_uv=False)[:k]

    return {
        "fresh heads": [fresh() for _ in range(40)],
        "lognormal": [np.exp(rng.uniform(0.5, 1.0) * rng.standard_normal(k)) for _ in range(40)],
        "two-level": [
            np.where(np.arange(k) < rng.integers(k // 4, 3 * k // 4), rng.uniform(2, 4), 1.0)
            * (1 + 0.05 * rng.standard_normal(k))
            for _ in range(40)
        ],
        "uniform": [rng.uniform(0.05, 1.0, k) for _ in range(40)],
        "exponential": [rng.exponential(size=k) for _ in range(40)],
    }


def accepted(spectra: list[np.ndarray], size: int) -> list[int]:
    fits = [every_form(np.abs(values), size) for values in spectra]
    return [sum(forms[i].plausible for forms in fits) for i in range(len(FORMS))]


def say(name: str, cells: list[object]) -> None:
    print(f"| {name} | " + " | ".join(map(str, cells)) + " |", flush=True)


def real(model: str, kind: str, size: int) -> None:
    """How many heads each form fits, the geometric mean of the distances, the median of b/t."""
    spectra = heads(model, kind)
    fits = [every_form(values, size) for values in spectra]
    name = f"{model} {kind.upper()}"
    say(f"{name}, of {len(spectra)}", [sum(forms[i].plausible for forms in fits) for i in range(4)])
    distances = [np.exp(np.mean([np.log(forms[i].distance) for forms in fits])) for i in range(4)]
    say(f"{name}, mean distance", [f"{distance:.4f}" for distance in distances])
    ratios = [[forms[i].cut_ratio.value for forms in fits if forms[i].plausible] for i in (2, 3)]
    say(f"{name}, median b/t", ["", "", *(f"{np.median(values):.2f}" for values in ratios)])


def main() -> None:
    for model, size in MODELS.items():
        for kind in KINDS:
            real(model, kind, size)
    for k, size in SHAPES:
        rng, counts = np.random.default_rng(k), []
        for form in FORMS:
            drawn = [values for values in own_draws(k, size, rng, *form) if values.min() > 0]
            fits = [fit_learned(values, size, *form) for values in drawn]
            counts.append(f"{sum(bool(fit and fit.plausible) for fit in fits)} of {len(drawn)}")
        say(f"own draws, k = {k}", list(counts))
        for name, spectra in controls(k, size, np.random.default_rng(size)).items():
            say(f"{name}, k = {k}, of 40", list(accepted(spectra, size)))


if __name__ == "__main__":
    main()
