"""Parquet to Parquet looks as it did: order of columns, types, metadata."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tamis import InProcessExecutor, Pipeline
from tamis.formats.schema.run_schema import output_schema, to_output_schema
from tamis.stages.text.filters import ScoreFilter
from tamis.stages.text.filters.heuristic import WordCountFilter
from tamis.stages.text.io.reader import ParquetReader
from tamis.stages.text.io.writer import ParquetWriter

FEATURES = {b"huggingface": b'{"info": {"features": {}}}'}
TABLE = pa.table(
    {
        "z": pa.array([1, 2], pa.int32()),
        "text": pa.array(["a b", "c"], pa.string()),
        "kind": pa.array(["x", "y"]).dictionary_encode(),
        "tags": pa.array([["a"], None], pa.list_(pa.string())),
        "at": pa.array([1, 2], pa.timestamp("ms", tz="UTC")),
        "long": pa.array(["q", "r"], pa.large_string()),
        "raw": pa.array([b"q", None], pa.binary()),
        "uuid": pa.array([bytes(range(16)), None], pa.binary(16)).cast(pa.uuid()),
        "view": pa.array(["long enough to lie elsewhere", None], pa.string_view()),
        "bytes": pa.array([b"q", None], pa.binary_view()),
        "pair": pa.array([["a", "b"], None], pa.list_(pa.string(), 2)),
        "uuids": pa.array([[bytes(range(16))], None], pa.list_(pa.binary(16))).cast(pa.list_(pa.uuid())),
        "more": pa.array([{"b": 1, "a": "x"}, None], pa.struct([("b", pa.int16()), ("a", pa.string())])),
    }
).replace_schema_metadata({**FEATURES, b"pandas": b"{}"})


@pytest.fixture
def source(tmp_path: Path) -> str:
    (tmp_path / "in").mkdir()
    pq.write_table(TABLE, tmp_path / "in" / "a.parquet")
    pq.write_table(
        TABLE.drop_columns(["z"]).slice(0, 1), tmp_path / "in" / "b.parquet"
    )  # another schema: files are reconciled
    return str(tmp_path / "in")


def test_what_is_written_looks_like_the_input(source: str, tmp_path: Path) -> None:
    stages = [ParquetReader(source, files_per_partition=1), ScoreFilter(WordCountFilter(1), score_field="words")]
    Pipeline("p", stages=[*stages, ParquetWriter(str(tmp_path / "out"))]).run(InProcessExecutor())
    files = sorted((tmp_path / "out").glob("*.parquet"))
    assert len(files) == 2
    for path in files:
        found = pq.read_schema(path)
        assert found.names == [*TABLE.column_names, "words"]
        assert [f.type for f in found if f.name in TABLE.column_names] == TABLE.schema.types
        assert found.metadata == FEATURES
    assert pq.read_table(files[0]).drop_columns(["words"]).to_pylist() == TABLE.to_pylist()
    assert pq.read_table(files[1])["z"].to_pylist() == [None]


def test_fields_that_the_user_names_lead_in_that_order(source: str, tmp_path: Path) -> None:
    writer = ParquetWriter(str(tmp_path / "out"), fields=["text", "z"])
    Pipeline("p", stages=[ParquetReader(source, files_per_partition=2), writer]).run(InProcessExecutor())
    (path,) = (tmp_path / "out").glob("*.parquet")
    assert pq.read_schema(path).names == ["text", "z"]
    assert pq.read_schema(path).field("text").type == pa.string()


def test_a_type_that_says_something_else_stays() -> None:
    target = pa.schema([("a", pa.large_string()), ("b", pa.int64()), ("c", pa.list_(pa.int64()))])
    model = pa.schema(
        [("b", pa.large_string()), ("c", pa.large_list(pa.int64())), ("a", pa.dictionary(pa.int8(), pa.string()))]
    )
    found = output_schema(target, model)
    assert found == pa.schema(
        [("b", pa.int64()), ("c", pa.large_list(pa.int64())), ("a", pa.dictionary(pa.int32(), pa.string()))]
    )
    table = pa.table({"a": pa.array(["x", None], pa.large_string()), "b": [1, 2], "c": [[1], []]}, schema=target)
    assert to_output_schema(table, found).to_pylist() == [{"b": 1, "c": [1], "a": "x"}, {"b": 2, "c": [], "a": None}]
    assert output_schema(target, None) is target
    lists = pa.schema([("a", pa.list_(pa.large_string())), ("b", pa.list_(pa.int64()))])
    views = pa.schema([("a", pa.list_view(pa.string())), ("b", pa.large_list_view(pa.int64()))])
    assert output_schema(lists, views).types == [pa.list_(pa.string()), pa.large_list(pa.int64())]
