"""The screen of `limit`: the answer, and a line for each width."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from attnlaw.core.estimate import Estimate, format_column, format_percent, format_value
from attnlaw.core.words import count_of, short_number
from attnlaw.render.describe_rows import capital, varying_settings
from attnlaw.render.terminal.cases import print_measures, print_settings, unusual_settings
from attnlaw.render.terminal.console import Column, print_table
from attnlaw.render.terminal.screen import print_answer, print_definitions, print_next, print_title
from attnlaw.verbs.limit.answer import answer

if TYPE_CHECKING:
    from attnlaw import LimitResult

# Title, meaning, and whether only `--details` shows it, by the name of the quantity.
COLUMNS = {
    "ks_to_limit": (
        "difference",
        "largest difference between the cumulative distributions of output and limit",
        False,
    ),
    "kurtosis": (
        "kurtosis",
        "kurtosis of the output: 3 for a Gaussian; larger values mean heavier tails",
        False,
    ),
    "output_variance": (
        "variance",
        "variance of one coordinate of the output of the chosen token",
        False,
    ),
    "kl_to_limit": ("KL", "KL divergence of the output from the limit, in nats", False),
    "kl_to_other_limit": (
        "KL (other limit)",
        "KL divergence from the limit with the scaling of --other-scaling",
        False,
    ),
    "kl_to_gaussian": ("KL (Gaussian)", "KL divergence from the Gaussian of equal mean and variance", False),
    "kernel_kl_to_limit": (
        "KL (kernel)",
        "KL divergence estimated from kernel densities as in arXiv 2506.00846, which is too large",
        False,
    ),
    "w1_to_limit": ("W1", "Wasserstein-1 distance from the limit, in the units of the output", True),
    "score_variance": (
        "Var p",
        "variance of the attention score of the token with itself, in the last layer",
        True,
    ),
    "residual_of_distances": ("residual", "numerical error of the computed densities", True),
}
MOST_DEPTHS = 8  # depths that the first screen shows
MOST_PATHS = 6  # columns of a table by depth


def show_summary(result: LimitResult, console: Console, details: bool = False) -> None:
    """Print the answer, a table with a line for each width, and the next commands."""
    shown = answer(result)
    deep = (result.rows["depth"] > 1).any()
    print_title(console, f"Attention layer{'s' if deep else ''} before training", _facts(result))
    print_answer(console, shown)
    meanings = _print_rows(result, console, details)
    if result.rows["path_cosine"].explode().count():
        _print_paths(result, console, details)
    draws = " and ".join(f"{draws:,}" for draws in result.rows["draws"].unique().sort())
    meanings["0.25(1)"] = f"0.25 with a standard error of 0.01, from {draws} draws for each width"
    console.print()
    print_definitions(console, meanings)
    if details:
        print_settings(console, result, _varied(result))
    console.print()
    print_next(console, shown.next_commands)


def _facts(result: LimitResult) -> str:
    row, varied = result.row(), _varied(result)
    if row["gram"] is not None:
        facts = [f"tokens of {row['gram']}"]
    elif row["embeddings"] is not None:
        facts = [f"{len(row['ids'])} embeddings of {row['embeddings']}"]
    else:
        facts = [] if "tokens" in varied else [count_of(row["tokens"], "random token")]
    if "heads" not in varied:
        heads = count_of(row["heads"], "head")
        narrow = result.rows["head_width"].count() > 0
        facts.append(
            heads if narrow else f"{heads}, {'each ' if row['heads'] > 1 else ''}as wide as the layer"
        )
    said = ("tokens", "embeddings", "ids", "gram", "heads", "width", "draws", "seed", *FLAGS)
    facts += unusual_settings(result, row, (*said, *varied))
    return " · ".join(facts)


FLAGS = ("gaussian", "kernel", "other_scaling")  # they add columns, and do not change the layer


def _varied(result: LimitResult) -> list[str]:
    return varying_settings(result.rows, [*result.verb.setting_columns.values()])


def _print_rows(result: LimitResult, console: Console, details: bool) -> dict[str, str]:
    names = [name for name in _varied(result) if name != "seed" or details]
    names = [*(["width"] if "width" not in names else []), *names]
    columns = [
        Column(name.replace("_", " "), [format_value(value) for value in result.rows[name]]) for name in names
    ]
    values = [result.values(case) for case in range(len(result))]
    measures = [
        (title, meaning, _cells(name, [known[name] for known in values]))
        for name, (title, meaning, hidden) in COLUMNS.items()
        if details or not hidden
    ]
    return print_measures(console, columns, measures)


def _cells(name: str, values: Sequence[Any]) -> list[str]:
    known = [value for value in values if isinstance(value, Estimate)]
    if name == "ks_to_limit":
        return [format_percent(value) if isinstance(value, Estimate) else "" for value in values]
    if not known or len(known) < sum(value is not None for value in values):
        return [short_number(value) if isinstance(value, float) else format_value(value) for value in values]
    return format_column(
        [None if value is None else value.value for value in values],
        [None if value is None else value.error for value in values],
    )


def _print_paths(result: LimitResult, console: Console, details: bool) -> None:
    varied = [name for name in _varied(result) if name != "seed"]
    cases = [case for case in range(len(result)) if result.rows["path_cosine"][case] is not None]
    cases = cases if details else cases[:MOST_PATHS]
    lists = {"mean cosine between tokens": "path_cosine"}
    lists |= {"squared length of the token / width": "path_squared_length"} if details else {}
    for title, name in lists.items():
        paths = [result.values(case)[name] for case in cases]
        last = max(map(len, paths)) - 1
        step = 1 if details else -(-last // MOST_DEPTHS) or 1
        depths = [depth for depth in range(last + 1) if depth % step == 0 or depth == last]
        columns = [Column("layer", list(map(str, depths)))]
        for case, path in zip(cases, paths, strict=True):
            words = [f"{name} {format_value(result.rows[name][case])}" for name in varied]
            cells = [format_value(path[depth]) if depth < len(path) else "" for depth in depths]
            columns.append(Column(", ".join(words) or "value", cells))
        console.print()
        console.print(Text(f"{capital(title)}, by layer", style="bold"))
        print_table(console, columns, [column.title for column in columns[2:]])
