"""Splitting: segments, lineage, the books, and documents that are left as they are."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tamis import InProcessExecutor, Pipeline
from tamis.engine.ledger import StageBook
from tamis.engine.worker.apply import identify, run_stage
from tamis.errors import UsageError
from tamis.formats.jsonl.block import JsonlBlock
from tamis.formats.jsonl.encode import encode_jsonl
from tamis.stages.base import ProcessingStage
from tamis.stages.text.io.reader import DocumentReader
from tamis.stages.text.io.writer import JsonlWriter
from tamis.stages.text.modules import DocumentSplitter
from tamis.tasks import ROW_ID, DocumentBatch


def records(*lines: bytes) -> DocumentBatch:
    block = JsonlBlock.parse(np.frombuffer(b"\n".join(lines) + b"\n", np.uint8))
    batch = DocumentBatch.over(block, np.arange(block.n_rows))
    identify(batch)
    return batch


@dataclass(repr=False)
class Give(ProcessingStage[DocumentBatch, DocumentBatch]):
    """A stage that returns a table of its own."""

    batch: DocumentBatch
    name: str = "give"

    def process(self, task: DocumentBatch) -> DocumentBatch:
        return self.batch


def split(*lines: bytes) -> tuple[list[bytes], StageBook]:
    book = StageBook("split")
    results = run_stage(DocumentSplitter("||"), "split", [records(*lines)], book)
    assert book.imbalance() is None
    written = [
        line for r in results if isinstance(r, DocumentBatch) for line in encode_jsonl(r).data.tobytes().splitlines()
    ]
    assert book.out.n + book.derived.n == len(written)
    return written, book


def test_segments_keep_the_other_fields() -> None:
    written, book = split(
        b'{"id": 7,"text":"a||b||","n":1.0}', b'{"text":"whole"}', b'{"text":""}', b'{"text":null}', b'{"n":1}'
    )
    assert written == [
        b'{"id": 7,"text":"a","n":1.0,"segment_id":0}',
        b'{"id": 7,"text":"b","n":1.0,"segment_id":1}',
        b'{"id": 7,"text":"","n":1.0,"segment_id":2}',
        b'{"text":"whole","segment_id":0}',
        b'{"text":"","segment_id":0}',
        b'{"text":null,"segment_id":0}',
        b'{"n":1,"segment_id":0}',
    ]
    assert (book.into.n, book.out.n, book.consumed.n, book.derived.n, book.dropped) == (5, 4, 1, 3, {})


def test_values_that_are_no_text_are_left_alone() -> None:
    written, book = split(b'{"text":["a||b"]}', b'{"text":"c||d"}', b'{"text":5.0}')
    assert written == [
        b'{"text":["a||b"],"segment_id":0}',
        b'{"text":"c","segment_id":0}',
        b'{"text":"d","segment_id":1}',
        b'{"text":5.0,"segment_id":0}',
    ]
    assert book.out.n == 2
    assert split(b'{"text":5}', b'{"text":6}')[0] == [b'{"text":5,"segment_id":0}', b'{"text":6,"segment_id":0}']


@given(st.lists(st.none() | st.text("ab|é", max_size=12), max_size=6), st.sampled_from(["|", "ab", "é"]))
def test_equals_str_split(texts: list[str | None], separator: str) -> None:
    batch = DocumentBatch("x", pa.table({"text": pa.array(texts, pa.string()), "n": list(range(len(texts)))}))
    out = DocumentSplitter(separator).process(batch).to_pyarrow().to_pylist()
    expected = [
        {"text": piece, "n": n, "segment_id": k}
        for n, text in enumerate(texts)
        for k, piece in enumerate([None] if text is None else text.split(separator))
    ]
    assert out == expected


@pytest.mark.parametrize("blocksize", [None, "1KiB"])
def test_through_a_pipeline(tmp_path: Path, blocksize: str | None) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.jsonl").write_text("".join(json.dumps({"id": i, "text": "x." * i}) + "\n" for i in range(100)))
    stages = [
        DocumentReader(str(tmp_path / "in"), blocksize=blocksize),
        DocumentSplitter("."),
        JsonlWriter(str(tmp_path / "out")),
    ]
    result = Pipeline("s", stages=stages).execute(InProcessExecutor())
    assert result.ledger.problems() == []
    found = [json.loads(x) for p in sorted((tmp_path / "out").glob("*.jsonl")) for x in p.read_bytes().splitlines()]
    assert [(d["id"], d["segment_id"], d["text"]) for d in found] == [
        (i, k, "x" if k < i else "") for i in range(100) for k in range(i + 1)
    ]


def test_segments_do_not_carry_the_whole_text() -> None:
    text = b"some words here||" * 20_000
    batch = DocumentSplitter("||").process(records(b'{"text":"%s","id":1}' % text, b'{"text":"one","id":2}'))
    assert batch.num_items == 20_002
    written = encode_jsonl(batch)
    assert len(written.data) < 70 * 20_002
    assert written.data.tobytes().splitlines()[-1] == b'{"text":"one","id":2,"segment_id":0}'


def test_new_documents_and_changed_texts_are_split_too() -> None:
    table = DocumentBatch("x", pa.table({"text": ["a||b", "c"], "id": [1, 2], ROW_ID: [0, -1]}))
    parent = records(b'{"text":"old", "n":1.0}', b'{"text":"gone"}')
    book = StageBook("split")
    changed = run_stage(Give(table), "give", [parent], StageBook("give"))
    results = run_stage(DocumentSplitter("||"), "split", changed, book)
    assert book.imbalance() is None
    written = [x for r in results if isinstance(r, DocumentBatch) for x in encode_jsonl(r).data.tobytes().splitlines()]
    assert written == [
        b'{"text":"a","id":1,"segment_id":0}',
        b'{"text":"b","id":1,"segment_id":1}',
        # No record stands behind it: in the order in which stages gave its fields.
        b'{"id":2,"text":"c","segment_id":0}',
    ]


def test_a_separator_is_needed() -> None:
    with pytest.raises(UsageError, match="expected a string to split at, got ''"):
        DocumentSplitter("")
