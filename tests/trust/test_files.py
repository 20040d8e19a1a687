"""Files and directories that attack, through the real command line: one line each, in bounded memory."""

from __future__ import annotations

import pytest
from trust.attack import Attack
from trust.command import GIGABYTE, Outcome
from trust.hostile_files import INDEXES, ONNX
from trust.hostile_tensors import GGUF, SAFETENSORS
from trust.refusals import attacked, refusal

ATTACKS = (*SAFETENSORS, *INDEXES, *GGUF, *ONNX)


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return attacked(ATTACKS, tmp_path_factory.mktemp("files"))


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_each_ends_in_one_line(attack: Attack, outcome: Outcome) -> None:
    refusal(attack, outcome)


def test_nothing_else_happens(outcome: Outcome) -> None:
    assert outcome.status == 1
    assert outcome.output == ""
    assert len(outcome.refusals()) == len(ATTACKS)
    assert outcome.deeds == ()


def test_memory_stays_bounded(outcome: Outcome) -> None:
    """Files of a gigabyte, of terabytes (holes) and without an end are among them."""
    assert outcome.memory < GIGABYTE // 2
