"""line_table and the counts of Gopher and C4 by lines of str.splitlines()."""

from __future__ import annotations

import re

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from tamis.kernels.buffers import string_buffers
from tamis.kernels.text import split_lines as lines
from tamis.kernels.text.split_lines import line_table
from tamis.kernels.text.text_stats import statistics
from tests.reference import text_twin
from tests.support.limits import examples

PARTS = [
    "a",
    " ",
    "one two three",
    ".",
    "...",
    "!",
    "'",
    ")",
    "[1]",
    "[٣2]",
    "[edit]",
    "[citation needed]",
    "[x]",
    "]",
    "[",
    "é",
]
PARTS += [
    "\n",
    "\r\n",
    "\r",
    "\x0b",
    "\x1c",
    "\x85",
    "\u2028",
    "{",
    "javascript",
    "LOREM ipsum",
    "terms of use",
    "privacy overview",
]


@settings(max_examples=examples(400), deadline=None)
@given(st.lists(st.one_of(st.none(), st.lists(st.sampled_from(PARTS), max_size=30).map("".join)), max_size=3))
def test_table_equals_splitlines(documents: list[str | None]) -> None:
    parts = string_buffers(pa.array(documents, pa.string()))
    table = line_table(parts)
    split = [(document or "").splitlines() for document in documents]
    assert table.doc_ptr.tolist() == [sum(map(len, split[:k])) for k in range(len(split) + 1)]
    for k, raw in enumerate(line for document in split for line in document):
        line, low = raw.strip(), raw.lower()
        words, bare = line.split(), re.sub(text_twin.CITATION, "", line)
        flags = lines.LINE_TERMINAL * (bare.endswith(text_twin.END_MARKS) and not bare.endswith("..."))
        flags |= lines.LINE_CURLY * ("{" in line) | lines.LINE_JAVASCRIPT * ("javascript" in low)
        flags |= lines.LINE_POLICY * any(phrase in low for phrase in text_twin.C4_POLICY)
        flags |= lines.LINE_LOREM * ("lorem ipsum" in low)
        assert bytes(parts.data[table.starts[k] : table.ends[k]]).decode() == line
        expected = (len(words), max(map(len, words), default=0), flags)
        assert (table.n_words[k], table.longest_word[k], table.flags[k]) == expected


def test_sentences_by_hand() -> None:
    documents = ['He said "no." Why? 3.5 is not it.', "x\n\nIt is done.) Next comes that!", "Not these two"]
    found = statistics(string_buffers(pa.array(documents)), ["c4_sentences"])
    assert found["c4_sentences"].tolist() == [3, 2, 0]


@given(st.lists(st.lists(st.sampled_from(PARTS), max_size=30).map("".join), max_size=3))
def test_less_may_be_requested(documents: list[str]) -> None:
    parts = string_buffers(pa.array(documents, pa.string()))
    whole, less = line_table(parts), line_table(parts, only_terminal=True)
    terminal = (whole.flags & lines.LINE_TERMINAL) != 0
    for name in ("doc_ptr", "starts", "ends"):
        assert (getattr(less, name) == getattr(whole, name)).all()
    for name in ("n_words", "longest_word", "flags"):
        assert (getattr(less, name)[terminal] == getattr(whole, name)[terminal]).all()
    assert ((less.flags & lines.LINE_TERMINAL) != 0).tolist() == terminal.tolist()
