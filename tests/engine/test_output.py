"""Parquet output: one schema for all files of a run, whatever the cut into partitions; declared schemas."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tamis import InProcessExecutor, LocalExecutor, Pipeline
from tamis.engine.run.run_result import RunResult
from tamis.stages.base import ProcessingStage
from tamis.stages.text.io.reader import JsonlReader, ParquetReader
from tamis.stages.text.io.writer import JsonlWriter, ParquetWriter
from tamis.tasks import DocumentBatch


def cut_into(folder: Path, lines: list[str], n_lines: int) -> Path:
    """Make a folder of files of `n_lines` lines each; each becomes a partition."""
    folder.mkdir()
    for i in range(0, len(lines), n_lines):
        (folder / f"{i:06d}.jsonl").write_text("".join(line + "\n" for line in lines[i : i + n_lines]))
    return folder


def convert(source: Path, target: Path, executor: Any = None, **writer: Any) -> RunResult:
    pipeline = Pipeline(
        "convert", stages=[JsonlReader(str(source), files_per_partition=1), ParquetWriter(str(target), **writer)]
    )
    result = pipeline.execute(executor or InProcessExecutor(), memory="512MB")
    assert (result.status, result.exit_code) == ("finished", 0), result.message
    return result


def test_documents_without_fields_are_not_lost(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text("{}\n{ }\n")
    convert(tmp_path / "in.jsonl", tmp_path / "out")
    assert outcome(tmp_path / "out")[1] == {'{"_tamis_no_fields": null}': 2}


class LongOnes(ProcessingStage[DocumentBatch, DocumentBatch]):
    name = "long_ones"

    def process(self, task: DocumentBatch) -> DocumentBatch:
        return task.filter(np.array([len(text) > 3 for text in task.values("text")]))


@pytest.mark.parametrize("n_lines", [2, 5, 40])
def test_a_field_that_only_dropped_documents_have_is_no_column(tmp_path: Path, n_lines: int) -> None:
    """The output is that of a separate filter run, whatever the cut and whichever partitions lose documents."""
    records = [{"text": "long text"} if i % 4 == 0 or i > 35 else {"text": "x", "extra": i} for i in range(40)]
    source = cut_into(tmp_path / "in", [json.dumps(r) for r in records], n_lines)
    (tmp_path / "apart").mkdir()
    for first, writer in ((tmp_path / "one", ParquetWriter), (tmp_path / "apart" / "kept", JsonlWriter)):
        stages = [JsonlReader(str(source), files_per_partition=1), LongOnes(), writer(str(first))]
        assert Pipeline("p", stages=stages).execute(InProcessExecutor(), memory="512MB").exit_code == 0
    convert(tmp_path / "apart" / "kept", tmp_path / "two")
    one, two = outcome(tmp_path / "one"), outcome(tmp_path / "two")
    assert one[:2] == two[:2]
    assert one[0] == {"text: large_string"}


def outcome(folder: Path) -> tuple[set[str], Counter[str], int]:
    """(schemas, rows as text, files) of a folder of Parquet files."""
    paths = sorted(folder.glob("*.parquet"))
    tables = [pq.read_table(p) for p in paths]
    rows: Counter[str] = Counter()
    for table in tables:
        rows.update(json.dumps(row, sort_keys=True) for row in table.to_pylist())
    return {str(t.schema.remove_metadata()) for t in tables}, rows, len(paths)


big = st.sampled_from([2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), 10**30])
leaf = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    big,
    st.sampled_from([0.5, -0.0, 1.0, 1e300]),
    st.sampled_from(["a", "", "é", "1"]),
)
value = st.recursive(
    leaf,
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.sampled_from("pq"), inner, max_size=2)),
    max_leaves=4,
)
drifting = st.sampled_from(
    [leaf, value, st.integers(-3, 3), big, st.floats(allow_nan=False), st.lists(st.integers(0, 9) | big)]
)


@st.composite
def files(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Make records whose columns drift: each column draws its values from few kinds."""
    kinds = {name: [draw(drifting) for _ in range(draw(st.integers(1, 2)))] for name in ("x", "y")}
    records = []
    for _ in range(draw(st.integers(1, 8))):
        names = draw(st.sets(st.sampled_from(sorted(kinds))))
        records.append({n: draw(draw(st.sampled_from(kinds[n]))) for n in sorted(names)})
    return records


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(files())
@example([{"x": {}}, {"x": {"p": 1}}, {"y": [{}]}, {"y": [{"q": "a"}]}])
@example([{"x": 2**63}, {"x": 1}, {"x": 2}, {"y": [2**63]}, {"y": [1]}])
@example([{"x": 2**53 + 1}, {"x": 0.5}, {"y": [2**53 + 1]}, {"y": [0.5]}])
@example([{"x": {"p": 1}}, {"x": {"p": "a"}}, {"x": "text"}])
@example([{"x": 1.0}, {"x": -0.0}, {"x": True}])
@example([{"x": 10**30}, {"x": {"p": 10**30}}])
@example([{}, {"x": 1}])
@example([{"x": []}, {"x": [None]}, {"x": [[1]]}])
def test_schema_and_rows_do_not_depend_on_the_cut(records: list[dict[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lines, outcomes = [json.dumps(r) for r in records], []
        for n_lines in (len(records), 2, 1):
            convert(cut_into(folder / f"in{len(outcomes)}", lines, n_lines), folder / f"out{len(outcomes)}")
            outcomes.append(outcome(folder / f"out{len(outcomes)}"))
    assert (outcomes[0][2], outcomes[2][2]) == (1, len(records))
    assert len(outcomes[0][0]) == 1
    assert outcomes[1][:2] == outcomes[0][:2]
    assert outcomes[2][:2] == outcomes[0][:2]
    assert sum(outcomes[2][1].values()) == len(records)


DRIFT = [
    {"id": i, "v": [i, float(i) / 2, str(i), {"k": i}, 2**63 + i][i // 200], "w": {"a": i} if i % 2 else {}}
    for i in range(1000)
]


def test_local_workers_agree_with_one_process(tmp_path: Path) -> None:
    lines = [json.dumps(r) for r in DRIFT]
    convert(cut_into(tmp_path / "in1", lines, 1000), tmp_path / "one")
    result = convert(cut_into(tmp_path / "in2", lines, 90), tmp_path / "many", LocalExecutor())
    one, many = outcome(tmp_path / "one"), outcome(tmp_path / "many")
    assert many[:2] == one[:2]
    assert (one[2], many[2]) == (1, 12)
    assert result.ledger.problems() == []
    names = {f.name for f in result.files}
    assert names == {p.name for p in (tmp_path / "many").glob("*.parquet")}
    assert many[0] == {"id: int64\nv: large_string\nw: struct<a: int64>\n  child 0, a: int64"}


def test_the_content_hash_is_that_of_the_files_as_they_are(tmp_path: Path) -> None:
    lines, hashes = [json.dumps(r) for r in DRIFT], []
    for n_lines in (1000, 150):
        result = convert(cut_into(tmp_path / f"in{n_lines}", lines, n_lines), tmp_path / f"out{n_lines}")
        assert sum(int(f.content or "0", 16) for f in result.files) % (1 << 128) == result.ledger.content.identity
        hashes.append(result.ledger.content.identity)
    assert hashes[0] == hashes[1]


def test_types_that_a_table_has_are_kept(tmp_path: Path) -> None:
    table = pa.table(
        {
            "i": pa.array([1, 2], pa.int16()),
            "f": pa.array([0.5, None], pa.float32()),
            "t": pa.array([0, 1], pa.timestamp("ms")),
        }
    )
    pq.write_table(table, tmp_path / "in.parquet")
    pipeline = Pipeline(
        "copy", stages=[ParquetReader(str(tmp_path / "in.parquet")), ParquetWriter(str(tmp_path / "out"))]
    )
    assert pipeline.execute(InProcessExecutor(), memory="512MB").exit_code == 0
    copy = pq.read_table(next((tmp_path / "out").glob("*.parquet")))
    assert {f.name: str(f.type) for f in copy.schema} == {"i": "int16", "f": "float", "t": "timestamp[ms]"}
    assert copy.to_pylist() == [{k: row[k] for k in ("f", "i", "t")} for row in table.to_pylist()]


def test_fields_of_the_writer_lead_in_their_order(tmp_path: Path) -> None:
    source = cut_into(tmp_path / "in", ['{"a":1,"b":"x","c":2}', '{"a":1.5,"b":"y"}'], 1)
    convert(source, tmp_path / "out", fields=["b", "a"])
    assert outcome(tmp_path / "out")[0] == {"b: large_string\na: double"}


@pytest.mark.parametrize("n_lines", [7, 1])
def test_rows_that_do_not_fit_a_declared_schema_are_dropped_with_a_reason(tmp_path: Path, n_lines: int) -> None:
    lines = ['{"n":1,"t":"a","more":[1]}', '{"n":2.0,"t":5}', '{"n":1.5,"t":"c"}', '{"n":"3"}', '{"n":null,"t":"e"}']
    lines += ['{"n":true,"t":"f"}', '{"n":{"x":1}}']
    result = convert(cut_into(tmp_path / "in", lines, n_lines), tmp_path / "out", schema={"n": "int64", "t": "string"})
    schemas, rows, _ = outcome(tmp_path / "out")
    assert len(schemas) == 1
    assert schemas.pop().startswith("n: int64\nt: ")
    assert sorted(rows) == sorted(
        ['{"n": 1, "t": "a"}', '{"n": 2, "t": "5"}', '{"n": 3, "t": null}', '{"n": null, "t": "e"}']
    )
    assert result.ledger.problems() == []
    book = next(b for b in result.ledger.stages if b.name == "declared schema")
    assert (book.into.n, book.out.n, sum(t.n for t in book.dropped.values())) == (7, 4, 3)
    assert result.ledger.n_dropped == 3
    assert sorted(reason.split(",")[0] for reason in book.dropped) == ["field 'n': expected int64"] * len(book.dropped)


@pytest.mark.parametrize("n_lines", [4, 1])
def test_a_declared_nested_column_takes_what_each_record_says(tmp_path: Path, n_lines: int) -> None:
    lines = ['{"x":{"a":1}}', '{"x":"text"}', '{"x":{"a":"2"}}', '{"x":{"a":[]}}']
    result = convert(cut_into(tmp_path / "in", lines, n_lines), tmp_path / "out", schema={"x": "struct<a: int64>"})
    assert sorted(outcome(tmp_path / "out")[1]) == ['{"x": {"a": 1}}', '{"x": {"a": 2}}']
    assert result.ledger.n_dropped == 2
    assert result.ledger.problems() == []


def test_jsonl_from_jsonl_is_byte_for_byte(tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_bytes(b'{"a": 1.50}\r\n\n {"b":"\\u00e9"}')
    pipeline = Pipeline("copy", stages=[JsonlReader(str(source)), JsonlWriter(str(tmp_path / "out"))])
    result = pipeline.execute(InProcessExecutor(), memory="512MB")
    assert result.exit_code == 0
    written = b"".join(p.read_bytes() for p in sorted((tmp_path / "out").glob("*.jsonl")))
    assert written == b'{"a": 1.50}\n {"b":"\\u00e9"}\n'
