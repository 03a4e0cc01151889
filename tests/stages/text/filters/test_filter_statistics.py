"""Statistics of a batch: which pass gives which, what is remembered, what is text."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest

from tamis.formats.jsonl.block import JsonlBlock
from tamis.kernels import text_rows
from tamis.stages.text.filters.statistics import TOGETHER, ColumnStatistics, list_statistics, measure, pass_of
from tamis.tasks import DocumentBatch


@pytest.mark.parametrize(
    ("statistic", "expected"),
    [
        ("chars", "characters"),
        ("word_chars", "characters"),
        ("unique_sentence_chars", "lines"),
        ("line_runs", "lines"),
        ("unique_paragraphs", "paragraphs"),
        ("gopher_duplicate_paragraphs", "gopher paragraphs"),
        ("lorem_ipsum", "phrases"),
        ("porn_urls", "urls"),
        ("wide_porn_urls", "wide urls"),
        ("gopher_bullet_lines", "split lines"),
        ("longest_word", "words"),
        ("gopher_top_2_gram_fraction", "n-grams"),
    ],
)
def test_the_pass_that_gives_a_statistic(statistic: str, expected: str) -> None:
    assert pass_of(statistic) == expected


def test_what_is_counted_together_is_one_pass() -> None:
    assert set(TOGETHER) <= set(list_statistics())
    assert {pass_of(name) for name in TOGETHER} == {"characters"}


def test_null_counts_as_empty_text() -> None:
    found = measure(pa.array(["a b", None, ""], pa.string()), ["words", "chars", "is_null"])
    assert {name: values.tolist() for name, values in found.items()} == {
        "chars": [3, 0, 0],
        "words": [2, 0, 0],
        "is_null": [0, 1, 0],
    }


def test_what_was_measured_of_some_rows_goes_along_with_them() -> None:
    batch = DocumentBatch("", pa.table({"text": ["a", "b b", "c c c", "d d d d"]}))
    measured = ColumnStatistics(batch, "text")
    rows = np.array([1, 2, 3])
    assert measured.get(["longest_word"], rows)["longest_word"].tolist() == [1, 1, 1]
    assert measured.get(["words"], rows)["words"].tolist() == [2, 3, 4]
    assert measured.get(["words"], np.array([2, 3]))["words"].tolist() == [3, 4]
    left = batch.take(np.array([1, 3]))
    measured.move_to(left, np.array([1, 3]))
    assert left.measured["text", "words"].tolist() == [2, 4]
    assert ColumnStatistics(left, "text").get(["words"], np.array([0, 1]))["words"].tolist() == [2, 4]
    assert left.take(np.array([1])).measured["text", "words"].tolist() == [4]


def test_a_number_among_texts_is_no_text() -> None:
    raw = b'{"text": "5"}\n{"text": 5}\n{"text": null}\n{}\n{"text": ["a"]}\n'
    block = JsonlBlock.parse(np.frombuffer(raw, np.uint8), ["text"])
    batch = DocumentBatch.over(block, np.arange(block.n_rows))
    assert batch.texts("text").to_pylist() == ["5", None, None, None, None]


def test_documents_that_are_left_are_measured_where_their_texts_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    """A filter measures the rows that the one before it left, without copying their texts."""
    texts = [f"one {'word ' * i}\nline {i}." if i % 7 else None for i in range(40)]
    lines = "".join(json.dumps({"text": t}) + "\n" for t in texts).encode()
    batch = DocumentBatch.over(JsonlBlock.parse(np.frombuffer(lines, np.uint8)), np.arange(40))
    batch.texts("text")
    for keep in (np.arange(40) % 3 > 0, np.arange(26) % 5 > 0):
        batch = batch.filter(keep)
        with monkeypatch.context() as patched:
            patched.setattr(text_rows, "take", lambda *_: pytest.fail("texts were copied"))
            rows = np.arange(0, batch.num_items, 2)
            measured = ColumnStatistics(batch, "text")
            some = measured.get(["words", "chars", "sentences"], rows)
            found = measured.get(["words", "chars", "sentences", "is_null"], np.arange(batch.num_items))
        twin = measure(pa.array(batch.copy().values("text"), pa.large_string()), list(found))
        assert {name: values.tolist() for name, values in found.items()} == {n: v.tolist() for n, v in twin.items()}
        assert all(some[name].tolist() == twin[name][rows].tolist() for name in some)
        assert ColumnStatistics(batch.copy(), "text").texts.to_pylist() == batch.values("text")
        batch.measured.clear()
