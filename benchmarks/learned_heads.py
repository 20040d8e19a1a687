"""Which form of the learned law fits real heads, and what else fits it:  python benchmarks/learned_heads.py

Prints the table of docs/fit.md: heads of rxnfp and MiniLM that are not random, by four forms of the law (tied
and untied; cut by weight decay alone, or by width, too), and the share of controls that each form accepts:
spectra drawn from the law itself, fresh heads, and spectra of other shapes. Claims of the page can fail here.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import attnlaw
from attnlaw.analysis.fit.learned import LearnedFit, fit_learned

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))

from analysis.fit.blurred import blurred
from real_checkpoints import fetch

FORMS = [(attention, limited) for limited in (False, True) for attention in ("tied", "untied")]
MODELS = {"rxnfp-pretrained": 256, "rxnfp-finetuned": 256, "minilm": 384}
SHAPES = ((64, 256), (32, 384))
KINDS = ("qk", "vo")


def every_form(values: np.ndarray, size: int) -> list[LearnedFit]:
    found = [fit_learned(values, size, attention, limited) for attention, limited in FORMS]
    return [one for one in found if one is not None]


def heads(model: str, kind: str) -> list[np.ndarray]:
    """Singular values of the heads that are not random."""
    audit = attnlaw.audit(fetch(model), jobs=1)
    fits = attnlaw.fit_spectra(audit.spectra, audit.matrices).matrices
    keys = ["layer", "head", "kind"]
    rows = audit.spectra.join(fits.select(*keys, "law"), on=keys)
    rows = rows.filter((rows["kind"] == kind) & (rows["law"] != "random"))
    values = [np.array(one) for one in rows["singular_values"].to_list()]
    return [one[one > 1e-9 * one[0]] for one in values]


def own_draws(k: int, size: int, rng: np.random.Generator, attention: str, limited: bool) -> list[np.ndarray]:
    """One spectrum for each of 6 x 6 ranks and noises; b uniform below t where width is limited."""
    found = []
    for rank in 2.0 ** np.linspace(-4, 1, 6):
        for noise in 2.0 ** np.linspace(-3, 1.5, 6):
            x = blurred(rng, size, max(1, round(rank * size)), noise, attention)
            t = 0.5 * (x[-k] + x[-k - 1])
            found.append(x[-k:] - t * (rng.random() if limited else 1.0))
    return found


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
    return [sum(found[i].plausible for found in fits) for i in range(len(FORMS))]


def say(name: str, cells: list[object]) -> None:
    print(f"| {name} | " + " | ".join(map(str, cells)) + " |", flush=True)


def real(model: str, kind: str, size: int) -> None:
    """How many heads each form fits, the geometric mean of the distances, the median of b/t."""
    spectra = heads(model, kind)
    fits = [every_form(values, size) for values in spectra]
    name = f"{model} {kind.upper()}"
    say(f"{name}, of {len(spectra)}", [sum(one[i].plausible for one in fits) for i in range(4)])
    distances = [np.exp(np.mean([np.log(one[i].distance) for one in fits])) for i in range(4)]
    say(f"{name}, mean distance", [f"{one:.4f}" for one in distances])
    ratios = [[one[i].cut_ratio.value for one in fits if one[i].plausible] for i in (2, 3)]
    say(f"{name}, median b/t", ["", "", *(f"{np.median(one):.2f}" for one in ratios)])


def main() -> None:
    for model, size in MODELS.items():
        for kind in KINDS:
            real(model, kind, size)
    for k, size in SHAPES:
        rng, own = np.random.default_rng(k), []
        for form in FORMS:
            drawn = [values for values in own_draws(k, size, rng, *form) if values.min() > 0]
            found = [fit_learned(values, size, *form) for values in drawn]
            own.append(f"{sum(bool(one and one.plausible) for one in found)} of {len(drawn)}")
        say(f"own draws, k = {k}", list(own))
        for name, spectra in controls(k, size, np.random.default_rng(size)).items():
            say(f"{name}, k = {k}, of 40", list(accepted(spectra, size)))


if __name__ == "__main__":
    main()
