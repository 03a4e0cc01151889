"""Modifiers of strings: literal examples, plain definitions, null and empty texts, sliced columns, hostile input."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tamis.errors import UsageError
from tamis.stages.text.modifiers import (
    DocumentModifier,
    FastTextLabelModifier,
    LineRemover,
    MarkdownRemover,
    NewlineNormalizer,
    QuotationRemover,
    Slicer,
    UrlRemover,
    WhitespaceNormalizer,
)
from tamis.stages.text.modifiers.string import _Underscores

ALL: list[DocumentModifier] = [
    FastTextLabelModifier("__label__x"),
    LineRemover(["a", ""]),
    MarkdownRemover(),
    NewlineNormalizer(),
    QuotationRemover(),
    Slicer(1, -1),
    UrlRemover(),
    WhitespaceNormalizer(),
]
by_name = pytest.mark.parametrize("modifier", ALL, ids=lambda m: m.name)


def some(alphabet: str) -> st.SearchStrategy[str]:
    return st.text(alphabet, max_size=40)


@pytest.mark.parametrize(
    ("modifier", "text", "expected"),
    [
        (FastTextLabelModifier("__label__hq"), "a\nb __label__c", "__label__hq a b  c"),
        (FastTextLabelModifier("__label__hq"), "", "__label__hq "),
        (LineRemover(["x", "Menu"]), "x\na x\nMenu\nb\nx", "a x\nb"),
        (LineRemover([""]), "a\n\nb", "a\nb"),
        (MarkdownRemover(), "**bold** *it* _u_ __v__ [text](http://u.v)", "bold it u v http://u.v"),
        (MarkdownRemover(), "snake_case_name, a_b@c.de and __init__.py", "snake_case_name, a_b@c.de and init.py"),
        (MarkdownRemover(), "**open\nend* [a]\n(b)", "open\nend* [a]\n(b)"),
        (NewlineNormalizer(), "a\n\n\n\nb\n\nc\r\n\r\n\r\nd", "a\n\nb\n\nc\r\n\r\nd"),
        (QuotationRemover(), '"a quotation"', "a quotation"),
        (QuotationRemover(), '"first"\nsecond"', '"first"\nsecond"'),
        (QuotationRemover(), '"first\nsecond"', "first\nsecond"),
        (QuotationRemover(), '""', '""'),
        (Slicer(), "  whole ", "whole"),
        (Slicer(2, 5, strip=False), "abc def", "c d"),
        (Slicer("<b>", "</b>", include_left=False, include_right=False), "x<b> in </b>y</b>z", "in </b>y"),
        (Slicer("<b>", "</b>"), "x<b> in </b>y", "<b> in </b>"),
        (Slicer("nowhere"), "text", ""),
        (Slicer(0, "nowhere"), "text", ""),
        (UrlRemover(), "see HTTPS://a.b/c?d=e, or www.x.y\u3000end http:// no", "see  or \u3000end http:// no"),
        (WhitespaceNormalizer(), " a\u00a0\t b \r\n\r\n \n\nc\x0bd \u2028", "a b\n\nc\nd"),
        (WhitespaceNormalizer(1), "a\n\n\nb", "a\nb"),
        (WhitespaceNormalizer(None), "a\n \n\nb", "a\n\n\nb"),
    ],
)
def test_examples(modifier: DocumentModifier, text: str, expected: str) -> None:
    assert modifier.modify_document(text) == expected
    assert modifier.modify_batch(pa.array([text], pa.string())).to_pylist() == [expected]


@by_name
def test_null_empty_sliced_and_both_widths(modifier: DocumentModifier) -> None:
    texts = ["dropped", None, "", '"a *b* http://x\n\n\n\nc"', "plain", "é😀  z"]
    expected = [None if t is None else modifier.modify_document(t) for t in texts[1:]]
    for kind in (pa.string(), pa.large_string()):
        after = modifier.modify_batch(pa.array(texts, kind).slice(1))
        assert after.to_pylist() == expected
        assert after.type == kind
    assert modifier.modify_batch(pa.array([], pa.large_string())).to_pylist() == []


@by_name
@pytest.mark.parametrize(
    "piece", ["a@a@a@", "(", "1.1.1.1.", "7", "http://http://", "*", "_", "_a ", "[", "[](", "\n", " ", '"']
)
def test_a_megabyte_of_anything_ends(modifier: DocumentModifier, piece: str) -> None:
    text = piece * (1_000_000 // len(piece))
    assert isinstance(modifier.modify_document(text), str)


@given(some("ab_ *\n\t.é\u00a0"))
@example("__a_b__ _ _a_ __ ___x___")
@example("_a\nb_")
def test_underscores_equal_the_expression_with_lookaround(text: str) -> None:
    emphasis = re.compile(r"(?<!\w)(__?)(?=\S)(.+?)(?<=\S)\1(?!\w)")
    assert _Underscores().modify_document(text) == emphasis.sub(r"\2", text)


@given(some("a*_[](\n) é"))
def test_markdown_equals_the_four_expressions(text: str) -> None:
    lines = []
    for line in text.split("\n"):
        for pattern in (r"\*\*(.*?)\*\*", r"\*(.*?)\*"):
            line = re.sub(pattern, r"\1", line)
        line = re.sub(r"(?<!\w)(__?)(?=\S)(.+?)(?<=\S)\1(?!\w)", r"\2", line)
        lines.append(re.sub(r"\[.*?\]\((.*?)\)", r"\1", line))
    assert MarkdownRemover().modify_document(text) == "\n".join(lines)


@given(
    st.lists(
        st.sampled_from(["http", "HTTPS", "s", "://", "www.", "x", " ", "\n", "\u2003", "\x1f", "é", "."]), max_size=12
    )
)
def test_urls_equal_the_expression(pieces: list[str]) -> None:
    text = "".join(pieces)
    expected = re.sub(r"https?://\S+|www\.\S+", "", text, flags=re.IGNORECASE)
    assert UrlRemover().modify_document(text) == expected


def test_urls_end_at_every_whitespace_of_python_and_nowhere_else() -> None:
    characters = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    texts = pa.array([f"www.a{c}b" for c in characters], pa.large_string())
    after = UrlRemover().modify_batch(texts).to_pylist()
    assert after == [f"{c}b" if c.isspace() else "" for c in characters]


@given(some("ab\n\r"))
def test_newlines_equal_the_two_expressions(text: str) -> None:
    expected = re.sub(r"(\r\n){3,}", "\r\n\r\n", re.sub(r"\n{3,}", "\n\n", text))
    assert NewlineNormalizer().modify_document(text) == expected


@given(
    st.text(st.sampled_from("a \t\n\r\x0b\x0c\x1c\x1f\x85\xa0\u2003\u2028\u3000é"), max_size=30),
    st.sampled_from([None, 1, 2]),
)
def test_whitespace_equals_split_and_splitlines(text: str, most: int | None) -> None:
    plain = "\n".join(" ".join(line.split()) for line in text.splitlines()).strip("\n")
    if most is not None:
        plain = re.sub(f"\n{{{most + 1},}}", "\n" * most, plain)
    assert WhitespaceNormalizer(most).modify_document(text) == plain


def test_all_whitespace_is_known() -> None:
    texts = [f"a{chr(c)}b" for c in range(0x110000) if chr(c).isspace()]
    expected = ["a\nb" if len(t.splitlines()) == 2 else "a b" for t in texts]
    assert WhitespaceNormalizer().modify_batch(pa.array(texts)).to_pylist() == expected


@given(some('ab"\n '))
def test_quotations_equal_the_rules(text: str) -> None:
    expected = text
    if len(text.strip()) > 2 and text[0] == text[-1] == '"' and ("\n" not in text or text.split("\n")[0][-1] != '"'):
        expected = text[1:-1]
    assert QuotationRemover().modify_document(text) == expected


@given(some("ab \n"), st.lists(some("ab "), max_size=3))
def test_lines_equal_the_definition(text: str, patterns: list[str]) -> None:
    expected = "\n".join(line for line in text.split("\n") if line not in patterns)
    assert LineRemover(patterns).modify_document(text) == expected


def test_a_pattern_that_no_line_can_equal_is_refused() -> None:
    with pytest.raises(UsageError, match="'a\\\\nb' contains a line feed"):
        LineRemover(["a", "a\nb"])


@settings(max_examples=50)
@given(st.lists(st.one_of(st.none(), st.text(max_size=30)), max_size=8))
def test_a_batch_equals_its_documents(texts: list[str | None]) -> None:
    for modifier in ALL:
        expected = [None if t is None else modifier.modify_document(t) for t in texts]
        assert modifier.modify_batch(pa.array(texts, pa.large_string())).to_pylist() == expected


@pytest.mark.parametrize(
    "build",
    [
        lambda: LineRemover("abc"),
        lambda: LineRemover([1]),  # type: ignore[list-item]
        lambda: Slicer(1.5),  # type: ignore[arg-type]
        lambda: WhitespaceNormalizer(0),
        lambda: FastTextLabelModifier(""),
        lambda: FastTextLabelModifier("two words"),
        lambda: FastTextLabelModifier("__label__hq\n"),
    ],
)
def test_mistakes_are_named(build: Any) -> None:
    with pytest.raises(UsageError, match="expected"):
        build()
