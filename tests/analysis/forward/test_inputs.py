"""Inputs of a model: texts, files of them, token ids; what is wrong is one line with its place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer as Built
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

from attnlaw.analysis.forward.inputs import (
    InputSettings,
    Tokenizer,
    open_tokenizer,
    raw_inputs,
    read_input,
    single_input,
)
from attnlaw.core.errors import BadSetting, InputError

BYTES = Tokenizer("model", 256)
WORDS = {"[CLS]": 0, "[UNK]": 1, "one": 2, "law": 3}


@pytest.fixture
def words(tmp_path: Path) -> Tokenizer:
    """A tokenizer.json that also cuts and pads, as those of sentence encoders do."""
    built = Built(WordLevel(WORDS, unk_token="[UNK]"))
    built.pre_tokenizer = Whitespace()
    built.post_processor = TemplateProcessing(single="[CLS] $A", special_tokens=[("[CLS]", 0)])
    built.enable_truncation(2)
    built.enable_padding(length=8)
    built.save(str(tmp_path / "tokenizer.json"))
    return open_tokenizer(tmp_path, 5)


def read(case: InputSettings, tokenizer: Tokenizer = BYTES, positions: int = 20) -> list[tuple[int, ...]]:
    return [read_input(source, tokenizer, positions).ids for source in raw_inputs(case)]


def test_a_tokenizer_is_used_whole(words: Tokenizer) -> None:
    (tokens,) = [read_input(source, words, 9) for source in raw_inputs(InputSettings(text="one law of one"))]
    assert tokens.ids == (0, 2, 3, 1, 2)  # nothing cut, nothing padded, special tokens kept
    assert tokens.labels == ("[CLS]", "one", "law", "[UNK]", "one")
    assert words.labels([4]) == ("4",)  # the model has it, the tokenizer has not


def test_several_texts_are_several_inputs() -> None:
    """No comma parts one: from a list, and as one text."""
    case = InputSettings(text=["a, b", "c"])
    assert read(case) == [tuple(b"a, b"), (99,)]
    assert read(InputSettings(text="a, b")) == [tuple(b"a, b")]
    with pytest.raises(BadSetting, match="text was given 2 times; lens reads one input"):
        single_input(case, "lens")
    with pytest.raises(InputError, match="text, number 2: has no tokens; give at least one"):
        read(InputSettings(text=["a", ""]))
    with pytest.raises(BadSetting, match="text: found 3, expected a text or a list of texts"):
        InputSettings(text=3)


def test_a_byte_level_model_reads_bytes() -> None:
    tokens = read_input(single_input(InputSettings(text="é \n"), "lens"), BYTES, 9)
    assert tokens.ids == tuple("é \n".encode())
    assert tokens.labels == ("\\xc3", "\\xa9", "␣", "\\n")


@pytest.mark.parametrize(
    ("name", "text", "ids"),
    [
        ("a.txt", "ab\n\n  \nc \r\n", [(97, 98), (99, 32)]),
        ("a.jsonl", '{"text": "a", "more": [1]}\n\n{"ids": [1, 2], "text": "b"}\n', [(97,), (1, 2)]),
    ],
)
def test_files(tmp_path: Path, name: str, text: str, ids: list[tuple[int, ...]]) -> None:
    (tmp_path / name).write_bytes(text.encode())
    assert read(InputSettings(file=str(tmp_path / name))) == ids


def test_lists_of_ids(tmp_path: Path) -> None:
    (tmp_path / "ids").write_text("1,2, 3\n\n4\n")
    case = InputSettings(ids=f"@{tmp_path / 'ids'}")
    assert read(case) == [(1, 2, 3), (4,)]
    assert read(InputSettings(ids="5,6")) == read(InputSettings(ids=[5, 6])) == [(5, 6)]
    # A column of numbers holds no path: rows have it under `file`.
    assert (case.to_row()["ids"], case.to_row()["file"]) == (None, f"@{tmp_path / 'ids'}")
    with pytest.raises(InputError, match=r"ids: has 2 inputs; lens takes only one, so keep one line"):
        single_input(case, "lens")


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("a.jsonl", '{"text": "a"}\n{"words": 1}\n', "a.jsonl, line 2: expected an object with text or ids"),
        ("a.jsonl", '\n{"text": 3}\n', "a.jsonl, line 2: expected an object with text or ids"),
        ("a.jsonl", "[1]\n", "a.jsonl, line 1: expected an object with text or ids"),
        ("a.jsonl", '{"text": "a"\n', "a.jsonl, line 1: is not JSON ("),
        (
            "a.jsonl",
            '{"ids": [1, 256]}\n',
            "line 1: found 256, expected ids of the vocabulary, from 0 to 255",
        ),
        ("a.jsonl", '{"ids": [1, -1]}\n', "line 1: found [1, -1], expected whole numbers"),
        ("a.jsonl", '{"ids": [true]}\n', "line 1: found [True], expected whole numbers"),
        ("a.jsonl", '{"ids": []}\n', "line 1: found [], expected whole numbers"),
        ("a.jsonl", '{"text": ""}\n', "line 1: has no tokens; give at least one"),
        ("a.jsonl", '{"text": "\\ud800"}\n', "line 1: contains half of a character"),
        (
            "a.txt",
            "a\n" + "b" * 21,
            "a.txt, line 2: has 21 tokens, but the model reads at most 20; give a shorter input",
        ),
        ("a.txt", "\n \n", "a.txt: all its lines are empty; write one input on each line"),
        ("a.csv", "a\n", "expected a name that ends in .txt or .jsonl"),
        ("a.txt", None, "a.txt: no such file; check the path"),
    ],
)
def test_what_is_wrong_has_its_place(tmp_path: Path, name: str, text: str | None, line: str) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(InputError) as caught:
        read(InputSettings(file=str(tmp_path / name)))
    assert line in str(caught.value)


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"a\n\xff\n")
    with pytest.raises(InputError, match=r"a\.txt: is not UTF-8 text .* at byte 2"):
        read(InputSettings(file=str(tmp_path / "a.txt")))


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({}, "input needs an input. Try: text='The cat sat on the mat'"),
        ({"ids": "1,x"}, "ids: found '1,x', expected whole numbers from 0 on, separated by commas"),
        ({"ids": (-1,)}, "ids: found '-1', expected whole numbers"),
        ({"ids": 1.5}, "ids: found 1.5, expected whole numbers"),
    ],
)
def test_bad_settings(given: dict[str, object], line: str) -> None:
    with pytest.raises(BadSetting) as caught:
        InputSettings(**given)
    assert str(caught.value).startswith(line)


def test_only_one_of_them() -> None:
    with pytest.raises(BadSetting, match="ids cannot be combined with text"):
        InputSettings.parse({"text": "a", "ids": [1]}, "lens")


def test_a_text_without_a_tokenizer(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"ids": [1]}\n{"text": "a"}\n')
    nothing = Tokenizer("m", 20)
    with pytest.raises(InputError, match=r"a\.jsonl, line 2: needs a tokenizer: m has no tokenizer\.json"):
        read(InputSettings(file=str(tmp_path / "a.jsonl")), nothing)
    with pytest.raises(BadSetting, match="text needs a tokenizer"):
        read(InputSettings(text="a"), nothing)
    assert nothing.labels([7]) == ("7",)


@pytest.mark.parametrize("text", ["{}", "", json.dumps({"model": {"type": "BPE"}}), "\x00"])
def test_a_broken_tokenizer_is_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "tokenizer.json").write_text(text)
    with pytest.raises(
        InputError, match=r"tokenizer\.json: the tokenizer cannot be opened \(.*\); restore the file"
    ):
        open_tokenizer(tmp_path, 20)
