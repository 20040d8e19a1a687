"""Remarks on proxies: what is read from a summary, also from one without some proxies."""

from attnlaw.analysis.audit.remarks import proxy_entries

PROXIES = {
    "spectrum_adaptive": {"log10": 0.0},
    "edelman": {"log10": 2.0},
    "spectrum_adaptive_continuous": {"log10": 1.0},
    "fixed_p": {"1": {"log10": 0.5, "error": 0.1}, "2": {"log10": 0.7, "error": 1e-15}},
}


def test_adaptive_proxies_come_first_and_round_off_is_no_error():
    """This summary does not know the (1,1) norm and the index 0."""
    entries = proxy_entries(PROXIES)
    assert [value for _, value, _ in entries] == [0.0, 1.0, 0.5, 0.7, 2.0]
    assert [error for *_, error in entries] == [None, None, 0.1, None, None]
