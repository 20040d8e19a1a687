"""The words that users read: descriptions make sense by themselves, and the old dialect stays away.

`tools/sentences.py` collects the texts. CONTRIBUTING.md ("How it is written") says what to
use instead.
"""

import importlib
import re
import sys
from pathlib import Path

import pytest

from attnlaw.core.quantity import Quantity
from attnlaw.core.settings import setting_fields
from attnlaw.verbs import RECORDED_VERBS, STUDY_VERBS, VERBS, find_verb

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
sentences = importlib.import_module("sentences")

DANGLING = re.compile(r"(of|to|that|which|its|their)\b", re.IGNORECASE)
DIALECT = re.compile(
    r"\b(tells?|told|telling|stands?|stood|lies|beside|held against|anew|refuse[sd]?|but for)\b",
    re.IGNORECASE,
)
VALUE = re.compile(r"\{[^}]*\}")  # the name of a variable whose value a message has
# Texts in which such a word is right, each with the reason.
RIGHT = {
    " anew": "the name of a table in the database of a study",
    "stand out": "ordinary English, and short",
    "stands out": "ordinary English, and short",
}
NAMES = [*VERBS, *STUDY_VERBS, *RECORDED_VERBS]


def parts(name):
    """Return a verb, and the verb that simulates it."""
    verb = find_verb(name)
    return [verb] if verb.simulation is None else [verb, verb.simulation]


def quantities(name) -> list[Quantity]:
    return [
        quantity
        for verb in parts(name)
        for quantity in (*verb.quantities, *(column for table in verb.tables for column in table.columns))
    ]


@pytest.mark.parametrize("name", NAMES)
def test_every_number_has_a_description_that_makes_sense_alone(name):
    numbers = [each for each in quantities(name) if each.kind in ("float", "int", "floats", "ints")]
    assert [each.name for each in numbers if not each.description and not each.display_name] == []
    described = [f"{each.name}: {each.description}" for each in quantities(name)]
    assert [text for text in described if DANGLING.match(text.partition(": ")[2])] == []


@pytest.mark.parametrize("name", NAMES)
def test_every_option_has_a_help_text_that_makes_sense_alone(name):
    known = {
        option: field.rule.help
        for verb in parts(name)
        for option, field in setting_fields(verb.settings).items()
    }
    assert [option for option, text in known.items() if not text or DANGLING.match(text)] == []


@pytest.mark.parametrize("kind", ["help", "messages"])
def test_no_word_of_the_old_dialect_is_left(kind):
    leftovers = [
        f"{sentence.place}: {sentence.text}"
        for sentence in sentences.KINDS[kind]()
        if DIALECT.search(VALUE.sub("", sentence.text)) and not any(right in sentence.text for right in RIGHT)
    ]
    assert leftovers == []


def test_a_draw_depends_on_the_seed_alone():
    first, again, other = (sentences.draw("help", 5, seed) for seed in (1, 1, 2))
    assert first == again
    assert first != other
