"""How the proxies grow with depth and width over a family of trained models.

    python docs/experiments/family/family_study.py [--weights DIR]

audits DIR/depth-*-width-*-seed-* (see train_family.py), writes the rows, fits the growth, draws the figures.
Without `--weights` it starts from the rows in this folder.

Rows: models.csv (one per model), matrices.parquet (one per matrix, without singular values), exponents.csv
and losses.csv. A proxy is the leading factor of a bound (arXiv 2605.07297): no constants, not a guarantee.
"""

from __future__ import annotations

import argparse
import re
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import polars as pl

import attnlaw
from attnlaw.analysis.audit.growth import growth_table
from attnlaw.checkpoints.network import KINDS
from attnlaw.render.charts.encodings import EXTENT, inline_data, panel_title
from attnlaw.render.charts.paper import save_chart
from attnlaw.render.charts.style import PALETTE
from attnlaw.theory.bounds import BOUNDS
from attnlaw.theory.bounds.proxy_growth import growth
from attnlaw.verbs.audit.charts import contribution_curves, spectrum_decay
from attnlaw.verbs.audit.growth_chart import draw_growth

NORM_NAMES = {"spectral_norm": "spectral norm", "frobenius_norm": "Frobenius norm", "norm_21": "(2,1) norm"}
OTHER = {"depth": "width", "width": "depth"}
PROXIES = tuple(BOUNDS)
NAME = re.compile(r"depth-(\d+)-width-(\d+)-seed-(\d+)$")
# Not kept: which tensors a matrix comes from, and columns that are equal in all rows.
DROPPED = ("tensors", "family", "stack", "route", "attnlaw_version")


def main() -> None:
    here = Path(__file__).parent
    parser = argparse.ArgumentParser(description="Growth of the proxies over a family of models.")
    parser.add_argument("--weights", type=Path, help="directory of the trained models; without it, from rows")
    parser.add_argument("--out", type=Path, default=here, help="where the rows and figures go (or are)")
    options = parser.parse_args()
    spectra = None
    if options.weights is not None:
        paths = {path.name: path for path in sorted(options.weights.iterdir()) if NAME.search(path.name)}
        if not paths:
            raise SystemExit(f"{options.weights}: holds no directories named depth-D-width-W-seed-S")
        models, matrices, spectra = audit_all(paths)
        write_rows(options.out, models, matrices)
        if (options.weights / "losses.csv").exists():
            shutil.copyfile(options.weights / "losses.csv", options.out / "losses.csv")
    else:
        models = pl.read_csv(options.out / "models.csv")
        matrices = pl.read_parquet(options.out / "matrices.parquet")
    study(models, matrices, options.out, spectra)


def audit_all(paths: Mapping[str, Path]) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """Audit every checkpoint: rows of models, of matrices, and of spectra, with depth, width and seed."""
    models, matrices, spectra = [], [], []
    for name, path in paths.items():
        print(f"auditing {name}", flush=True)
        result = attnlaw.audit(path)
        row = model_row(name, path, result)
        models.append(row)
        place = {key: pl.lit(row[key]) for key in ("model", "depth", "width", "seed")}
        matrices.append(result.matrices.drop(DROPPED).with_columns(**place))
        spectra.append(result.spectra.with_columns(**place))
    table = pl.DataFrame(models).sort("depth", "width", "seed")
    order = ["depth", "width", "seed"]
    return table, pl.concat(matrices).sort(order, maintain_order=True), pl.concat(spectra)


def model_row(name: str, path: Path, result: attnlaw.Result) -> dict[str, Any]:
    """One model in one row: sizes, final held-out loss where it is known, proxies, choices of p."""
    summary = result.summary
    named = NAME.search(name)
    row: dict[str, Any] = {
        "model": name,
        "depth": summary["layers"],
        "width": summary["hidden_size"],
        "seed": int(named[3]) if named else 0,
        "heads": summary["heads"],
        "matrices": summary["matrices"],
        "loss": final_loss(path),
    }
    proxies = summary["proxies"]
    fixed = {f"fixed_p_{p}": value for p, value in proxies["fixed_p"].items()}
    row |= {f"log10_{proxy}": (proxies | fixed)[proxy]["log10"] for proxy in PROXIES}
    row["log10_alpha_first"] = summary["log10_alpha"][0]
    row["value_of_adaptivity"] = summary["value_of_adaptivity"]
    row["rank_count"] = summary["rank_count"]
    row["fraction_p_zero"] = float((result.matrices["p"] == 0).mean())
    return row


def final_loss(path: Path) -> float | None:
    """The last held-out loss of losses.csv beside the weights."""
    curve = path / "losses.csv"
    return float(pl.read_csv(curve)["loss"][-1]) if curve.exists() else None


def write_rows(out: Path, models: pl.DataFrame, matrices: pl.DataFrame) -> None:
    out.mkdir(parents=True, exist_ok=True)
    models.write_csv(out / "models.csv")
    matrices.write_parquet(out / "matrices.parquet", compression="zstd", compression_level=19)


def exponents_of(models: pl.DataFrame) -> pl.DataFrame:
    """proxy ~ depth^a width^b for every proxy, in long form: one row per proxy and variable."""
    rows = []
    for proxy in PROXIES:
        fit = asdict(growth(models["depth"], models["width"], models[f"log10_{proxy}"]))
        for variable in ("depth", "width"):
            rows.append(
                {
                    "proxy": proxy,
                    "variable": variable,
                    "exponent": fit[variable],
                    "standard_error": fit[f"{variable}_error"],
                    "residual": fit["residual"],
                    "seed_spread": fit["seed_spread"],
                }
            )
    return pl.DataFrame(rows, schema_overrides={"standard_error": pl.Float64, "seed_spread": pl.Float64})


def study(
    models: pl.DataFrame, matrices: pl.DataFrame, out: Path, spectra: pl.DataFrame | None = None
) -> None:
    """Fit, print the findings, write exponents.csv and the figures."""
    out.mkdir(parents=True, exist_ok=True)
    exponents = exponents_of(models)
    exponents.write_csv(out / "exponents.csv")
    print("\n".join(findings(models, matrices, exponents)))
    for name, chart in figures(models, matrices, spectra).items():
        print("figure", save_chart(chart, out / "figures" / f"{name}.svg"))


def figures(models: pl.DataFrame, matrices: pl.DataFrame, spectra: pl.DataFrame | None) -> dict[str, Any]:
    """The figure set of the paper, for this family."""
    named = models.rename({"width": "hidden_size"})  # as in the rows of an audit
    largest = models.sort("depth", "width")["model"][-1]
    shallowest = models.sort("depth", pl.col("width"), descending=[False, True])["model"][0]
    charts = {
        "proxy_growth": draw_growth(named, growth_table(named)),
        "norm_growth_width": norm_growth(matrices, "width"),
        "norm_growth_depth": norm_growth(matrices, "depth"),
        "contributions_deepest": contribution_curves(matrices.filter(model=largest)),
        "contributions_shallowest": contribution_curves(matrices.filter(model=shallowest)),
    }
    if spectra is not None:
        ends = models.filter(pl.col("width") == pl.col("width").max(), pl.col("seed") == pl.col("seed").min())
        labels = {row["model"]: f"{row['depth']} layers" for row in ends.rows(named=True)}
        charts["spectrum_decay"] = spectrum_decay(spectra, labels)
    return charts


def norm_growth(matrices: pl.DataFrame, variable: str = "width") -> Any:
    """Norms against depth or width, by kind of matrix: medians over the matrices of each model."""
    import altair as alt

    fixed = OTHER[variable]
    medians = matrices.group_by("kind", "depth", "width", "seed", maintain_order=True).agg(
        pl.col(list(NORM_NAMES)).median()
    )
    rows = []
    for norm, name in NORM_NAMES.items():
        panels = []
        for place, kind in enumerate(kind for kind in KINDS if kind in set(matrices["kind"])):
            table = medians.filter((pl.col("kind") == kind) & (pl.col(norm) > 0))
            title = "" if place else f"median {name}"
            label = KINDS[kind].label
            panels.append(_growth_panel(alt, table, variable, fixed, norm, title, label, (130, 110), True))
        rows.append(alt.hconcat(*panels))
    return alt.vconcat(*rows)


def _growth_panel(
    alt: Any,
    table: pl.DataFrame,
    variable: str,
    fixed: str,
    column: str,
    y_title: str,
    title: str,
    size: tuple[int, int] = (250, 160),
    log: bool = False,
) -> Any:
    """Means over seeds as lines, seeds as points, one colour per value of the other size."""
    sizes = sorted(table[variable].unique().to_list())
    levels = sorted(table[fixed].unique().to_list())
    x = alt.X(
        f"{variable}:Q",
        title=variable,
        scale=alt.Scale(type="log", base=2, nice=False, padding=8),
        axis=alt.Axis(values=sizes, format="d"),
    )
    scale = alt.Scale(type="log", nice=False, padding=6) if log else alt.Scale(zero=False)
    axis = alt.Axis(format="~g", tickCount=4 if log else 6, minExtent=EXTENT)
    color = alt.Color(
        f"{fixed}:O",
        title=fixed,
        scale=alt.Scale(domain=levels, range=list(PALETTE[: len(levels)])),
    )
    base = alt.Chart(inline_data(table.to_dicts()), title=panel_title(title)).encode(x=x, color=color)
    y = alt.Y(f"{column}:Q", title=y_title, scale=scale, axis=axis)
    line = base.mark_line().encode(y=alt.Y(f"mean({column}):Q", title=y_title, scale=scale, axis=axis))
    return (line + base.mark_point(size=28, filled=True).encode(y=y)).properties(
        width=size[0], height=size[1]
    )


def findings(models: pl.DataFrame, matrices: pl.DataFrame, exponents: pl.DataFrame) -> list[str]:
    """What the family says, in plain sentences."""
    lines = [f"{models.height} models; proxy ~ depth^a width^b, least squares, standard errors in brackets:"]
    fits = {(row["proxy"], row["variable"]): row for row in exponents.rows(named=True)}
    for proxy in PROXIES:
        a, b = fits[proxy, "depth"], fits[proxy, "width"]
        lines.append(
            f"  {proxy:<30} a = {bracketed(a)}  b = {bracketed(b)}"
            f"  residual {brief(a['residual'])}, between seeds {brief(a['seed_spread'])} (log10)"
        )
    bent = [proxy for proxy in PROXIES if not_a_power(fits[proxy, "depth"])]
    if bent:
        lines.append(
            f"No power law ({', '.join(bent)}): the residual is above three times the spread between seeds, "
            "so these exponents only average the growth over this range (alpha is a product over depth)."
        )
    lines.append("Does the spectrum-adaptive proxy grow more slowly than the norm-based ones?")
    for other in ("edelman", "trauger_tewari"):
        for variable, fixed in (("depth", "width"), ("width", "depth")):
            ours, theirs = fits["spectrum_adaptive", variable], fits[other, variable]
            slower, cells = slower_cells(models, other, variable, fixed)
            verdict = "yes" if slower == cells else "no" if slower == 0 else "in part"
            lines.append(
                f"  in {variable}, against {other}: {verdict}, exponent {bracketed(ours)} against "
                f"{bracketed(theirs)}; smaller growth from end to end at {slower} of {cells} {fixed}s"
            )
    return lines + choice_of_index(models, matrices, fits)


def slower_cells(models: pl.DataFrame, other: str, variable: str, fixed: str) -> tuple[int, int]:
    """At how many values of `fixed` ours grows less from the smallest to the largest `variable` (means)."""
    means = models.group_by(fixed, variable).agg(
        pl.col("log10_spectrum_adaptive").mean().alias("ours"),
        pl.col(f"log10_{other}").mean().alias("theirs"),
    )
    ends = (
        means.sort(variable)
        .group_by(fixed)
        .agg(pl.col("ours", "theirs").last() - pl.col("ours", "theirs").first())
    )
    return int((ends["ours"] < ends["theirs"]).sum()), ends.height


def choice_of_index(models: pl.DataFrame, matrices: pl.DataFrame, fits: Mapping[Any, Any]) -> list[str]:
    """Where p* is 0 and where it is not, and what that makes of the exponents."""
    counts = models.filter("rank_count")
    moved = matrices.filter(pl.col("p") > 0)
    lines = [
        f"p* = 0 for every matrix in {counts.height} of {models.height} models, and for "
        f"{1 - moved.height / matrices.height:.1%} of all {matrices.height} matrices."
    ]
    if counts.height == models.height:
        a, b = fits["fixed_p_0", "depth"], fits["fixed_p_0", "width"]
        lines.append(
            "So the proxy is a count of ranks, sum over matrices of sqrt(rank N), in every model, and its "
            f"exponents {a['exponent']:.2f} and {b['exponent']:.2f} are arithmetic of the architecture: "
            "they say nothing about what training did to the spectra."
        )
    elif moved.height:
        above = (pl.col("depth") - 1 - pl.col("layer")).alias("above")
        where = moved.group_by("depth", above, "kind").len().sort("depth", "above", "kind")
        lines.append("p* > 0 (matrices by depth of the model, layers above the matrix, and kind):")
        for (depth, over), group in where.group_by("depth", "above", maintain_order=True):
            kinds = ", ".join(f"{kind} {n}" for kind, n in group.select("kind", "len").iter_rows())
            lines.append(f"  depth {depth}, {over} above: {kinds}")
        gain = models["value_of_adaptivity"].max()
        lines.append(
            f"The value of adaptivity is at most {gain:.4f}: choosing p per matrix gains at most "
            f"{100 * (1 - 1 / gain):.2g} % over the best common p. "
            + (
                f"The {counts.height} models with all p* = 0 count ranks: arithmetic of the architecture."
                if counts.height
                else "No model only counts ranks."
            )
        )
    return lines


def not_a_power(fit: Mapping[str, Any]) -> bool:
    """Whether the misfit exceeds what seeds explain; a residual below 0.1 % is round-off or sqrt(L)."""
    if fit["residual"] is None or fit["seed_spread"] is None:
        return False
    return bool(fit["residual"] > max(3 * fit["seed_spread"], 1e-3))


def bracketed(fit: Mapping[str, Any]) -> str:
    """1.03 (0.02)."""
    error = fit["standard_error"]
    return f"{fit['exponent']:.3f}" + (" (unknown)" if error is None else f" ({error:.3f})")


def brief(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3f}"


if __name__ == "__main__":
    main()
