"""Study files with numbers that no machine takes: one line before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from study.sample_verbs import study

from attnlaw.base.errors import InputError

HUGE = "0x" + "f" * 5000


@pytest.mark.parametrize("value", ["1e300", "31622401", "inf", "nan", "-1", '"600"', "true"])
def test_a_time_limit_is_at_most_a_year(value: str, tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"\[run\] time_limit: found .*, expected seconds above 0, up to a year"
    ):
        study(tmp_path, f'verb = "square"\n[fixed]\nx = 1\n[run]\ntime_limit = {value}\n')
    assert (
        study(tmp_path, 'verb = "square"\n[fixed]\nx = 1\n[run]\ntime_limit = 31622400\n').time_limit
        == 366 * 86400
    )


@pytest.mark.parametrize(
    "text",
    [
        f"[fixed]\nx = {HUGE}",
        f"[grid]\nx = [1, {HUGE}]",
        f"[[list]]\nx = {HUGE}",
        f"[fixed]\nx = 1\n[run]\nseeds = {HUGE}",
        f"[fixed]\nx = 1\n[run]\nseed = {HUGE}",
        f"[fixed]\nx = 1\n[run]\ntime_limit = {HUGE}",
        f"[fixed]\nx = 1\n[run]\nretries = {HUGE}",
    ],
)
def test_integers_beyond_64_bits_are_refused_in_one_line(text: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"study\.toml: .*64 bits; ") as raised:
        study(tmp_path, f'verb = "square"\n{text}\n')
    assert len(str(raised.value)) < 500
