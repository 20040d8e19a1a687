"""Remarks on proxies: what is read from a summary, also from one of an older version."""

from attnlaw.base.remarks import PROXY_NAMES, proxy_entries

PROXIES = {key: {"log10": place} for place, key in enumerate(PROXY_NAMES)} | {
    "fixed_p": {"1.0": {"log10": 0.5, "error": 0.1}, "2.0": {"log10": 0.7, "error": 1e-15}}
}


def test_adaptive_proxies_come_first_and_round_off_is_no_error():
    found = proxy_entries(PROXIES)
    assert [value for _, value, _ in found] == [0, 1, 0.5, 0.7, 2, 3]
    assert [error for *_, error in found] == [None, None, 0.1, None, None, None]


def test_a_summary_that_does_not_know_a_norm_is_still_read():
    older = {key: entry for key, entry in PROXIES.items() if key != "edelman"}
    assert [value for _, value, _ in proxy_entries(older)] == [0, 1, 0.5, 0.7, 3]
