"""Readers and writers as descriptions: what they accept, what they refuse, what they decompose into."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from tamis import InProcessExecutor, Pipeline
from tamis.errors import UsageError
from tamis.stages.client_partitioning import ClientPartitioningStage
from tamis.stages.file_partitioning import FilePartitioningStage
from tamis.stages.text.io.formats import output_format, writer_of
from tamis.stages.text.io.reader import DocumentReader, JsonlReader, JsonlReaderStage, ParquetReader, ParquetReaderStage
from tamis.stages.text.io.writer import JsonlWriter, ParquetWriter
from tamis.tasks import DocumentBatch, EmptyTask, FileGroupTask, Task


def test_a_reader_is_a_partitioning_and_a_reading_stage() -> None:
    source, reading = JsonlReader("in/", blocksize="1MB", fields=["text"]).decompose()
    assert isinstance(source, FilePartitioningStage)
    assert (source.is_source_stage, source.partition_bytes, source.resources.cpus, source.num_workers()) == (
        True,
        1_000_000,
        0.5,
        1,
    )
    assert (reading.name, reading.fields, reading.formats) == ("jsonl_reader", ["text"], ("jsonl",))  # type: ignore[attr-defined]
    assert ParquetReader("in/").decompose()[1].formats == ("parquet",)  # type: ignore[attr-defined]
    assert DocumentReader("in/").decompose()[1].formats == ("jsonl", "parquet", "arrow", "warc")  # type: ignore[attr-defined]


def test_readers_and_writers_at_every_path_that_users_know() -> None:
    from tamis.stages.text import io
    from tamis.stages.text.io.reader.jsonl import JsonlReader as FromJsonl
    from tamis.stages.text.io.reader.parquet import ParquetReader as FromParquet
    from tamis.stages.text.io.writer.jsonl import JsonlWriter as ToJsonl
    from tamis.stages.text.io.writer.parquet import ParquetWriter as ToParquet

    assert (io.JsonlReader, io.ParquetReader) == (JsonlReader, ParquetReader) == (FromJsonl, FromParquet)
    assert (io.JsonlWriter, io.ParquetWriter) == (JsonlWriter, ParquetWriter) == (ToJsonl, ToParquet)


def test_endings_that_are_read() -> None:
    jsonl = JsonlReader("in/").decompose()[0].suffixes()  # type: ignore[attr-defined]
    assert {".jsonl", ".jsonl.gz", ".json.zst", ".ndjson.xz", ".jsonl.bz2"} <= set(jsonl)
    assert ".parquet" not in jsonl
    assert ParquetReader("in/").decompose()[0].suffixes() == (".parquet", ".pq")  # type: ignore[attr-defined]
    assert ".txt.gz" in FilePartitioningStage("in/", file_extensions=["txt"]).suffixes()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"blocksize": "1MB", "files_per_partition": 2}, "files_per_partition or blocksize, not both"),
        ({"blocksize": "1 XB"}, "blocksize: cannot read"),
        ({"files_per_partition": 0}, "files_per_partition: expected a whole number of at least 1"),
        ({"limit": 0}, "limit: expected a whole number of at least 1"),
        ({"fields": "text"}, "fields must be a list of field names"),
        ({"fields": []}, "fields must be a list of field names"),
        ({"fields": [1]}, "fields must be a list of field names"),
        ({"read_kwargs": {"engine": "x"}}, "unknown engine 'x'"),
        ({"read_kwargs": {"nrows": 3}}, r"unknown read_kwargs \['nrows'\]"),
        ({"read_kwargs": {"lines": False}}, "lines=False is not supported: a record is one line"),
        ({"read_kwargs": {"compression": "gzip"}}, "compression"),
        ({"task_type": "image"}, "task_type must be 'document'"),
        ({"storage_options": {"key": 1}}, "storage_options: give key and secret together, or neither"),
        ({"file_paths": ""}, "file_paths is empty"),
        ({"file_paths": []}, "file_paths is empty"),
        (
            {"file_paths": 2024},
            r"file_paths: expected a path or a list of paths, got 2024; .* as ./2024 on the command line",
        ),
    ],
)
def test_mistakes_in_a_reader_are_found_when_it_is_made(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        JsonlReader(**{"file_paths": "in/", **arguments})


def test_a_reader_stage_reads_whole_files_outside_of_a_run(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": t, "n": 1}) + "\n" for t in "xy"))
    reading = JsonlReader(str(tmp_path), fields=["text"]).decompose()[1]
    batch = reading.process(FileGroupTask("set", [str(tmp_path / "a.jsonl")]))
    assert (batch.dataset_name, batch.get_columns(), batch.column("text").to_pylist()) == ("set", ["text"], ["x", "y"])


def test_a_partitioning_stage_groups_whole_files_when_it_is_called_itself(tmp_path: Path) -> None:
    for i in range(10):
        (tmp_path / f"{i}.jsonl").write_text("{}\n" * (i + 1))
    (tmp_path / "x.txt").write_text("no")

    def groups(**options: Any) -> list[list[str]]:
        tasks = FilePartitioningStage(str(tmp_path), **options).process(EmptyTask("set"))
        assert [t._metadata["partition_index"] for t in tasks] == list(range(len(tasks)))
        return [[Path(p).stem for p in t.data] for t in tasks]

    assert groups(files_per_partition=3) == [["0", "1", "2"], ["3", "4", "5"], ["6", "7", "8"], ["9"]]
    assert groups(blocksize=45) == [["0", "1", "2", "3", "4"], ["5", "6"], ["7"], ["8"], ["9"]]
    assert groups(limit=2) == [["0"], ["1"]]


def test_a_client_partitioning_stage_reads_what_a_list_names(tmp_path: Path) -> None:
    (tmp_path / "in/sub").mkdir(parents=True)
    for name in ("a.jsonl", "b.jsonl", "sub/c.jsonl", "d.txt"):
        (tmp_path / "in" / name).write_text('{"text": "x"}\n')
    names = tmp_path / "list.json"

    def stage(listed: Any) -> ClientPartitioningStage:
        names.write_text(json.dumps(listed))
        return ClientPartitioningStage(str(tmp_path / "in"), input_list_json_path=str(names), files_per_partition=1)

    made = stage([str(tmp_path / "in/sub/c.jsonl"), "a.jsonl", "a.jsonl", "d.txt"])
    assert [t.data for t in made.process(EmptyTask())] == [
        [str(tmp_path / "in/a.jsonl")],
        [str(tmp_path / "in/sub/c.jsonl")],
    ]
    for listed, message in (
        (["../x.jsonl"], "is not below"),
        (["/etc/passwd"], "is not below"),
        ({}, "a list of at least one path"),
        ([1], "a list of at least one path"),
    ):
        with pytest.raises(UsageError, match=message):
            stage(listed)
    with pytest.raises(UsageError, match="expected a JSON file"):
        ClientPartitioningStage(str(tmp_path / "in"), input_list_json_path=str(tmp_path / "none.json"))
    assert len(ClientPartitioningStage(str(tmp_path / "in")).process(EmptyTask())) == 3
    assert ClientPartitioningStage("in/").name == "client_partitioning"


def test_a_writer_and_what_it_writes(tmp_path: Path) -> None:
    writer = JsonlWriter(str(tmp_path / "out"), file_extension=".jsonl.gz", fields=["text"])
    assert (writer.file_extension, writer.codec, writer.format, writer.is_sink_stage) == (
        "jsonl.gz",
        "gz",
        "jsonl",
        True,
    )
    assert (JsonlWriter("out").path, JsonlWriter("out").codec) == (str(Path("out").resolve()), None)
    assert (ParquetWriter("out").format, ParquetWriter("out").file_extension) == ("parquet", "parquet")
    with pytest.raises(UsageError, match=r"writes documents \(DocumentBatch\), got Task"):
        writer.process(Task())


@pytest.mark.parametrize(
    ("cls", "more"), [(JsonlWriter, {"write_kwargs": {"compression": "gzip"}}), (ParquetWriter, {})]
)
def test_a_call_of_a_writer_writes(tmp_path: Path, cls: Any, more: dict[str, Any]) -> None:
    batch = DocumentBatch("d", pd.DataFrame({"text": ["a", "\u00fc"], "n": [1, 2]}))
    (path,) = cls(str(tmp_path), fields=["text"], **more).process(batch).data
    found = (JsonlReaderStage if cls is JsonlWriter else ParquetReaderStage)().read_data([path])
    assert found.to_dict("list") == {"text": ["a", "\u00fc"]}
    assert path.endswith(".jsonl.gz" if cls is JsonlWriter else ".parquet")


@pytest.mark.parametrize(
    ("cls", "arguments", "message"),
    [
        (JsonlWriter, {"mode": "sometimes"}, "mode must be one of"),
        (JsonlWriter, {"file_extension": "txt"}, "file_extension must be jsonl"),
        (JsonlWriter, {"file_extension": "jsonl.rar"}, "file_extension must be jsonl"),
        (JsonlWriter, {"write_kwargs": {"orient": "x"}}, "orient='x' is not supported: a record is one object"),
        (JsonlWriter, {"write_kwargs": {"force_ascii": True}}, "force_ascii=True is not supported"),
        (JsonlWriter, {"write_kwargs": {"storage_options": {"key": 1}}}, "give key and secret together"),
        (JsonlWriter, {"write_kwargs": {"double_precision": 3}}, r"unknown write_kwargs \['double_precision'\]"),
        (JsonlWriter, {"path": "https://host/x"}, "cannot write there; give a local folder, or s3://bucket/path"),
        (JsonlWriter, {"fields": "text"}, "fields must be a list"),
        (ParquetWriter, {"file_extension": "csv"}, "file_extension must be parquet"),
        (ParquetWriter, {"write_kwargs": {"compression": "rar"}}, "compression must be one of zstd"),
        (ParquetWriter, {"schema": {"n": int}}, "schema maps column names to type names"),
    ],
)
def test_mistakes_in_a_writer_are_found_when_it_is_made(cls: Any, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        cls(**{"path": "out", **arguments})


def test_the_format_of_the_output_is_that_of_the_input(tmp_path: Path) -> None:
    def of(*names: str) -> tuple[Any, str]:
        folder = tmp_path / "+".join(names)
        folder.mkdir()
        for name in names:
            (folder / name).write_text("")
        return output_format(str(folder))

    assert of("a.jsonl", "b.json") == (JsonlWriter, "jsonl")
    assert of("a.jsonl.zst", "b.ndjson.zst") == (JsonlWriter, "jsonl.zst")
    assert of("a.jsonl.zst", "b.jsonl.gz") == (JsonlWriter, "jsonl")
    assert of("a.jsonl.zst", "b.jsonl") == (JsonlWriter, "jsonl")
    assert of("a.parquet") == (ParquetWriter, "parquet")
    assert of("a.parquet", "b.jsonl") == (JsonlWriter, "jsonl")
    with pytest.raises(UsageError, match="no input files"):
        output_format(str(tmp_path / "absent*.jsonl"))


@pytest.mark.parametrize("name", ["jsonl", "jsonl.gz", "parquet", "arrow"])
def test_write_data_outside_of_a_run_writes_the_format_of_the_writer(name: str, tmp_path: Path) -> None:
    batch = DocumentBatch(data=pa.table({"text": ["a", "b"], "n": [1, 2]}))
    path = str(tmp_path / f"out.{name}")
    writer_of(name)(str(tmp_path), file_extension=name).write_data(batch, path)
    batches = Pipeline("read", stages=[DocumentReader(path)]).run(InProcessExecutor())
    assert [row for b in batches for row in b.to_pyarrow().select(["text", "n"]).to_pylist()] == [
        {"text": "a", "n": 1},
        {"text": "b", "n": 2},
    ]
