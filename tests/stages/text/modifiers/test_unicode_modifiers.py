"""Unicode: ftfy behind its extra, and normal forms in linear time."""

from __future__ import annotations

import sys
import unicodedata

import ftfy
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tamis.errors import MissingExtra, UsageError
from tamis.stages.text.modifiers import UnicodeNormalizer, UnicodeReformatter
from tamis.stages.text.modifiers.unicode import Form, _has_many_marks

FORMS: list[Form] = ["NFC", "NFD", "NFKC", "NFKD"]
MARKS = "\u0300\u0315\u0327\u0344\u0f73\u3099\uff9e\U0001d165"


def test_ftfy_repairs() -> None:
    texts = ["schÃ¶n", "plain ASCII", "a &amp; b", "<b> &amp;", "\x1b[31mred\x1b[0m", None, "", "line\r\n", "“q”"]
    expected = ["schön", "plain ASCII", "a & b", "<b> &amp;", "red", None, "", "line\r\n", "“q”"]
    assert UnicodeReformatter().modify_batch(pa.array(texts)).to_pylist() == expected
    other = UnicodeReformatter(fix_line_breaks=True, uncurl_quotes=True).modify_batch(pa.array(texts))
    assert other.to_pylist()[7:] == ["line\n", '"q"']


@given(st.text(st.characters(max_codepoint=0x7F), max_size=20), st.booleans())
def test_texts_that_ftfy_is_spared_are_those_it_would_not_change(text: str, fix_line_breaks: bool) -> None:
    reformatter = UnicodeReformatter(fix_line_breaks=fix_line_breaks)
    expected = ftfy.fix_text(
        text,
        uncurl_quotes=False,
        fix_latin_ligatures=False,
        fix_character_width=False,
        normalization=None,
        fix_line_breaks=fix_line_breaks,
    )
    assert reformatter.modify_batch(pa.array([text])).to_pylist() == [expected]


@given(
    st.text(st.sampled_from("aé́Ã¶ﬁ&;\n‘") | st.characters(exclude_categories=["Cs"]), max_size=15),
    st.sampled_from(FORMS),
)
def test_ftfy_with_a_normal_form(text: str, form: Form) -> None:
    expected, before = text, None
    while expected != before:
        before = expected
        repaired = ftfy.fix_text(
            before,
            uncurl_quotes=False,
            fix_latin_ligatures=False,
            fix_character_width=False,
            normalization=None,
            fix_line_breaks=False,
        )
        expected = unicodedata.normalize(form, repaired)
    assert UnicodeReformatter(normalization=form).modify_document(text) == expected


def test_without_ftfy_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ftfy", None)
    with pytest.raises(MissingExtra, match=r"UnicodeReformatter .* pip install 'tamis\[text\]'"):
        UnicodeReformatter()


def test_normal_forms() -> None:
    texts = ["e\u0301", "ﬁ", "plain", None, "", "é"]
    assert UnicodeNormalizer().modify_batch(pa.array(texts)).to_pylist() == ["é", "ﬁ", "plain", None, "", "é"]
    assert UnicodeNormalizer("NFKD").modify_batch(pa.array(texts)).to_pylist() == [
        "e\u0301",
        "fi",
        "plain",
        None,
        "",
        "e\u0301",
    ]


@given(st.text(st.sampled_from("aé한" + MARKS), max_size=80), st.sampled_from(FORMS), st.integers(0, 40))
def test_long_runs_of_marks_equal_unicodedata(text: str, form: Form, n: int) -> None:
    text += "".join(MARKS[(i * 5 + n) % len(MARKS)] for i in range(n))
    assert UnicodeNormalizer(form).modify_document(text) == unicodedata.normalize(form, text)


def test_long_runs_are_noticed() -> None:
    for mark in MARKS:
        assert not _has_many_marks("a" + mark * 30 + "b")
        assert _has_many_marks("a" + mark * 31 + "b")
    assert not _has_many_marks("漢字" * 100)


@pytest.mark.parametrize("form", FORMS)
def test_a_megabyte_of_marks_ends(form: Form) -> None:
    text = "a" + "\u0315\u0300" * 250_000
    assert UnicodeNormalizer(form).modify_document(text)[-1] == "\u0315"


@pytest.mark.parametrize("piece", ["\u0315\u0300", "&amp;", "Ã¢â‚¬", "\x1b["])
def test_a_megabyte_for_ftfy_ends(piece: str) -> None:
    text = piece * (1_000_000 // len(piece.encode()))
    assert isinstance(UnicodeReformatter(normalization="NFC").modify_document(text), str)


def test_mistakes_are_named() -> None:
    with pytest.raises(UsageError, match="expected NFC, NFD, NFKC or NFKD, got 'nfc'"):
        UnicodeNormalizer("nfc")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="got 'X'"):
        UnicodeReformatter(normalization="X")  # type: ignore[arg-type]
    for length in (0, -1, True, 1e6):
        with pytest.raises(UsageError, match=f"expected a whole number from 1, got {length!r}"):
            UnicodeReformatter(max_decode_length=length)  # type: ignore[arg-type]
