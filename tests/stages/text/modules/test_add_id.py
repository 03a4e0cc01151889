"""Ids: the same for every block size and executor, unique, and never over what is there."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tamis import InProcessExecutor, LocalExecutor, Pipeline
from tamis.engine.worker.apply import identify
from tamis.errors import PipelineError, UsageError
from tamis.stages.text.io.reader import DocumentReader
from tamis.stages.text.io.writer import JsonlWriter
from tamis.stages.text.modules import AddId, DocumentSplitter
from tamis.tasks import DocumentBatch


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    lines = [json.dumps({"n": i, "text": f"a{i}|b|c" if i % 2 else "same"}) for i in range(300)]
    (folder / "a.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "b.jsonl.gz").write_bytes(gzip.compress("\n".join(lines).encode(), mtime=0))
    table = pa.table({"n": list(range(300)), "text": [json.loads(x)["text"] for x in lines]})
    pq.write_table(table, folder / "c.parquet", row_group_size=70)
    return folder


def run(source: Path, output: Path, stages: list[Any], executor: Any = None, **how: Any) -> list[dict[str, Any]]:
    mode = how.pop("mode", "streaming")
    pipeline = Pipeline("ids", stages=[DocumentReader(str(source), **how), *stages, JsonlWriter(str(output))])
    result = pipeline.execute(executor or InProcessExecutor(), memory="512MB", mode=mode)
    assert result.ledger.problems() == []
    return [json.loads(x) for p in sorted(output.glob("*.jsonl")) for x in p.read_bytes().splitlines()]


def test_ids_are_file_and_offset(source: Path, tmp_path: Path) -> None:
    found = run(source, tmp_path / "out", [AddId("id", id_prefix="corpus")])
    raw = (source / "a.jsonl").read_bytes()
    for document in found[:300]:
        prefix, file, offset = document["id"].split("_")
        assert (prefix, file) == ("corpus", "000000")
        assert json.loads(raw[int(offset) :].split(b"\n")[0])["n"] == document["n"]
    assert found[300]["id"] == "corpus_000001_0"
    assert [d["id"] for d in found[600:603]] == ["corpus_000002_0", "corpus_000002_1", "corpus_000002_2"]
    assert len({d["id"] for d in found}) == 900


@pytest.mark.parametrize(
    "how", [{"blocksize": "1KiB"}, {"blocksize": "4KiB"}, {"files_per_partition": 2}, {"mode": "batch"}], ids=str
)
def test_the_same_whatever_the_partitions(source: Path, tmp_path: Path, how: dict[str, Any]) -> None:
    stages = [AddId("id"), DocumentSplitter("|"), AddId("part_id")]
    expected = run(source, tmp_path / "whole", stages)
    found = run(source, tmp_path / "parts", stages, **how)
    assert sorted(map(str, found)) == sorted(map(str, expected))
    assert len({d["part_id"] for d in found}) == len(found) == 3 * (150 + 150 * 3)
    assert sorted(d["part_id"] for d in found if d["id"] == "000002_1") == ["000002_1_0", "000002_1_1", "000002_1_2"]


def test_the_same_from_worker_processes(source: Path, tmp_path: Path) -> None:
    expected = run(source, tmp_path / "one", [AddId("id")])
    found = run(source, tmp_path / "two", [AddId("id")], LocalExecutor(), blocksize="2KiB")
    assert sorted(map(str, found)) == sorted(map(str, expected))


def test_an_id_that_is_there_is_not_replaced_by_default() -> None:
    batch = DocumentBatch("x", pa.table({"id": ["a", None]}))
    with pytest.raises(PipelineError, match=r"1 of 2 documents already have a field .id.; .* overwrite=True"):
        AddId("id").process(batch)
    replaced = AddId("id", overwrite=True).process(batch).column("id").to_pylist()
    assert replaced == ["_0", "_1"]  # the batch has no task_id
    assert AddId("id").process(DocumentBatch("x", pa.table({"id": pa.nulls(2)}))).column("id").null_count == 0


def test_documents_given_to_a_pipeline_are_numbered() -> None:
    batches = [DocumentBatch("x", pa.table({"text": ["a", "a"]})), DocumentBatch("x", pa.table({"text": ["a"]}))]
    results = Pipeline("own", stages=[AddId("id", "p")]).run(InProcessExecutor(), initial_tasks=batches)
    assert results is not None
    assert sorted(r["id"] for b in results for r in b.to_pyarrow().to_pylist()) == [
        "p_000000_0",
        "p_000000_1",
        "p_000001_0",
    ]


def test_documents_of_no_place_get_their_hash() -> None:
    batch = DocumentBatch("x", pa.table({"text": ["a", "b", "a"]}))
    identify(batch)
    ids = AddId("id", "p").process(batch).column("id").to_pylist()
    assert [len(i) for i in ids] == [36, 34, 36]
    assert ids[0][:34] == ids[2][:34] != ids[1]
    assert (ids[0][34:], ids[2][34:]) == ("_0", "_1")


def test_mistakes_are_named() -> None:
    with pytest.raises(UsageError, match="expected the name of a field, got ''"):
        AddId("")
