"""Keyword arguments that the original documents for readers, writers and helpers."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest

from tamis import InProcessExecutor, Pipeline
from tamis.errors import UsageError
from tamis.stages.text.deduplication.removal import TextDuplicatesRemovalStage
from tamis.stages.text.deduplication.removal_workflow import TextDuplicatesRemovalWorkflow
from tamis.stages.text.io.reader import JsonlReader, ParquetReader
from tamis.stages.text.io.writer import JsonlWriter, ParquetWriter
from tamis.stages.text.modules.add_id import AddId
from tamis.stages.text.modules.joiner import DocumentJoiner
from tamis.stages.text.utils.constants import regex_url
from tamis.stores import options
from tamis.tasks import DocumentBatch, FileGroupTask
from tamis.utils.split_large_files import split_jsonl_file_by_size, split_parquet_file_by_size


def run(*stages: Any) -> list[Any]:
    return Pipeline("options", stages=list(stages)).run(InProcessExecutor(), progress=False)


@pytest.fixture
def source(tmp_path: Path) -> str:
    (tmp_path / "in").mkdir()
    lines = [json.dumps({"id": f"{i:03}", "n": i, "text": "word"}) + "\n" for i in range(25)]
    (tmp_path / "in/a.jsonl").write_text("".join(lines))
    return str(tmp_path / "in")


def test_row_groups_have_as_many_rows_as_requested(source: str, tmp_path: Path) -> None:
    writer = ParquetWriter(str(tmp_path / "out"), write_kwargs={"row_group_size": 10}, file_extension="pq")
    (task,) = run(JsonlReader(source), writer)
    assert task.data[0].endswith(".pq")
    file = pq.ParquetFile(task.data[0])
    assert [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)] == [10, 10, 5]
    (again,) = run(ParquetReader(str(tmp_path / "out"), file_extensions=[".pq"]))
    assert again.data["n"].tolist() == list(range(25))
    batch = DocumentBatch("now", pd.DataFrame({"n": range(7)}))
    now = ParquetWriter(str(tmp_path / "now"), write_kwargs={"row_group_size": 3}).process(batch)
    assert pq.ParquetFile(now.data[0]).num_row_groups == 3
    with pytest.raises(UsageError, match="row_group_size"):
        ParquetWriter(str(tmp_path / "x"), write_kwargs={"row_group_size": 0})


def test_types_of_columns_are_declared_as_in_pandas(source: str) -> None:
    reader = JsonlReader(source, read_kwargs={"dtype": {"id": str, "n": "float64"}})
    assert reader.decompose()[1].column_types == {"id": "string", "n": "float64"}
    (task,) = run(reader)
    assert task.data["id"].tolist()[:2] == ["000", "001"]


def test_times_are_written_as_requested_or_refused(tmp_path: Path) -> None:
    frame = pd.DataFrame({"at": pd.to_datetime(["2024-05-06T07:08:09"])})
    frame.to_parquet(tmp_path / "a.parquet")
    writer = JsonlWriter(str(tmp_path / "out"), write_kwargs={"date_format": "iso"})
    (task,) = run(ParquetReader(str(tmp_path / "a.parquet")), writer)
    assert json.loads(Path(task.data[0]).read_text())["at"].startswith("2024-05-06T07:08:09")
    with pytest.raises(UsageError, match="date_format='epoch' is not supported: times are written in ISO 8601"):
        JsonlWriter(str(tmp_path / "x"), write_kwargs={"date_format": "epoch"})


def test_keys_of_a_store_are_kept_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(options.KEYS_VARIABLE, "")
    given = {"key": "AKIAEXAMPLE", "secret": "hush-hush-hush", "client_kwargs": {"region_name": "eu-west-1"}}
    readers = [
        JsonlReader("s3://one/in", storage_options=given),
        ParquetReader("s3://two/in", read_kwargs={"storage_options": given}),
    ]
    writer = JsonlWriter("s3://three/out", write_kwargs={"storage_options": given})
    for bucket in ("one", "two", "three"):
        keys = options.keys_of(bucket)
        assert keys is not None
        assert (keys.key, keys.secret) == ("AKIAEXAMPLE", "hush-hush-hush")
        assert "hush" not in repr(keys)
    assert options.keys_of("four") is None
    for stage in [part for reader in readers for part in [reader, *reader.decompose()]] + [writer]:
        assert "hush" not in repr(vars(stage))
    assert readers[0].decompose()[0].storage_options == {"client_kwargs": {"region_name": "eu-west-1"}}
    for wrong in ({"key": "AKIA"}, {"secret": "x", "key": None}):
        with pytest.raises(UsageError, match="key and secret together"):
            JsonlReader("s3://one/in", storage_options=wrong)
    with pytest.raises(UsageError, match="there is none"):
        JsonlReader("in", storage_options=given)


def test_folders_of_local_paths_are_made_as_the_option_says(source: str, tmp_path: Path) -> None:
    options = {"storage_options": {"auto_mkdir": True}}
    out = str(tmp_path / "new/folder")
    run(JsonlReader(source, read_kwargs=options), JsonlWriter(out, write_kwargs=options))
    assert list((tmp_path / "new/folder").glob("*.jsonl"))
    with pytest.raises(UsageError, match="auto_mkdir is not known"):
        JsonlWriter(out, write_kwargs={"storage_options": {"auto_mkdir": False}})


def test_what_stages_read_and_write_is_listed() -> None:
    assert JsonlReader("in", fields=["a", "b"]).decompose()[-1].outputs() == (["data"], ["a", "b"])
    assert (AddId("id").inputs(), AddId("id").outputs()) == ((["data"], []), (["data"], ["id"]))
    joiner = DocumentJoiner(text_field="t", max_length=3, length_field="n")
    assert joiner.outputs() == (["data"], ["t", "id", "n"])


def test_listed_duplicates_are_removed_without_setup(tmp_path: Path) -> None:
    pd.DataFrame({"id": [2]}).to_parquet(tmp_path / "ids.parquet")
    stage = TextDuplicatesRemovalStage(str(tmp_path / "ids.parquet"), id_field="id")
    left = stage.process(DocumentBatch("d", pd.DataFrame({"id": [1, 2, 3]}), _metadata={"source_files": ["x"]}))
    assert left.data["id"].tolist() == [1, 3]
    assert left._metadata == {"source_files": ["x"], "num_removed": 1}


def test_removal_takes_groups_of_files_instead_of_an_input(source: str, tmp_path: Path) -> None:
    workflow = TextDuplicatesRemovalWorkflow(
        input_path="", ids_to_remove_path=str(tmp_path / "ids"), output_path=str(tmp_path / "left"),
        input_filetype="jsonl", output_filetype="jsonl", id_field="id", duplicate_id_field="id",
    )  # fmt: skip
    (tmp_path / "ids").mkdir()
    path = next(Path(source).rglob("*.jsonl"))
    ids = [json.loads(line)["id"] for line in path.read_text().splitlines()]
    pd.DataFrame({"id": ids[:1]}).to_parquet(tmp_path / "ids/a.parquet")
    result = workflow.run(InProcessExecutor(), initial_tasks=[FileGroupTask("d", [str(path)])], progress=False)
    assert [task._metadata["num_removed"] for task in result.pipeline_tasks["removal"]] == [1]


def test_helpers_have_their_names() -> None:
    assert callable(split_jsonl_file_by_size.remote)
    assert callable(split_parquet_file_by_size.remote)
    assert isinstance(regex_url, re.Pattern)
    assert regex_url.findall("see https://a.org/x?y=1 and http://b.org") == ["https://a.org/x?y=1", "http://b.org"]
    batch = DocumentBatch("set", pd.DataFrame({"text": ["a", "b"]}), task_id="7")
    assert AddId("id", id_prefix="p").process(batch).data["id"].tolist() == ["p_7_0", "p_7_1"]
