"""encode_jsonl against dictionaries: what nobody touched stays as it was, what changed is what json.loads reads."""

from __future__ import annotations

import datetime
import decimal
import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tamis.formats.jsonl.block import JsonlBlock
from tamis.formats.jsonl.encode import encode_jsonl, written_lines
from tamis.formats.table_block import TableBlock
from tamis.kernels.records import hash128
from tamis.tasks import DocumentBatch
from tamis.tasks.columns.literals import literals_of
from tests.support.limits import examples

RECORDS = [
    b'{"id": 1, "text": "a\\u00e9\\/", "n": 1.50, "nest": {"b": [1,  2], "a": null}}',
    b'  {"text":"b","id":2}\t ',
    b"{}",
    b"{ }",
    b'{"id":3,"id":33,"text":"dup"}',
    b'{"te\\u0078t":"escaped key","n":NaN}',
    '{"é":"ü","text":null}'.encode(),
    b'{"nest":[],"x":12345678901234567890123}',
]


def batch_of(records: list[bytes] = RECORDS, newline: bytes = b"\n") -> DocumentBatch:
    block = JsonlBlock.parse(np.frombuffer(b"".join(r + newline for r in records), np.uint8))
    assert not block.bad
    return DocumentBatch.over(block, np.arange(block.n_rows))


def lines(batch: DocumentBatch) -> list[bytes]:
    encoded = encode_jsonl(batch)
    assert encoded.offsets[0] == 0
    assert encoded.offsets[-1] == len(encoded.data)
    rows = [encoded.data[encoded.offsets[i] : encoded.offsets[i + 1]].tobytes() for i in range(batch.num_items)]
    assert all(r.endswith(b"\n") for r in rows)
    hi, lo = encoded.content_hash()
    assert len(hi) == len(lo) == batch.num_items
    written = written_lines(batch)
    assert b"".join(p.tobytes() for p in written.pieces) == encoded.data.tobytes()
    assert [h.tolist() for h in written.hashes] == [hi.tolist(), lo.tolist()]
    assert written.lengths.tolist() == [len(r) - 1 for r in rows]
    return [r[:-1] for r in rows]


def raw_members(record: bytes) -> list[tuple[str, bytes]]:
    """(key, raw value text) of a record in order, by a scanner that is not ours."""
    text, at, found = record.decode().strip(), 1, []
    decoder = json.JSONDecoder()
    while True:
        while text[at] in " \t,":
            at += 1
        if text[at] == "}":
            return found
        key, at = decoder.raw_decode(text, at)
        while text[at] in " \t:":
            at += 1
        _, end = decoder.raw_decode(text, at)
        found.append((key, text[at:end].encode()))
        at = end


def test_untouched_records_come_out_byte_for_byte_and_are_not_copied() -> None:
    batch = batch_of()
    batch._origin.identity()  # type: ignore[union-attr]
    assert lines(batch) == RECORDS
    assert np.shares_memory(written_lines(batch).pieces[0], batch._origin.buf)  # type: ignore[union-attr]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from([10, 100, 9_000, 40_000]), min_size=1, max_size=12),
    st.lists(st.integers(0, 11), max_size=20),
    st.sampled_from([b"\n", b"\r\n", b"\n\n"]),
    st.booleans(),
)
def test_long_runs_are_pieces_of_the_input(sizes: list[int], rows: list[int], newline: bytes, cut: bool) -> None:
    records = [b'{"text":"%s"}' % (b"abcdefghij"[i % 10 : i % 10 + 1] * n) for i, n in enumerate(sizes)]
    data = newline.join(records) + (b"" if cut else newline)
    block = JsonlBlock.parse(np.frombuffer(data, np.uint8))
    block.identity()
    rows = [r for r in rows if r < len(records)]
    assert lines(DocumentBatch.over(block, np.array(rows, np.int64))) == [records[r] for r in rows]
    if newline == b"\n" and not cut and min(sizes) > 20_000:
        pieces = written_lines(DocumentBatch.over(block, np.arange(len(records)))).pieces
        assert len(pieces) == 1
        assert np.shares_memory(pieces[0], block.buf)


@pytest.mark.parametrize("newline", [b"\r\n", b"\n\n", b"\n \t\n"])
def test_untouched_records_between_other_line_ends(newline: bytes) -> None:
    assert lines(batch_of(newline=newline)) == RECORDS


def test_no_newline_at_the_end() -> None:
    block = JsonlBlock.parse(np.frombuffer(b'{"a":1}\n{"a":2}', np.uint8))
    assert lines(DocumentBatch.over(block, np.arange(2))) == [b'{"a":1}', b'{"a":2}']


def test_no_rows_at_all() -> None:
    assert lines(batch_of().take(np.empty(0, np.int64))) == []
    assert lines(batch_of().take(np.empty(0, np.int64)).with_column("k", pa.array([], pa.int64()))) == []
    assert lines(batch_of().take(np.empty(0, np.int64)).drop_columns(["id"])) == []


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, len(RECORDS) - 1), max_size=12))
def test_rows_in_any_order_and_repeated(rows: list[int]) -> None:
    assert lines(batch_of().take(np.array(rows, np.int64))) == [RECORDS[r] for r in rows]


def test_a_new_field_is_spliced_in_before_the_brace() -> None:
    batch = batch_of().with_column("k", pa.array([0.5, 1.0, 2.0, None, 4.25, 5e-7, 6.0, 7.0]))
    assert lines(batch) == [
        RECORDS[0][:-1] + b',"k":0.5}',
        b'  {"text":"b","id":2,"k":1.0}\t ',
        b'{"k":2.0}',
        b"{ }",
        b'{"id":3,"id":33,"text":"dup","k":4.25}',
        b'{"te\\u0078t":"escaped key","n":NaN,"k":5e-7}',
        '{"é":"ü","text":null,"k":6.0}'.encode(),
        b'{"nest":[],"x":12345678901234567890123,"k":7.0}',
    ]


def test_two_new_fields_keep_their_order() -> None:
    batch = batch_of([b"{}", b'{"a":1}']).with_column("y", ["1", None]).with_column("x", [True, False])
    assert lines(batch) == [b'{"y":"1","x":true}', b'{"a":1,"x":false}']


def test_only_values_that_changed_are_written_anew() -> None:
    batch = batch_of()
    texts = batch.column("text").to_pylist()
    texts[1], texts[5], texts[2] = 'new "b"\n', "é", "added"
    assert lines(batch.with_column("text", pa.array(texts, pa.string()))) == [
        RECORDS[0],
        b'  {"text":"new \\"b\\"\\n","id":2}\t ',
        b'{"text":"added"}',
        b"{ }",
        RECORDS[4],
        '{"te\\u0078t":"é","n":NaN}'.encode(),
        RECORDS[6],
        RECORDS[7],
    ]


def test_of_duplicate_keys_the_last_one_is_changed() -> None:
    batch = batch_of([b'{"id":3,"id":33}'])
    assert lines(batch.with_column("id", [4])) == [b'{"id":3,"id":4}']
    assert lines(batch.with_column("id", [4]).with_column("k", [1])) == [b'{"id":3,"id":4,"k":1}']
    assert lines(batch.with_column("k", [1]).drop_columns(["zzz"])) == [b'{"id":33,"k":1}']


@pytest.mark.parametrize(
    ("records", "new", "expected"),
    [
        ([b'{"x":1}', b'{"x":2}'], pa.array([1.0, 3.0]), [b'{"x":1}', b'{"x":3.0}']),
        ([b'{"x":1}', b'{"x":2}'], pa.array([1.0, 2.5]), [b'{"x":1}', b'{"x":2.5}']),
        ([b'{"x":1}', b'{"x":2}'], pa.array([1, 2], pa.int8()), [b'{"x":1}', b'{"x":2}']),
        ([b'{"x":1}', b'{"x":2}'], pa.array(["1", "2"]), [b'{"x":"1"}', b'{"x":"2"}']),
        ([b'{"x":true}', b'{"x":null}'], pa.array([1, None]), [b'{"x":1}', b'{"x":null}']),
        ([b'{"x":1.0}', b"{}"], pa.array([True, None]), [b'{"x":true}', b"{}"]),
        ([b'{"x":"a"}', b'{"x":"b"}'], pa.array([None, "b"]), [b'{"x":null}', b'{"x":"b"}']),
        ([b'{"x":1}', b'{"x":"b"}'], pa.array(["1", "c"]), [b'{"x":"1"}', b'{"x":"c"}']),
        ([b'{"x":{"a": 1}}', b'{"x":{"b":2}}'], pa.array([{"a": 1}, {"a": 3}]), [b'{"x":{"a": 1}}', b'{"x":{"a":3}}']),
        (
            [b'{"x":[1, 2]}', b'{"x":[]}'],
            pa.array([[1, 2], [3]], pa.large_list(pa.int32())),
            [b'{"x":[1, 2]}', b'{"x":[3]}'],
        ),
        (
            [b'{"x":9007199254740993}', b'{"x":1}'],
            pa.array([9007199254740992.0, 1.0]),
            [b'{"x":9.007199254740992e+15}', b'{"x":1}'],
        ),
    ],
)
def test_what_counts_as_a_change(records: list[bytes], new: pa.Array, expected: list[bytes]) -> None:
    assert lines(batch_of(records).with_column("x", new)) == expected
    assert lines(batch_of(records).with_column("x", new).drop_columns(["other"])) == expected


def test_fields_that_stay_keep_their_text_and_order_when_others_go() -> None:
    batch = batch_of().drop_columns(["id"])
    assert lines(batch) == [
        b'{"text":"a\\u00e9\\/","n":1.50,"nest":{"b": [1,  2], "a": null}}',
        b'{"text":"b"}',
        b"{}",
        b"{}",
        b'{"text":"dup"}',
        b'{"text":"escaped key","n":NaN}',
        '{"é":"ü","text":null}'.encode(),
        b'{"nest":[],"x":12345678901234567890123}',
    ]


def test_select_and_change_at_once() -> None:
    batch = (
        batch_of(RECORDS[:2])
        .with_column("text", ["new", "b"])
        .with_column("k", [None, 7])
        .select(["nest", "k", "text"])
    )
    assert lines(batch) == [b'{"text":"new","nest":{"b": [1,  2], "a": null}}', b'{"text":"b","k":7}']


def test_a_dropped_field_that_comes_back_is_new() -> None:
    batch = batch_of([b'{"a":1,"b":2}']).drop_columns(["a"]).with_column("a", [5])
    assert json.loads(lines(batch)[0]) == {"a": 5, "b": 2}


def test_rows_without_a_record_stand_where_they_belong() -> None:
    batch = batch_of([b'{"a": 1}', b'{"a":2, "b":"x"}'])
    batch._rows = np.array([-1, 1, -1, 0, 1])
    batch._columns = {"k": pa.array([1, 2, None, None, 5])}
    assert lines(batch) == [b'{"k":1}', b'{"a":2, "b":"x","k":2}', b"{}", b'{"a": 1}', b'{"a":2, "b":"x","k":5}']
    batch._columns = {"a": pa.array([7, 2, None, 1, 2]), "n": pa.array(["é", None, "y", None, "z"])}
    assert lines(batch) == [
        '{"a":7,"n":"é"}'.encode(),
        b'{"a":2, "b":"x"}',
        b'{"n":"y"}',
        b'{"a": 1}',
        b'{"a":2, "b":"x","n":"z"}',
    ]


def test_rows_of_a_table() -> None:
    table = pa.table({"t": ["a\n", None], "f": [1.0, float("inf")], "d": [datetime.date(2024, 1, 2), None]})
    batch = DocumentBatch.over(TableBlock(table), np.array([1, 0]))
    assert lines(batch) == [b'{"t":null,"f":Infinity,"d":null}', b'{"t":"a\\n","f":1.0,"d":"2024-01-02"}']


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (pa.array([1, None, -5], pa.int16()), ["1", "null", "-5"]),
        (pa.array([2**64 - 1], pa.uint64()), ["18446744073709551615"]),
        (pa.array([True, None, False]), ["true", "null", "false"]),
        (pa.array([1.0, None, float("nan"), 1e22, -0.0]), ["1.0", "null", "NaN", "1e+22", "-0.0"]),
        (pa.array([0.1], pa.float32()), ["0.10000000149011612"]),
        (pa.array([], pa.float64()), []),
        (pa.nulls(2), ["null", "null"]),
        (pa.array(["é", None, 'a"b']).slice(1), ["null", '"a\\"b"']),
        (pa.array(["a", "b", "a"]).dictionary_encode(), ['"a"', '"b"', '"a"']),
        (pa.array([b"\xff\x00"]), ['"/wA="']),
        (pa.array([decimal.Decimal("1.10")]), ['"1.10"']),
        (pa.array([datetime.datetime(2024, 1, 2, 3, 4, 5)]), ['"2024-01-02T03:04:05"']),
        (pa.array([[{"a": None}], None]), ['[{"a":null}]', "null"]),
    ],
)
def test_literals(array: pa.Array, expected: list[str]) -> None:
    data, offsets = literals_of(array)
    assert [data[offsets[i] : offsets[i + 1]].tobytes().decode() for i in range(len(array))] == expected


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.floats() | st.integers(-(10**20), 10**20).map(float) | st.none(), max_size=20))
def test_literals_of_floats_read_as_the_same_floats(floats: list[float | None]) -> None:
    data, offsets = literals_of(pa.array(floats, pa.float64()))
    read = [json.loads(data[offsets[i] : offsets[i + 1]].tobytes()) for i in range(len(floats))]
    assert [repr(v) for v in read] == [repr(v) for v in floats]


values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False),
    st.text(max_size=8),
    st.lists(st.integers(0, 5), max_size=2),
    st.just({"k": [1, {"z": "y"}]}),
)
names = st.sampled_from(["a", "b", 'q"', "é", ""])


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[bytes], list[int], list[tuple[str, str, list[str | None]]]]:
    """Draw records, rows of them, and changes to fields: set to texts, dropped or selected."""
    records = []
    for _ in range(draw(st.integers(1, 4))):
        text = json.dumps(
            draw(st.dictionaries(names, values, max_size=4)),
            ensure_ascii=draw(st.booleans()),
            separators=draw(st.sampled_from([(",", ":"), (" , ", " : ")])),
        )
        records.append(draw(st.sampled_from(["", " ", "\t"])).encode() + text.encode("utf-8", "surrogatepass"))
    rows = draw(st.lists(st.integers(0, len(records) - 1), max_size=6))
    edits = []
    for _ in range(draw(st.integers(0, 3))):
        what = draw(st.sampled_from(["set", "set", "drop"]))
        column = draw(st.lists(st.none() | st.text(max_size=4), min_size=len(rows), max_size=len(rows)))
        edits.append((what, draw(st.sampled_from(["a", "b", "é", "new"])), column))
    return records, rows, edits


@settings(max_examples=examples(400), deadline=None)
@given(cases())
def test_output_reads_as_the_expected_dictionaries(
    case: tuple[list[bytes], list[int], list[tuple[str, str, list[str | None]]]],
) -> None:
    records, rows, edits = case
    batch = batch_of(records).take(np.array(rows, np.int64))
    expected: list[dict[str, Any]] = [json.loads(records[r]) for r in rows]
    touched = set()
    for what, name, column in edits:
        touched.add(name)
        if what == "drop":
            batch = batch.drop_columns([name])
            expected = [{k: v for k, v in d.items() if k != name} for d in expected]
            continue
        batch = batch.with_column(name, pa.array(column, pa.large_string()))
        for wanted, value in zip(expected, column, strict=True):
            if name in wanted or value is not None:
                wanted[name] = value
    found = lines(batch)
    for line, wanted, row in zip(found, expected, rows, strict=True):
        got = json.loads(line)
        for name in touched & wanted.keys() & got.keys():
            # Text that equals the canonical text of the old value is no change: the old value stands.
            if got[name] != wanted[name]:
                assert got[name] == json.loads(records[row])[name]
                wanted[name] = got[name]
        # An old value that is dropped and set to null afterwards may stay away: absent and null mean the same.
        assert {k: v for k, v in got.items() if k not in touched or v is not None} == {
            k: v for k, v in wanted.items() if k not in touched or v is not None
        }
        kept = [m for m in raw_members(records[row]) if m[0] not in touched]
        assert [m for m in raw_members(line) if m[0] not in touched] == kept
    if not edits:
        assert found == [records[r] for r in rows]


def test_records_as_they_are_keep_their_hash() -> None:
    block = JsonlBlock.parse(np.frombuffer(b'{"a": 1}\n{"a": 2}\r\n\n{"a": 3}', np.uint8))
    batch = DocumentBatch.over(block, np.array([2, 0, 1, 1]))
    plain = encode_jsonl(batch).content_hash()
    block.identity()
    known = encode_jsonl(batch)
    assert known.hashes is not None
    assert [h.tolist() for h in known.content_hash()] == [h.tolist() for h in plain]
    changed = encode_jsonl(batch.with_column("b", pa.array([1, 2, 3, 4])))
    lines = changed.data.tobytes().splitlines()
    twin = JsonlBlock.parse(changed.data).identity()  # records that were edited have another
    assert (len(lines), [h.tolist() for h in changed.content_hash()]) == (4, [h.tolist() for h in twin])


def test_what_a_stage_says_it_left_alone_is_written_as_it_was() -> None:
    """With and without a list of the changed values the bytes and hashes are the same."""
    lines = [b'{"a":%d, "text":"caf\\u00e9 %d" }' % (i, i) for i in range(12)] + [
        b'{"a":12}',
        b'{"text":null}',
        b'{"text":5}',
    ]
    block = JsonlBlock.parse(np.frombuffer(b"\n".join(lines) + b"\n", np.uint8))
    block.identity()
    batch = DocumentBatch.over(block, np.arange(15))
    texts = batch.texts("text").to_pylist()
    new = [*texts[:2], "new", *texts[3:7], "caf\u00e9 7", *texts[8:]]  # the eighth is written again, and is what it was
    changed = np.zeros(15, bool)
    changed[[2, 7]] = True
    told = batch.with_texts("text", pa.array(new, pa.large_string()), changed=changed)
    plain = batch.with_texts("text", pa.array(new, pa.large_string()))
    expected = [*lines[:2], b'{"a":2, "text":"new" }', *lines[3:]]
    for made in (told, plain, told.take(np.arange(15)), told.with_texts("text", told.texts("text"))):
        encoded = encode_jsonl(made)
        assert encoded.data.tobytes().splitlines() == expected
        starts = encoded.offsets[:-1]
        fresh = hash128.hash_spans(encoded.data, starts, encoded.offsets[1:] - starts - 1)
        assert all(np.array_equal(a, b) for a, b in zip(encoded.content_hash(), fresh, strict=True))
    few = told.take(np.array([2, 3, 11]))
    assert encode_jsonl(few).data.tobytes().splitlines() == [expected[i] for i in (2, 3, 11)]
    again = told.with_texts("text", pa.array(["other", *new[1:]], pa.large_string()), changed=np.arange(15) == 0)
    assert encode_jsonl(again).data.tobytes().splitlines() == [b'{"a":0, "text":"other" }', *expected[1:]]
    added = told.with_column("n", pa.array([None, 1, *[None] * 13]), np.zeros(15, bool))
    assert encode_jsonl(added).data.tobytes().splitlines()[:2] == [
        expected[0],
        b'{"a":1, "text":"caf\\u00e9 1" ,"n":1}',
    ]
