"""Pickles that attack, through the real command line: each ends in one line, and nothing is executed."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from trust.attack import Attack
from trust.command import GIGABYTE, NEW, Outcome
from trust.hostile_pickles import PICKLES, SPRUNG, system, touch
from trust.refusals import attacked, refusal


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pickles")


@pytest.fixture(scope="module")
def outcome(place: Path) -> Outcome:
    """In an interpreter that has imported nothing: an import that a pickle asks for would be seen."""
    return attacked(PICKLES, place, NEW)


@pytest.mark.parametrize("attack", PICKLES, ids=lambda attack: attack.name)
def test_each_ends_in_one_line(attack: Attack, outcome: Outcome) -> None:
    refusal(attack, outcome)


def test_nothing_is_executed_imported_or_left_behind(outcome: Outcome, place: Path) -> None:
    assert outcome.status == 1
    assert len(outcome.refusals()) == len(PICKLES)
    assert outcome.output == ""
    assert outcome.deeds == ()
    assert list(place.rglob(SPRUNG)) == []
    assert not (place.parent / SPRUNG).exists()
    assert not Path("/tmp", SPRUNG).exists()


def test_memory_stays_bounded(outcome: Outcome) -> None:
    """Reading nothing takes 0.3 GB (PyTorch); the archive of 8 MB and 1000 entries is the largest file."""
    assert outcome.memory < GIGABYTE


@pytest.mark.parametrize("trap", [system, touch], ids=lambda trap: trap.__name__)
def test_the_traps_themselves_work(tmp_path: Path, trap: type) -> None:
    pickle.loads(trap(tmp_path))
    assert (tmp_path / SPRUNG).exists()
