"""The learned law on heads of real checkpoints: the table in the docs, row by row."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from real_checkpoints import real_checkpoint

from attnlaw.checkpoints.open import open_model

ROOT = Path(__file__).parents[3]
MODELS = {"rxnfp": "rxnfp-pretrained", "MiniLM": "minilm"}


def benchmark() -> ModuleType:
    spec = importlib.util.spec_from_file_location("learned_heads", ROOT / "benchmarks" / "learned_heads.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rows() -> list[tuple[str, list[str]]]:
    """Return the rows of the table that `benchmarks/learned_heads.py` prints, from the page that has it."""
    first = "| rxnfp QK / VO, of "
    pages = (page.read_text(encoding="utf-8") for page in (ROOT / "docs").rglob("*.md"))
    lines = next(text for text in pages if f"\n{first}" in text).splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(first))
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in lines[start:] if line[:1] == "|"
    ]
    return [(name, forms) for name, *forms in cells]


@pytest.mark.long
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("kind", ["qk", "vo"])
def test_the_page_counts_the_heads_that_fit(model: str, kind: str) -> None:
    """How many heads are not random, how many each form fits, and the geometric mean of its distances."""
    real_checkpoint(MODELS[model])
    learned_heads, place = benchmark(), ["qk", "vo"].index(kind)
    spectra = learned_heads.heads(MODELS[model], kind)
    fits = [learned_heads.every_form(values, learned_heads.MODELS[MODELS[model]]) for values in spectra]
    table = rows()
    name, counts = next((name, cells) for name, cells in table if name.startswith(f"{model} QK / VO, of"))
    assert len(spectra) == int(re.findall(r"\d+", name.partition("of")[2])[place])
    plausible = [sum(head_fits[form].plausible for head_fits in fits) for form in range(4)]
    assert plausible == [int(cell.split("/")[place]) for cell in counts]
    distances = next(cells for name, cells in table if f"{model} QK, VO" in name and "." in cells[0])
    means = [np.exp(np.mean([np.log(head_fits[form].distance) for head_fits in fits])) for form in range(4)]
    assert means == pytest.approx([float(cell.split(",")[place]) for cell in distances], abs=5.1e-5)


@pytest.mark.long
@pytest.mark.parametrize(("model", "symmetry", "ratio"), [("rxnfp", ".18", ".008"), ("MiniLM", ".13", ".31")])
def test_real_heads_are_far_from_symmetric(model: str, symmetry: str, ratio: str) -> None:
    """Medians over QK of `Tr M^2/|M|^2` (1: symmetric, 0: generic) and of smallest over largest value."""
    network = open_model(real_checkpoint(MODELS[model]))
    shares, ratios = [], []
    for layer in network.layers:
        query, key = (
            network.read(view) for view in network.network.layers[layer.index].attention.qk[0].views
        )
        for q, k in zip(
            *(np.split(weight, layer.attention.heads, axis=1) for weight in (query, key)), strict=True
        ):
            matrix = q @ k.T
            values = np.linalg.svd(np.linalg.qr(q)[1] @ np.linalg.qr(k)[1].T, compute_uv=False)
            shares.append(np.trace(matrix @ matrix) / (matrix**2).sum())
            ratios.append(values[-1] / values[0])
    for numbers, digits in ((shares, symmetry), (ratios, ratio)):
        assert round(float(np.median(numbers)), len(digits) - 1) == float(digits)
