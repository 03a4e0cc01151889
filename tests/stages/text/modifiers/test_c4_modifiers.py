"""C4 cleaning: examples, and agreement with its twin and with that of the C4 statistics."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tamis.errors import UsageError
from tamis.stages.text.modifiers import BoilerPlateStringModifier, C4LineCleaner
from tamis.stages.text.modifiers.c4 import C4_POLICY, POLICY
from tests.support.limits import examples


def twin(name: str) -> Any:
    path = Path(__file__).parents[3] / "reference" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"{name}_for_modifiers", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TWIN, CLEANER = twin("text_twin"), twin("c4_twin")
PIECES = [
    "a b c",
    "one two three.",
    "no end",
    "ends in dots...",
    "it is {curly} here.",
    "Lorem Ipsum is here.",
    " ",
    "\n",
    "\r\n",
    ".",
    "needs JavaScript to run.",
    "Our privacy POLICY is long.",
    "cited here.[12]",
    "cited.[edit] [citation needed]",
    "x" * 1001 + " a b.",
    "\u2028",
    'he said so "',
    "?",
    "[",
    "]",
    "é",
    "[٣]",
    "\x85",
    "\r",
    "\x1d",
    "\x1f",
    "\u3000",
    "use coo\u212aies now!",
    "'",
    "...",
]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=12).map("".join)
SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "min_words_per_line": st.integers(0, 5),
        "max_word_length": st.sampled_from([0, 4, 7, 1001]),
        **dict.fromkeys(("terminal_punctuation", "drop_javascript_lines", "drop_policy_lines"), st.booleans()),
        **dict.fromkeys(("drop_lorem_ipsum", "drop_curly_bracket", "remove_citations"), st.booleans()),
    },
)


def test_lines_are_kept_or_not() -> None:
    text = (
        "Home | About\n  A good line stands here.  \nshort one.\nPlease enable JavaScript to see this.\n"
        "We use cookies to track you!\nIt trails off...\nA fact is cited.[1]\nIs this a question?"
    )
    kept = "A good line stands here.\nA fact is cited.[1]\nIs this a question?"
    assert C4LineCleaner().modify_document(text) == kept
    assert C4LineCleaner(remove_citations=True).modify_document(text) == kept.replace("[1]", "")
    assert C4LineCleaner(min_words_per_line=5).modify_document(text) == "A good line stands here."
    assert "short one." in C4LineCleaner(min_words_per_line=2).modify_document(text).splitlines()
    assert "Home | About" in C4LineCleaner(terminal_punctuation=False).modify_document(text).splitlines()
    assert "use cookies" in C4LineCleaner(drop_policy_lines=False).modify_document(text)
    assert "JavaScript" in C4LineCleaner(drop_javascript_lines=False).modify_document(text)


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("A good line stands here.\nThis is code { really.", {}),
        ("A good line.\nLorem ipsum dolor sit amet.", {}),
        ("", {}),
    ],
)
def test_documents_become_empty(text: str, settings: dict[str, Any]) -> None:
    assert C4LineCleaner(**settings).modify_document(text) == ""


def test_a_curly_bracket_or_lorem_ipsum_may_stay() -> None:
    text = "This is code { really.\nLorem ipsum dolor sit amet."
    assert C4LineCleaner(drop_curly_bracket=False, drop_lorem_ipsum=False).modify_document(text) == text


def test_long_words() -> None:
    assert C4LineCleaner(max_word_length=4).modify_document("this word has some.\nfour by six.") == "four by six."


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(st.none() | TEXTS, max_size=5), SETTINGS, st.sampled_from([pa.string(), pa.large_string()]), st.data())
def test_equals_the_twin(
    texts: list[str | None], chosen: dict[str, Any], kind: pa.DataType, data: st.DataObject
) -> None:
    first = data.draw(st.integers(0, len(texts)))
    made = C4LineCleaner(**chosen).modify_batch(pa.array(texts, kind).slice(first))
    assert made.type == kind
    assert made.to_pylist() == [None if t is None else CLEANER.clean(t, **chosen) for t in texts[first:]]


@given(st.lists(st.none() | st.text(), max_size=4))
def test_equals_the_twin_on_any_text(texts: list[str | None]) -> None:
    for chosen in ({}, {"terminal_punctuation": False, "min_words_per_line": 0}):
        made = C4LineCleaner(**chosen).modify_batch(pa.array(texts, pa.string()))
        assert made.to_pylist() == [None if t is None else CLEANER.clean(t, **chosen) for t in texts]


def test_a_null_may_have_bytes() -> None:
    whole = pa.array(["A good line stands here.", "And another one does."], pa.large_string())
    valid = pa.py_buffer(b"\x02")
    texts = pa.Array.from_buffers(whole.type, 2, [valid, *whole.buffers()[1:]])
    assert C4LineCleaner().modify_batch(texts).to_pylist() == [None, "And another one does."]


@given(TEXTS)
def test_agrees_with_the_statistics(text: str) -> None:
    found = TWIN.c4(text)
    cleaned = C4LineCleaner().modify_document(text)
    if found["c4_lorem_ipsum"] or found["c4_curly_bracket"]:
        assert cleaned == ""
    else:
        assert len(cleaned.splitlines()) == found["c4_lines"]


def test_phrases_are_those_of_the_statistics() -> None:
    assert (C4_POLICY, POLICY) == (TWIN.C4_POLICY, TWIN.POLICY)
    assert C4_POLICY == CLEANER.POLICY


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Body.\n\nMore.", "Body.\n\nMore."),
        ("Cookie Policy\n\nBody.\n\nMore.", "Body.\n\nMore."),
        ("We use cookies\n\nterms of use\n\nBody.\n\nPrivacy policy", "Body."),
        ("Body.\n\nPrivacy policy\n\nMore.", "Body.\n\nPrivacy policy\n\nMore."),
        ("Privacy policy\n\nBody.\n\nterms of use\n\nMore.", "Privacy policy\n\nBody.\n\nterms of use\n\nMore."),
        ("Privacy policy", "Privacy policy"),
        ("use\n\ncookies", "use\n\ncookies"),
        ("Body.\n\nLorem IPSUM", ""),
        ("", ""),
    ],
)
def test_boilerplate(text: str, expected: str) -> None:
    assert BoilerPlateStringModifier().modify_document(text) == expected


def test_any_boilerplate_empties_the_document_on_request() -> None:
    strict = BoilerPlateStringModifier(remove_if_at_top_or_bottom=False)
    assert strict.modify_document("Body.\n\nPrivacy policy\n\nMore.") == ""
    assert strict.modify_document("Body.") == "Body."


@pytest.mark.parametrize("piece", ["a@a@a@", "(", "[1", "[", "{ ", "\n", "use cookies ", "x.\n"])
def test_a_megabyte_of_anything_ends(piece: str) -> None:
    text = piece * (1_000_000 // len(piece))
    assert isinstance(C4LineCleaner().modify_document(text), str)
    assert isinstance(BoilerPlateStringModifier().modify_document(text), str)


def test_mistakes_are_named() -> None:
    with pytest.raises(UsageError, match=r"min_words_per_line=.*got -1"):
        C4LineCleaner(min_words_per_line=-1)
