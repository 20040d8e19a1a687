"""Laws of whole models: a fresh one is random, trained ones are not, rows and files keep their contract."""

import json

import numpy as np
import polars as pl
import pytest
from real_checkpoints import real_checkpoint

from attnlaw import __version__, audit, fit
from attnlaw.analysis.columns import SPECTRA
from attnlaw.analysis.fit import CURVES, FITS, LAWS
from attnlaw.analysis.fit.model_fits import Fits, fit_spectra
from attnlaw.analysis.fit.tail import power_law_tail
from attnlaw.checkpoints.open import open_model
from attnlaw.core.errors import InputError
from attnlaw.core.files import to_json
from attnlaw.core.quantity import column_kinds
from attnlaw.core.tables import to_schema
from attnlaw.verbs.audit.page_data import audit_payload


def encoder(seed=0, layers=2, width=64, inner=128, entry=None):
    """A BERT-like state dict of independent entries."""
    rng = np.random.default_rng(seed)
    entry = entry or (lambda shape: 0.02 * rng.standard_normal(shape))
    tensors = {}
    for layer in range(layers):
        prefix = f"bert.encoder.layer.{layer}."
        for name in ("self.query", "self.key", "self.value", "output.dense"):
            tensors[f"{prefix}attention.{name}.weight"] = entry((width, width)).astype(np.float32)
        tensors[f"{prefix}intermediate.dense.weight"] = entry((inner, width)).astype(np.float32)
        tensors[f"{prefix}output.dense.weight"] = entry((width, inner)).astype(np.float32)
    return tensors


@pytest.fixture(scope="module")
def fresh():
    return fit(encoder(layers=12), heads=4, name="fresh")


def test_a_freshly_initialised_model_comes_out_as_random(fresh):
    assert fresh.not_random_tested == fresh.fits.height == 12 * (4 + 4 + 2)
    assert fresh.not_random_expected == pytest.approx(120 * 2 / 201)
    # The false-alarm rate is the nominal one: more rejections than these come once in a thousand.
    assert fresh.not_random_p_value > 0.001
    random = fresh.fits.filter(pl.col("law") == "random")
    assert random.height == fresh.not_random_tested - fresh.not_random_rejected
    assert random["outliers"].sum() <= 3


@pytest.mark.slow
def test_uniform_entries_come_out_as_random_too():
    rng = np.random.default_rng(5)
    tensors = encoder(layers=6, entry=lambda shape: rng.uniform(-0.1, 0.1, shape))
    assert fit(tensors, heads=4, name="uniform").not_random_p_value > 0.001


def gated(attention, width=48, inner=96):
    """One layer with these shapes of attention, LLaMA's names, independent entries."""
    rng = np.random.default_rng(6)
    mlp = {"gate_proj": (inner, width), "up_proj": (inner, width), "down_proj": (width, inner)}
    shapes = {f"self_attn.{name}": shape for name, shape in attention.items()}
    shapes |= {f"mlp.{name}": shape for name, shape in mlp.items()}
    return {f"model.layers.0.{name}.weight": rng.standard_normal(shape) for name, shape in shapes.items()}


def test_heads_wider_than_the_model_come_out_as_random():
    names = dict.fromkeys(("q_proj", "k_proj", "v_proj"), (4 * 96, 48))
    result = fit(gated(names | {"o_proj": (48, 4 * 96)}), heads=4, name="wide")
    assert set(result.fits["null_shape"]) == {"48 x 48 through 96", "48 x 96"}
    assert result.not_random_p_value > 0.001


def test_latent_attention_has_no_null():
    """DeepSeek's factors are products themselves: no test, no law, yet exponents, and the rest is tested."""
    narrow = {"q_a_proj": (24, 48), "q_b_proj": (4 * 12, 24), "kv_a_proj_with_mqa": (20, 48)}
    tensors = gated(narrow | {"kv_b_proj": (4 * 20, 16), "o_proj": (48, 4 * 12)})
    fitted = audit(tensors, heads=4, name="latent").for_saving()
    fits = Fits(fitted.fits, fitted.curves)
    heads, others = (fits.matrices.filter(pl.col("head").is_null() == bare) for bare in (False, True))
    assert heads.height == 8
    for name in ("law", "random_p_value", "outliers", "null_shape", "null_scale"):
        assert heads[name].null_count() == 8
    assert heads["remark"].str.contains("attnlaw has no random reference for latent attention").all()
    assert heads["alpha"].null_count() == 0
    assert others["law"].to_list() == ["random"] * 3
    assert fits.quantities["not_random_tested"] == 3
    assert 1 - 1e-12 < fits.quantities["not_random_p_value"] <= 1  # none of three: certain, up to rounding
    assert set(fits.curves["null_shape"]) == {"48 x 96"}
    assert "8 not fitted" in repr(fits)
    shown = audit_payload(fitted, {0: "latent"}, applied=False)
    assert shown["columns"]["law"] == fitted.fits["law"].to_list()


def test_rows_and_curves_have_their_columns(fresh):
    assert dict(fresh.fits.schema) == to_schema(column_kinds(FITS))
    assert dict(fresh.curves.schema) == to_schema(column_kinds(CURVES))
    nulls = fresh.curves.filter(pl.col("curve") == "null")
    assert set(nulls["null_shape"]) == set(fresh.fits["null_shape"]) == {"64 x 64 through 16", "64 x 128"}
    assert fresh.curves["x"].list.len().max() <= 64
    assert (fresh.curves["x"].list.len() == fresh.curves["density"].list.len()).all()
    laws = fresh.curves.filter(pl.col("curve") == "law")
    assert laws.height == fresh.fits.filter(pl.col("law") != "random").height


@pytest.mark.slow
def test_saved_spectra_give_the_same_fits_as_the_model(tmp_path):
    tensors = encoder(seed=1)
    audit(tensors, heads=4, name="m").save(tmp_path)
    again = fit_spectra(
        pl.read_parquet(tmp_path / "spectra.parquet"), pl.read_parquet(tmp_path / "matrices.parquet")
    )
    once = fit(tensors, heads=4, name="m", jobs=1)
    assert again.matrices.equals(once.fits)
    assert again.curves.equals(once.curves)
    other = fit(tensors, heads=4, name="m", seed=1)
    assert not other.fits["random_p_value"].equals(once.fits["random_p_value"])


def test_laws_of_latent_attention_are_fitted_again_from_its_tables():
    narrow = {"q_a_proj": (24, 48), "q_b_proj": (4 * 12, 24), "kv_a_proj_with_mqa": (20, 48)}
    tensors = gated(narrow | {"kv_b_proj": (4 * 20, 16), "o_proj": (48, 4 * 12)})
    done = audit(tensors, heads=4, name="latent")
    assert done.matrices["latent"].to_list() == [True] * 8 + [False] * 3
    again = fit_spectra(done.spectra, done.matrices)
    assert again.matrices.equals(done.for_saving().fits)
    with pytest.raises(InputError, match="the table of matrices: found no column latent"):
        fit_spectra(done.spectra, done.matrices.drop("latent"))


def test_two_models_in_one_have_rows_of_their_own(fresh, tmp_path):
    other = fit(encoder(seed=2), heads=4, name="fresh")
    both = fresh + other
    assert both.rows["model"].to_list() == ["fresh", "fresh"]
    assert both[1].fits.equals(other.fits)
    both.save(tmp_path)
    assert pl.read_parquet(tmp_path / "fits.parquet").equals(both.fits)
    assert pl.read_parquet(tmp_path / "curves.parquet").equals(both.curves)
    about = json.loads((tmp_path / "attnlaw.json").read_text())
    assert (about["verb"], about["version"]) == ("fit", __version__)


def test_a_law_that_does_not_fit_leaves_no_parameter_in_its_row():
    """Heads whose remark says that parameters are withheld, and others that the law fits."""
    rows = fit("examples/tiny-decoder", layers="0", only="qk,vo").fits
    names = [
        name
        for name in to_schema(column_kinds(FITS))
        if name.startswith(("noise", "threshold", "target_rank", "cut"))
    ]
    assert len(names) == 12
    withheld = pl.col("remark").fill_null("").str.contains("learned: does not fit")
    without, fitted = rows.filter(withheld), rows.filter(~withheld)
    assert (without.height, fitted.height) == (3, 5)
    assert without.select(names).null_count().row(0) == (3,) * 12
    assert (
        without.select(pl.col("learned_distance", "rank_fraction").is_not_null().all()).row(0) == (True,) * 2
    )
    ranges = fitted.select("^.*_(low|high)$", "untied_fits")
    tied_ranges = ranges.select(pl.exclude("^untied_.*$"))
    assert tied_ranges.null_count().row(0) == (0,) * 10
    # The untied law stands beside it, with a b/t of its own where it fits.
    assert ranges["untied_cut_ratio_low"].is_null().to_list() == (~ranges["untied_fits"]).to_list()


def test_json_has_a_row_for_every_matrix(fresh):
    """A number with an error, or within a range, is one object."""
    output = json.loads(to_json(fresh.summary))
    assert list(output) == ["verb", "settings", "quantities", "status", "remark", "tables", "version"]
    assert (output["settings"]["model"], output["settings"]["heads"]) == ("fresh", 4)
    assert output["quantities"]["matrix_count"] == 120
    assert output["quantities"]["not_random_tested"] == 120
    assert sum(output["quantities"][law.column] for law in LAWS.values()) == 120
    first = output["tables"]["fits"][0]
    assert {"layer", "head", "kind", "law", "random_p_value", "outliers"} <= set(first)
    assert set(first["alpha"]) == {"value", "error"}
    assert set(first["kappa"]) == {"value", "low", "high"}
    assert first["rank_fraction"] == pytest.approx(16 / 64)


def test_tables_of_different_matrices_are_refused():
    done = audit(encoder(), heads=4, name="m")
    with pytest.raises(InputError, match="take both tables from the same audit"):
        fit_spectra(done.spectra.head(3), done.matrices)
    with pytest.raises(InputError, match=r"^jobs: found 0, expected a whole number of at least 1"):
        fit(encoder(), heads=4, jobs=0)


def test_an_approximate_spectrum_has_a_row_that_says_so():
    done = audit(encoder(), heads=4, name="m")
    approximate = done.matrices.head(2).with_columns(route=pl.lit("lanczos"))
    without_values = done.spectra.head(2).with_columns(
        singular_values=pl.lit(None, to_schema(column_kinds(SPECTRA))["singular_values"])
    )
    rows = fit_spectra(without_values, approximate).matrices
    assert rows["law"].to_list() == [None, None]
    assert rows["status"][0] == "not fitted"
    assert "approximate" in rows["remark"][0]
    assert (
        Fits(rows, pl.DataFrame(schema=to_schema(column_kinds(CURVES)))).quantities["not_random_tested"] == 0
    )


@pytest.fixture(scope="module")
def pretrained():
    return fit(real_checkpoint("rxnfp-pretrained"), layers="0:3", name="rxnfp")


@pytest.mark.slow
def test_a_trained_model_is_told_from_noise(pretrained):
    assert pretrained.not_random_rejected == pretrained.not_random_tested == 30
    assert pretrained.not_random_p_value < 1e-6
    assert pretrained.fits["law"].n_unique() > 1
    assert (pretrained.fits.filter(pl.col("head").is_null())["kappa"] < 10).all()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Passing a dict")
def test_alpha_of_real_matrices_is_weightwatchers(pretrained):
    weightwatcher = pytest.importorskip("weightwatcher")
    torch = pytest.importorskip("torch")
    model = open_model(real_checkpoint("rxnfp-pretrained"))
    views = [
        view for layer in model.layers[:3] for view in (layer.feed_forward.inner, layer.feed_forward.outer)
    ]
    network = torch.nn.Sequential()
    for view in views:
        weight = torch.tensor(model.read(view).T)
        network.append(torch.nn.Linear(*weight.T.shape, bias=False))
        network[-1].weight.data = weight
    details = weightwatcher.WeightWatcher(model=network, log_level="CRITICAL").analyze()
    ours = pretrained.fits.filter(pl.col("kind").str.starts_with("ffn"))
    # It drops eigenvalues below 1e-5, and with them candidates for x_min; these matrices have none there.
    assert details["alpha"].to_numpy() == pytest.approx(ours["alpha"].to_numpy(), rel=1e-6)
    assert details["xmin"].to_numpy() == pytest.approx(ours["x_min"].to_numpy(), rel=1e-6)
    assert details["num_pl_spikes"].to_list() == ours["tail_size"].to_list()
    assert power_law_tail(np.linalg.svd(model.read(views[0]), compute_uv=False) ** 2).alpha == pytest.approx(
        ours["alpha"][0]
    )
