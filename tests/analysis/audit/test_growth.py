"""Growth of proxies over audited models: exponents by a separate fit, what is said where there are none."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from checkpoints.small import bert_weights
from command.in_process import invoke
from safetensors.numpy import save_file

import attnlaw
from attnlaw.analysis.audit.growth import growth_reason, growth_sentence, growth_table
from attnlaw.verbs import find_verb
from attnlaw.verbs.growth import FAMILY
from attnlaw.verbs.views import figures_of

ROWS = Path(__file__).resolve().parents[3] / "docs" / "experiments" / "family" / "models.csv"
SIZES = [(depth, width) for depth in (1, 2, 4) for width in (16, 32)]


def write_model(folder: Path, depth: int, width: int) -> Path:
    """Write a BERT checkpoint of Gaussian weights, with heads of size 8."""
    drawn = bert_weights(np.random.default_rng([depth, width]), depth, width, 3.0)
    folder.mkdir(parents=True)
    weights = {name: weight / np.sqrt(width) for name, weight in drawn.items()}
    save_file(weights, folder / "model.safetensors")
    config = {"model_type": "bert", "hidden_size": width, "num_hidden_layers": depth, "hidden_act": "gelu"}
    (folder / "config.json").write_text(json.dumps(config | {"num_attention_heads": width // 8}))
    return folder


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("family")
    return [str(write_model(folder / f"L{depth}-N{width}", depth, width)) for depth, width in SIZES]


def separate_fit(rows: list[dict[str, float]], name: str) -> tuple[float, float, float, float]:
    """Return the exponents of depth and width with their errors, by Cramer's rule on centred sums."""
    columns = [[math.log10(row["depth"]) for row in rows], [math.log10(row["width"]) for row in rows]]
    columns.append([row[name] for row in rows])
    L, N, y = ([value - math.fsum(column) / len(rows) for value in column] for column in columns)

    def dot(a: list[float], b: list[float]) -> float:
        return math.fsum(x * z for x, z in zip(a, b, strict=True))

    det = dot(L, L) * dot(N, N) - dot(L, N) ** 2
    a = (dot(L, y) * dot(N, N) - dot(N, y) * dot(L, N)) / det
    b = (dot(N, y) * dot(L, L) - dot(L, y) * dot(L, N)) / det
    left = [value - a * x - b * z for value, x, z in zip(y, L, N, strict=True)]
    deviation = math.sqrt(dot(left, left) / (len(rows) - 3))
    return a, deviation * math.sqrt(dot(N, N) / det), b, deviation * math.sqrt(dot(L, L) / det)


def test_the_shipped_rows_are_those_of_the_trained_family() -> None:
    shipped = pl.read_parquet(FAMILY)
    written = pl.read_csv(ROWS).rename({"width": "hidden_size"})
    assert shipped.height == 18
    assert shipped.equals(written.select(shipped.columns))
    assert FAMILY.stat().st_size < 10_000


def test_growth_of_the_trained_family_by_a_separate_fit() -> None:
    result = find_verb("growth")()
    with ROWS.open(encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    for proxy in ("spectrum_adaptive", "fixed_p_1", "edelman", "trauger_tewari"):
        rows = [{name: float(line[name]) for name in ("depth", "width", f"log10_{proxy}")} for line in lines]
        a, a_error, b, b_error = separate_fit(rows, f"log10_{proxy}")
        values = result.values()
        for axis, value, error in (("depth", a, a_error), ("width", b, b_error)):
            ours = values[f"{proxy}_{axis}"]
            assert (ours.value, ours.error) == pytest.approx((value, error), rel=1e-9)
    assert result.sentence.startswith(
        "Over 18 models the spectrum-adaptive proxy grows as depth^1.000(3) width^1.332(3), the norm-based "
        "one as depth^18(1) width^5(1). Norm-based proxies grow exponentially with depth"
    )
    assert "an average over depths 2 to 8" in result.sentence
    (figure,) = figures_of(result)
    panels = [panel for line in figure.draw().to_dict()["vconcat"] for panel in line["hconcat"]]
    assert len(panels) == 6
    dots = json.loads(panels[2]["layer"][1]["data"]["values"])
    drawn = sorted((row["depth"], row["hidden_size"], row["log10_proxy"]) for row in dots)
    assert drawn == sorted(
        (int(line["depth"]), int(line["width"]), float(line["log10_edelman"])) for line in lines
    )
    assert panels[0]["layer"][0]["title"]["text"].strip() == "spectrum-adaptive ~ depth^1.000(3)"


@pytest.mark.slow
def test_an_audit_of_several_sizes_has_growth_on_screen_page_and_json(
    models: list[str], tmp_path: Path
) -> None:
    ended = invoke("audit", *models, "--no-laws", "--details", "--out", tmp_path / "out")
    screen = " ".join(ended.stdout.split())
    assert "Over 6 models the spectrum-adaptive proxy grows as depth^" in screen
    assert "norm-based, (1,1) norms of Trauger and Tewari" in screen
    assert 'id="growth"' in (tmp_path / "out" / "report.html").read_text()
    objects = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert all(entry["growth"] == objects[0]["growth"] for entry in objects)
    rows = [
        {
            "depth": entry["layers"],
            "width": entry["hidden_size"],
            "edelman": entry["proxies"]["edelman"]["log10"],
            "spectrum_adaptive": entry["proxies"]["spectrum_adaptive"]["log10"],
        }
        for entry in objects
    ]
    growth = {line["proxy"]: line for line in objects[0]["growth"]}
    for proxy in ("edelman", "spectrum_adaptive"):
        a, a_error, b, b_error = separate_fit(rows, proxy)
        line = growth[proxy]
        assert [line["depth"]["value"], line["depth"]["error"]] == pytest.approx([a, a_error], rel=1e-9)
        assert [line["width"]["value"], line["width"]["error"]] == pytest.approx([b, b_error], rel=1e-9)
    # The rows on disk give the same numbers without the models.
    again = find_verb("growth")(audits=str(tmp_path / "out"))
    assert again.edelman_depth.value == growth["edelman"]["depth"]["value"]


@pytest.mark.slow
def test_one_size_alone_has_its_exponent(models: list[str]) -> None:
    result = attnlaw.audit(models[::2])  # depths 1, 2, 4 at width 16
    table = growth_table(result.rows)
    assert table["width"].null_count() == table.height
    assert growth_sentence(result.rows, table).count("width^") == 0
    (figure,) = (figure for figure in figures_of(result) if figure.name == "growth")
    assert [len(line["hconcat"]) for line in figure.draw().to_dict()["vconcat"]] == [1, 1, 1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("chosen", "words", "reason"),
    [
        ([0, 1], [], None),
        ([0, 0, 0], [], "found 1; the same checkpoint counts once"),
        ([0, 3, 5], ["--only", "qk"], "L1-N16 has no proxies"),
    ],
)
def test_without_growth_there_is_no_part_of_it(
    models: list[str], chosen: list[int], words: list[str], reason: str | None
) -> None:
    paths = [models[place] for place in chosen]
    ended = invoke("audit", *paths, *words, "--details")
    assert "grows as" not in ended.stdout
    first, *_ = json.loads(invoke("audit", *paths, *words, "--json").stdout)
    if reason is None:
        assert "growth" not in first
        assert "No growth" not in ended.stdout
    else:
        assert first["growth"] is None
        assert reason in first["growth_remark"]
        assert reason in " ".join(ended.stdout.split())


def growth_words(rows: pl.DataFrame) -> str:
    return growth_sentence(rows, growth_table(rows))


def test_a_checkpoint_given_twice_counts_once_and_has_no_error() -> None:
    """With two models of equal size, least squares through 4 rows would have an error of zero."""
    rows = pl.read_parquet(FAMILY)[[0, 1, 6]].with_columns(model=pl.Series(["a", "b", "c"]))
    chosen = rows.with_columns(depth=pl.Series([2, 4, 2]), hidden_size=pl.Series([64, 64, 128]))
    again = chosen[:1].with_columns(model=pl.Series(["./a"]))
    twice = pl.concat([chosen, again])
    assert growth_table(twice).equals(growth_table(chosen))
    assert growth_words(twice) == growth_words(chosen)
    assert growth_words(chosen).startswith("Over 3 models")
    assert "The exponents have no errors: 3 models only determine 3 numbers." in growth_words(chosen)
    # The same checkpoint with another adapter is another model.
    adapted = twice.with_columns(adapter=pl.Series([None, None, None, "lora"]))
    assert growth_words(adapted).startswith("Over 4 models")
    alike = chosen.with_columns(depth=pl.Series([2, 4, 8]), hidden_size=64)
    assert "have no errors" not in growth_words(alike)


def test_other_families_and_zeros_are_named() -> None:
    rows = pl.read_parquet(FAMILY).with_columns(family=pl.lit("bert"))
    assert "families" not in growth_words(rows)
    assert "mean nothing" not in growth_words(rows)
    first = pl.col("model") == rows["model"][0]
    mixed = rows.with_columns(family=pl.when(first).then(pl.lit("t5")).otherwise("family"))
    assert "different families (bert, t5)" in growth_words(mixed)
    # At p = 0 a model without any rank has sqrt(L), and a layer of zeros makes the amplification zero.
    empty = pl.when(first).then(0.5 * pl.col("depth").log10()).otherwise("log10_fixed_p_0")
    for zeros in (
        rows.with_columns(log10_fixed_p_0=empty),
        rows.with_columns(log10_amplification=pl.when(first).then(None).otherwise(1.0)),
    ):
        assert growth_words(zeros).count("has matrices of zeros") == 1
        assert f"{rows['model'][0]} has matrices of zeros" in growth_words(zeros)


def test_a_model_without_one_size_has_no_growth() -> None:
    rows = pl.read_parquet(FAMILY).with_columns(
        depth=pl.when(pl.col("model") == "depth-4-width-64-seed-0").then(None).otherwise("depth")
    )
    assert (growth_reason(rows) or "").startswith("no growth: depth-4-width-64-seed-0 has no proxies")


def test_only_audits_have_growth(tmp_path: Path) -> None:
    attnlaw.limit(width=[4.0], draws=50).save(tmp_path / "limit")
    with pytest.raises(attnlaw.InputError, match="holds a result of limit; expected one of audit"):
        find_verb("growth")(audits=str(tmp_path / "limit"))
