"""Joining: order, fields, limits of length, the books, and the way back from a splitter."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tamis import InProcessExecutor, Pipeline
from tamis.engine.apply import identify, run_stage
from tamis.engine.ledger import StageBook
from tamis.errors import PipelineError, UsageError
from tamis.formats.encode import encode_jsonl
from tamis.formats.jsonl import JsonlBlock
from tamis.stages.text.io.reader import DocumentReader
from tamis.stages.text.io.writer import JsonlWriter
from tamis.stages.text.modifiers import Modify
from tamis.stages.text.modules import AddId, DocumentJoiner, DocumentSplitter
from tamis.tasks import DocumentBatch


def join(*lines: bytes, **settings: Any) -> tuple[list[bytes], StageBook]:
    block = JsonlBlock.parse(np.frombuffer(b"\n".join(lines) + b"\n", np.uint8))
    batch = DocumentBatch.over(block, np.arange(block.n_rows))
    identify(batch)
    book = StageBook("join")
    results = run_stage(DocumentJoiner(**{"separator": "+", **settings}), "join", [batch], book)
    assert book.imbalance() is None
    written = [
        line for r in results if isinstance(r, DocumentBatch) for line in encode_jsonl(r).data.tobytes().splitlines()
    ]
    assert book.out.n + book.derived.n == len(written)
    return written, book


def test_segments_are_joined_in_order() -> None:
    written, book = join(
        b'{"id":"x","segment_id":1,"text":"b","n":2}',
        b'{"id":"y","segment_id":0,"text":"alone" ,"n":1.0}',
        b'{"id":"x","segment_id":10,"text":"c"}',
        b'{"id":"x","segment_id":0,"text":"a","n":1.50}',
        b'{"id":null,"segment_id":0,"text":"no id"}',
        b'{"id":null,"segment_id":1,"text":"no id"}',
    )
    assert written == [
        b'{"id":"x","text":"a+b+c","n":1.50}',
        b'{"id":"y","text":"alone","n":1.0}',
        b'{"id":null,"text":"no id"}',
        b'{"id":null,"text":"no id"}',
    ]
    assert (book.into.n, book.out.n, book.consumed.n, book.derived.n, book.dropped) == (6, 3, 3, 1, {})


def test_segment_ids_may_stay() -> None:
    lines = [b'{"id":1,"segment_id":3,"text":"b"}', b'{"id":1,"segment_id":2,"text":"a"}']
    assert join(*lines, drop_segment_id_field=False)[0] == [b'{"id":1,"segment_id":2,"text":"a+b"}']


def test_nulls_add_nothing_and_other_values_stay_alone() -> None:
    written, _ = join(
        b'{"id":1,"segment_id":0,"text":null}',
        b'{"id":1,"segment_id":1,"text":"a"}',
        b'{"id":1,"segment_id":2,"text":7.0}',
        b'{"id":1,"segment_id":3}',
        b'{"id":2,"segment_id":0,"text":null}',
        b'{"id":2,"segment_id":1,"text":null}',
        b'{"id":"1","segment_id":0,"text":"text id"}',
    )
    assert written == [
        b'{"id":1,"text":"a"}',
        b'{"id":1,"text":7.0}',
        b'{"id":2,"text":null}',
        b'{"id":"1","text":"text id"}',
    ]


def test_no_more_than_a_length() -> None:
    lines = [b'{"id":1,"segment_id":%d,"text":"%s","len":%d}' % (i, b"x" * n, n) for i, n in enumerate([3, 3, 3, 9, 1])]
    limit = {"max_length": 7, "length_field": "len", "drop_segment_id_field": False}
    assert join(*lines, **limit)[0] == [
        b'{"id":1,"segment_id":0,"text":"xxx+xxx","len":7}',
        b'{"id":1,"segment_id":1,"text":"xxx","len":3}',
        b'{"id":1,"segment_id":2,"text":"xxxxxxxxx","len":9}',
        b'{"id":1,"segment_id":3,"text":"x","len":1}',
    ]


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 50), st.none() | st.text("ab", max_size=3)),
        max_size=12,
        unique_by=lambda t: t[:2],
    )
)
def test_equals_sorting_and_joining(segments: list[tuple[int, int, str | None]]) -> None:
    columns = list(zip(*segments, strict=True)) or [(), (), ()]
    table = pa.table(
        {
            "id": pa.array(columns[0], pa.int64()),
            "segment_id": pa.array(columns[1], pa.int64()),
            "text": pa.array(columns[2], pa.string()),
        }
    )
    out = DocumentJoiner("-").process(DocumentBatch("x", table)).data.to_pylist()
    expected = []
    for document in dict.fromkeys(columns[0]):
        texts = [t for d, _, t in sorted(segments, key=lambda s: s[1]) if d == document]
        parts = [t for t in texts if t is not None]
        expected.append({"id": document, "text": "-".join(parts) if parts else None})
    assert out == expected


@pytest.mark.parametrize("how", [{"blocksize": "1KiB"}, {"mode": "batch"}, {}], ids=str)
def test_a_document_split_and_joined_is_what_it_was(tmp_path: Path, how: dict[str, Any]) -> None:
    """Byte for byte where there was nothing to split; a text in pieces is encoded anew, its record's other fields are not."""
    mode = how.pop("mode", "streaming")
    lines = [b'{ "text" : "%s", "n":1.0 }' % b"\\u0061.".join(b"%d" % k for k in range(i % 5)) for i in range(300)]
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    stages = [AddId("id"), DocumentSplitter("."), Modify(lambda t: t), DocumentJoiner(".")]
    pipeline = Pipeline(
        "j", stages=[DocumentReader(str(tmp_path / "in"), **how), *stages, JsonlWriter(str(tmp_path / "out"))]
    )
    result = pipeline.execute(InProcessExecutor(), mode=mode)
    assert result.ledger.problems() == []
    assert result.ledger.n_dropped == 0
    out = [x for p in sorted((tmp_path / "out").glob("*.jsonl")) for x in p.read_bytes().splitlines()]
    ids = [json.loads(x)["id"] for x in out]
    same = [x.replace(b"\\u0061", b"a") if b"." in x[:-10] else x for x in lines]
    assert out == [x[:-1] + b',"id":"%s"}' % i.encode() for x, i in zip(same, ids, strict=True)]


@pytest.mark.parametrize("field", [b'"segment_id":"first"', b'"segment_id":null', b'"other":1'])
def test_segments_need_numbers(field: bytes) -> None:
    with pytest.raises(Exception, match="needs a number in 'segment_id'") as caught:
        join(b'{"id":1,"text":"a",%s}' % field, b'{"id":1,"text":"b","segment_id":2}')
    assert isinstance(caught.value.__cause__, PipelineError)
    assert join(b'{"id":1,"text":"a",%s}' % field)[1].out.n == 1


def test_mistakes_are_named() -> None:
    with pytest.raises(UsageError, match="both max_length and length_field"):
        DocumentJoiner(max_length=5)
    with pytest.raises(UsageError, match="expected a string, got None"):
        DocumentJoiner(None)  # type: ignore[arg-type]
