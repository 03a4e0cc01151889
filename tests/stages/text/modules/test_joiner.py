"""Joining: order, fields, limits of length, the books, and the way back from a splitter."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tamis import InProcessExecutor, Pipeline
from tamis.engine.ledger import StageBook
from tamis.engine.worker.apply import identify, run_stage
from tamis.errors import PipelineError, UsageError
from tamis.formats.jsonl.block import JsonlBlock
from tamis.formats.jsonl.encode import encode_jsonl
from tamis.stages.text.io.reader import DocumentReader
from tamis.stages.text.io.writer import JsonlWriter
from tamis.stages.text.modifiers import Modify
from tamis.stages.text.modules import AddId, DocumentJoiner, DocumentSplitter
from tamis.tasks import DocumentBatch
from tests.support.limits import examples


def batch_of(lines: Sequence[bytes]) -> DocumentBatch:
    block = JsonlBlock.parse(np.frombuffer(b"".join(line + b"\n" for line in lines), np.uint8))
    batch = DocumentBatch.over(block, np.arange(block.n_rows))
    identify(batch)
    return batch


def join(*lines: bytes, **settings: Any) -> tuple[list[bytes], StageBook]:
    return join_batches([batch_of(lines)], **settings)


def join_batches(batches: Sequence[DocumentBatch], **settings: Any) -> tuple[list[bytes], StageBook]:
    book = StageBook("join")
    results = run_stage(DocumentJoiner(**{"separator": "+", **settings}), "join", list(batches), book)
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


def test_numbers_stay_with_their_segments_where_nothing_is_joined() -> None:
    lines = [b'{"id":%d,"segment_id":%d,"text":"x","len":9}' % (i % 2, i) for i in range(4)]
    limit = {"max_length": 7, "length_field": "len", "drop_segment_id_field": False}
    assert [json.loads(x)["segment_id"] for x in join(*lines, **limit)[0]] == [0, 0, 1, 1]


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
    out = DocumentJoiner("-").process(DocumentBatch("x", table)).to_pyarrow().to_pylist()
    expected = []
    for document in dict.fromkeys(columns[0]):
        texts = [t for d, _, t in sorted(segments, key=lambda s: s[1]) if d == document]
        parts = [t for t in texts if t is not None]
        expected.append({"id": document, "text": "-".join(parts) if parts else None})
    assert out == expected


VALUES = [b'"id":%s' % v for v in (b"1", b'"1"', b"true", b"2.5", b"null", b'{"a":1}')] + [b'"other":0']
TEXTS = [b'"text":%s' % v for v in (b'"a"', b'"\\u00e9\\n"', b'""', b"null", b"7.0", b"[1]")] + [b'"other":0']
LIMIT = {"max_length": 9, "length_field": "len", "drop_segment_id_field": False}


@st.composite
def segments_in_batches(draw: st.DrawFn) -> tuple[list[bytes], list[int]]:
    rows = draw(st.lists(st.tuples(st.sampled_from(VALUES), st.sampled_from(TEXTS), st.integers(0, 5)), max_size=12))
    lines = [b'{%s,%s,"segment_id":%d,"len":%d}' % (v, t, i * 7 % 13, n) for i, (v, t, n) in enumerate(rows)]
    return lines, sorted(draw(st.lists(st.integers(0, len(lines)), max_size=4)))


@settings(max_examples=examples(300), deadline=None)
@given(segments_in_batches(), st.sampled_from([{}, LIMIT]))
def test_it_does_not_matter_how_segments_are_spread_over_batches(
    given_lines: tuple[list[bytes], list[int]], limit: dict[str, Any]
) -> None:
    lines, cuts = given_lines
    parts = [batch_of(lines[a:b]) for a, b in zip([0, *cuts], [*cuts, len(lines)], strict=True)]
    written, book = join_batches(parts, **limit)
    together, whole = join(*lines, **limit)
    assert sorted(written) == sorted(together)
    assert (book.out, book.consumed, book.derived.n) == (whole.out, whole.consumed, whole.derived.n)


def test_a_document_is_where_its_first_segment_was() -> None:
    batches = [
        batch_of([b'{"id":1,"segment_id":2,"text":"c","n":1}', b'{"id":2,"segment_id":0,"text":"alone" }']),
        batch_of([b'{"id":1,"segment_id":1,"text":"b"}']),
        batch_of([b'{"x":[1.50],"id":1,"segment_id":0,"text":"a"}']),
    ]
    written, book = join_batches(batches)
    assert written == [b'{"id":2,"text":"alone"}', b'{"x":[1.50],"id":1,"text":"a+b+c"}']
    assert (book.into.n, book.out.n, book.consumed.n, book.derived.n) == (4, 1, 3, 1)


def test_joined_texts_next_to_values_that_are_none() -> None:
    numbers = pa.table({"id": [1, 2], "segment_id": [0, 0], "text": pa.array([None, 7], pa.int64()), "len": ["3", "x"]})
    texts = pa.table({"id": [1], "segment_id": [1], "text": ["a"]})
    made = DocumentJoiner("-").process_batch([DocumentBatch("x", numbers), DocumentBatch("x", texts)])
    assert [m.to_pyarrow().to_pylist() for m in made] == [
        [{"id": 1, "text": "a", "len": "3"}, {"id": 2, "text": 7, "len": "x"}],
        [],
    ]


def test_a_length_next_to_values_that_are_no_numbers() -> None:
    lines = [b'{"id":1,"segment_id":%d,"text":"a","len":1}' % i for i in range(2)]
    limit = {"max_length": 7, "length_field": "len"}
    written, _ = join(*lines, b'{"id":2,"segment_id":0,"text":"b","len":"?"}', **limit)
    assert written == [b'{"id":1,"text":"a+a","len":3}', b'{"id":2,"text":"b","len":"?"}']


def test_files_of_one_partition_with_different_columns(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"id": [1, 2], "segment_id": [0, 0], "text": ["a", "x"]}), tmp_path / "in/a.parquet")
    more = pa.table({"id": [2, 1], "segment_id": [1, 1], "text": ["y", "b"], "url": ["u", "v"]})
    pq.write_table(more, tmp_path / "in/b.parquet")
    stages = [DocumentReader(str(tmp_path / "in")), DocumentJoiner("+"), JsonlWriter(str(tmp_path / "out"))]
    result = Pipeline("j", stages=stages).execute(InProcessExecutor())
    assert result.ledger.problems() == []
    (out,) = (tmp_path / "out").glob("*.jsonl")
    assert out.read_text() == '{"id":1,"text":"a+b"}\n{"id":2,"text":"x+y"}\n'


@pytest.mark.parametrize("how", [{"blocksize": "1KiB"}, {"mode": "batch"}, {}], ids=str)
def test_a_document_split_and_joined_is_what_it_was(tmp_path: Path, how: dict[str, Any]) -> None:
    """Byte for byte where there was nothing to split.

    A text in pieces is encoded anew, its record's other fields are not.
    """
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
    for wrong in (0, -1, True, float("nan"), "9"):
        with pytest.raises(UsageError, match="max_length must be a number above 0, or None"):
            DocumentJoiner(max_length=wrong, length_field="len")  # type: ignore[arg-type]
    assert DocumentJoiner(max_length=np.int64(5), length_field="len").max_length == 5
    with pytest.raises(UsageError, match="expected a string, got None"):
        DocumentJoiner(None)  # type: ignore[arg-type]
