"""`attnlaw limit`"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attnlaw.command.uncertain import with_error

if TYPE_CHECKING:
    from attnlaw.base.estimate import Estimate
    from attnlaw.limits.compare import WidthRow
    from attnlaw.limits.inputs import Inputs

QUANTITIES = ("score_variance", "output_variance", "kurtosis", "kl_to_limit", "w1_to_limit", "ks_to_limit")


def command(
    tokens: Annotated[int | None, typer.Option(help="Random tokens s.", show_default="4")] = None,
    heads: Annotated[str, typer.Option(metavar="2,8", help="Heads H, one table for each.")] = "2",
    width: Annotated[str, typer.Option(metavar="16,64,inf", help="Widths n.")] = "16,64,256,1024,inf",
    draws: Annotated[int, typer.Option(help="Draws for each width.")] = 50_000,
    activation: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="psi in the random tokens psi(W h): identity, relu, gelu or clip:C.",
            show_default="identity",
        ),
    ] = None,
    mask: Annotated[str, typer.Option(metavar="NAME", help="none, causal or band:K.")] = "none",
    depth: Annotated[int, typer.Option(help="Layers; the law is that of the last one's output.")] = 1,
    residual: Annotated[
        bool, typer.Option("--residual", help="Add each layer's input to its output.")
    ] = False,
    normalise: Annotated[bool, typer.Option("--normalise", help="RMSNorm before each layer.")] = False,
    token: Annotated[int, typer.Option(help="The token whose output is read, from 1.")] = 1,
    embeddings: Annotated[
        str | None, typer.Option(metavar="MODEL", help="Tokens from a checkpoint's embedding; needs --ids.")
    ] = None,
    ids: Annotated[str | None, typer.Option(metavar="1,2,3", help="Token ids for --embeddings.")] = None,
    gram: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="The tokens' Gram matrix X X^T / n: .npy, or text with one row a line."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed; equal seeds repeat the table.")] = 0,
    figure: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the densities over widths (.pdf, .svg, .png).")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """The law of an attention layer's output at initialisation: exactly at any width, against the limit.

    The law is that of one coordinate of y_i, the output of token i (--token); standard errors
    stand in units of the last digit. Var p is the variance of the score p_ii, the randomness of
    the inputs included.

    The same from Python: attnlaw.limit(heads=H, width=[16, 64], draws=..., seed=...)
    """
    from attnlaw.base.errors import InputError
    from attnlaw.command.console import print_json, progress
    from attnlaw.limits import AttentionLayer, Depth, Scores, compare_widths
    from attnlaw.report.style import FORMATS

    if figure is not None and figure.suffix not in FORMATS:
        raise InputError(f"{figure}: a figure ends in one of {', '.join(FORMATS)}; rename it")
    inputs = _inputs(tokens, activation, embeddings, ids, gram)
    widths = [_width(item) for item in _items(width, "--width")]
    counts = [_integer(item, "--heads") for item in _items(heads, "--heads")]
    scores = Scores(mask=mask)
    stacks = [
        Depth(AttentionLayer(inputs, heads=h, scores=scores), depth, residual, None, normalise)
        for h in counts
    ]
    tables = []
    for stack in stacks:
        with progress(f"limit, {stack.layer.heads} heads") as report:
            tables.append(compare_widths(stack, widths, draws, seed, token - 1, report))
    random = embeddings is None and gram is None
    name = (activation or "identity") if random else None
    if json:
        shared = {"mask": mask, "depth": depth, "residual": residual, "normalise": normalise, "token": token}
        shared |= {"draws": draws, "seed": seed}
        results = [
            {"tokens": inputs.tokens, "heads": h, "activation": name}
            | shared
            | {"rows": [_as_json(row) for row in rows]}
            for h, rows in zip(counts, tables, strict=True)
        ]
        print_json(results[0] if len(results) == 1 else results)
    else:
        for h, rows in zip(counts, tables, strict=True):
            source = f"{name} activation" if name else "given tokens"
            sizes = [_counted(inputs.tokens, "token"), _counted(h, "head"), source]
            _show(", ".join(sizes + _settings(mask, depth, residual, normalise, token)), rows)
    if figure is not None:
        _draw(figure, counts, tables)


def _items(text: str, option: str) -> list[str]:
    items = [item.strip() for item in text.split(",") if item.strip()]
    if not items:
        raise typer.BadParameter(f"{option} is empty")
    return list(dict.fromkeys(items))


def _integer(text: str, option: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(f"{option}: {text!r} is not an integer") from None


def _width(text: str) -> float:
    return math.inf if text in ("inf", "∞") else _integer(text, "--width")


def _inputs(
    tokens: int | None, activation: str | None, embeddings: str | None, ids: str | None, gram: Path | None
) -> Inputs:
    from attnlaw.limits.gram_file import read_gram
    from attnlaw.limits.inputs import GivenInputs, RandomInputs

    if embeddings is None and gram is None:
        if ids is not None:
            raise typer.BadParameter("--ids needs --embeddings MODEL")
        return RandomInputs(4 if tokens is None else tokens, activation or "identity")
    if tokens is not None or activation is not None or (embeddings is not None and gram is not None):
        raise typer.BadParameter("give one kind of tokens: --tokens and --activation, --embeddings or --gram")
    if gram is not None:
        return GivenInputs(read_gram(gram))
    if ids is None:
        raise typer.BadParameter("--embeddings needs --ids, for example --ids 1,2,3")
    return GivenInputs.from_tokens(_read_embeddings(str(embeddings), ids))


def _read_embeddings(path: str, ids: str) -> Any:
    from attnlaw.base.errors import InputError
    from attnlaw.models import open_model

    numbers = [_integer(item.strip(), "--ids") for item in ids.split(",")]
    embedding = open_model(path).embedding()
    for number in numbers:
        if not 0 <= number < len(embedding):
            raise InputError(
                f"{path}: token id {number} is outside the vocabulary; "
                f"choose ids from 0 to {len(embedding) - 1}"
            )
    return embedding[numbers]


def _estimate(value: Estimate | None) -> dict[str, float | None] | None:
    return None if value is None else {"value": value.value, "error": value.error}


def _as_json(row: WidthRow) -> dict[str, Any]:

    width = "inf" if row.width == math.inf else int(row.width)
    result: dict[str, Any] = {"width": width} | {name: _estimate(getattr(row, name)) for name in QUANTITIES}
    result["residual_of_distances"] = row.residual_of_distances
    if row.path is not None:
        result["path"] = [
            {
                "depth": point.depth,
                "squared_length": _estimate(point.squared_length),
                "cosine": _estimate(point.cosine),
            }
            for point in row.path.path()
        ]
    return result


def _text(estimate: Estimate | None) -> str:
    return "-" if estimate is None else with_error(estimate.value, estimate.error)


def _settings(mask: str, depth: int, residual: bool, normalise: bool, token: int) -> list[str]:
    """What was asked for beyond one plain layer and its first token."""
    settings = (
        (f"{mask} mask", mask != "none"),
        (f"depth {depth}", depth > 1),
        ("residual", residual),
        ("RMSNorm", normalise),
        (f"token {token}", token != 1),
    )
    return [words for words, there in settings if there]


def _show(title: str, rows: Sequence[WidthRow]) -> None:
    """Print a heading, the table, and for stacks the tokens' path."""
    from rich.text import Text

    from attnlaw.command.console import column_table, output, print_table

    names = ("Var p", "Var y", "kurtosis", "KL", "W1", "KS")
    cells = {
        name: [_text(getattr(row, quantity)) for row in rows]
        for name, quantity in zip(names, QUANTITIES, strict=True)
    }
    widths = [_name(row.width) for row in rows]
    output.print(Text(f"{title}; KL, W1 and KS to the limit", style="bold"))
    print_table(output, lambda left_out: column_table({"width": widths} | cells, left_out), names[:0:-1])
    paths = [row.path.path() for row in rows if row.path is not None and row.path.cosines is not None]
    if paths:
        depths = {"depth": [str(point.depth) for point in paths[0]]}
        cosines = {
            name: [_text(point.cosine) for point in points]
            for name, points in zip(widths, paths, strict=True)
        }
        output.print(Text("mean cosine between tokens, by depth", style="bold"))
        print_table(output, lambda left_out: column_table(depths | cosines, left_out), widths[:-1])


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _name(width: float) -> str:
    return "inf" if width == math.inf else str(int(width))


def _draw(path: Path, counts: Sequence[int], tables: Sequence[Sequence[WidthRow]]) -> None:
    import polars as pl

    from attnlaw.command.console import say
    from attnlaw.limits import density_rows
    from attnlaw.report.limit_charts import density_chart
    from attnlaw.report.style import save_chart

    rows = [
        {"heads": h, **row}
        for h, table in zip(counts, tables, strict=True)
        for row in density_rows({row.width: row.law for row in table})
    ]
    save_chart(density_chart(pl.DataFrame(rows)), path)
    say(f"wrote {path}")
