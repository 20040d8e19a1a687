"""Tokenizers that would run without end or fill the memory: one line, within the limits that it states."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tokenizers import Regex, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import WordLevel
from trust.command import GIGABYTE, LENS, run
from trust.test_lens import MODEL

from attnlaw.analysis.forward import inputs
from attnlaw.analysis.forward.inputs import open_tokenizer
from attnlaw.core.child_process import ChildProcess
from attnlaw.core.errors import InputError

# The library ends a search of one place after some time, but not the search of many places.
TEXT = ("a" * 32 + "b") * 1000
DOUBLINGS = 40  # "a" would become a terabyte


def base() -> Tokenizer:
    return Tokenizer(WordLevel({"a": 0, "[UNK]": 1}, unk_token="[UNK]"))


def regex() -> Tokenizer:
    tokenizer = base()
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("(?:a|aa)+c"), "isolated")
    return tokenizer


def normalizer() -> Tokenizer:
    tokenizer = base()
    tokenizer.normalizer = normalizers.Sequence([normalizers.Replace("a", "aa")] * DOUBLINGS)
    return tokenizer


def decoder() -> Tokenizer:
    tokenizer = base()
    tokenizer.decoder = decoders.Sequence([decoders.Replace("a", "aa")] * DOUBLINGS)
    return tokenizer


@pytest.fixture(autouse=True)
def limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Less time and memory than by default, so that the tests end soon."""
    library = ChildProcess(inputs.LIBRARY.file, seconds=2, megabytes=500)
    monkeypatch.setattr(inputs, "LIBRARY", library)


def stopped(seconds: int, megabytes: int) -> str:
    """What is said, whichever limit is reached first."""
    limits = (
        rf"took more than {seconds} s|needed more than the {megabytes} MB of memory that it is allowed to use"
    )
    return rf"tokenizer\.json: the tokenizer ({limits}), so it was stopped; give token ids$"


@pytest.mark.slow
def test_a_panic_of_the_library(tmp_path: Path) -> None:
    """One place takes too long by itself, so the library gives up."""
    tokenizer = base()
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("(a+)+c"), "isolated")
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(
        InputError, match=r"the tokenizer cannot be opened \(.*retry-limit.*\); restore the file"
    ):
        open_tokenizer(tmp_path, 2).encode("a" * 40 + "b")


@pytest.mark.slow
def test_the_command_states_the_limit(tmp_path: Path) -> None:
    for name in ("model.safetensors", "config.json"):
        (tmp_path / name).symlink_to(MODEL / name)
    normalizer().save(str(tmp_path / "tokenizer.json"))
    outcome = run("lens", ".", "--text", "a", folder=tmp_path, interpreter=LENS)
    (line,) = outcome.errors.splitlines()
    assert outcome.status == 1
    assert re.match(f"attnlaw: {stopped(30, 4096)}", line)
    assert outcome.memory < 5 * GIGABYTE  # the child's memory is counted, too


@pytest.mark.slow
def test_a_regex_without_end(tmp_path: Path) -> None:
    regex().save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(InputError, match=stopped(2, 500)):
        open_tokenizer(tmp_path, 2).encode(TEXT)


def test_a_normalizer_that_doubles_the_text(tmp_path: Path) -> None:
    normalizer().save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(InputError, match=stopped(2, 500)):
        open_tokenizer(tmp_path, 2).encode("a")


def test_a_decoder_that_doubles_the_text(tmp_path: Path) -> None:
    """Only the labels need it. A good tokenizer is read afterwards."""
    decoder().save(str(tmp_path / "tokenizer.json"))
    tokenizer = open_tokenizer(tmp_path, 2)
    assert tokenizer.encode("a") == (0,)
    with pytest.raises(InputError, match=stopped(2, 500)):
        tokenizer.labels([0])
    base().save(str(tmp_path / "tokenizer.json"))
    assert open_tokenizer(tmp_path, 2).labels([0]) == ("a",)
