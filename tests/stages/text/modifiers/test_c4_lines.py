"""Texts of kept lines, also where a text or a batch is looked at in several windows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tamis.kernels.text.split_lines import LineTable
from tamis.stages.text.modifiers import c4
from tamis.stages.text.modifiers.c4 import keep_lines
from tests.support.limits import examples

BREAKS = ["\n", "\r", "\r\n", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"]
PIECES = [*BREAKS, " ", "a", "drop it", "END", "\u2027", "\x84", "é", "\x1f"]


def decide(table: LineTable) -> tuple[Any, Any]:
    """Lines of one word, or none, stay; lines of three make the text empty."""
    return table.n_words < 2, table.n_words == 3


def expected(text: str) -> str:
    lines = [line.strip() for line in text.splitlines()]
    if any(len(line.split()) == 3 for line in lines):
        return ""
    return "\n".join(line for line in lines if len(line.split()) < 2)


@pytest.mark.parametrize("window", [1, 5, 40])
@settings(max_examples=examples(150), deadline=None)
@given(st.lists(st.none() | st.lists(st.sampled_from(PIECES), max_size=25).map("".join), max_size=5))
def test_windows_of_any_size_give_the_same(window: int, texts: list[str | None]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(c4, "_WINDOW_BYTES", window)
        made = keep_lines(pa.array(texts, pa.large_string()), decide)
    assert made.to_pylist() == [None if t is None else expected(t) for t in texts]


def test_a_line_of_a_later_window_empties_the_whole_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(c4, "_WINDOW_BYTES", 4)
    texts = pa.array(["before", "first\nsecond\n\nthird\none two three\nlast", "after\n\nit"], pa.string())
    assert keep_lines(texts, decide).to_pylist() == ["before", "", "after\n\nit"]


def test_large_texts_are_cut_where_lines_end(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def watch(table: LineTable) -> tuple[Any, Any]:
        sizes.append(len(table.starts))
        return decide(table)

    text = "\n" * 3_000_000
    assert keep_lines(pa.array([text, "a"], pa.large_string()), watch).to_pylist() == [text[:-1], "a"]
    assert max(sizes) <= c4._WINDOW_BYTES + 1
    assert sum(sizes) == 3_000_001


def test_a_text_without_line_breaks_is_one_piece() -> None:
    text = "x" * 2_000_000
    assert keep_lines(pa.array([text]), lambda t: (t.n_words == 1, np.zeros(len(t.starts), bool))).to_pylist() == [text]


def test_no_texts() -> None:
    assert keep_lines(pa.array([], pa.string()), decide).to_pylist() == []
    assert keep_lines(pa.array([None, None], pa.large_string()), decide).to_pylist() == [None, None]
