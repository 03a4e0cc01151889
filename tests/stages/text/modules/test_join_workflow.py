"""Joining segments that lie anywhere: the same documents whatever the order, the files and the partitions."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tamis.backends.local import InProcessExecutor, LocalExecutor
from tamis.dedup.join_segments import procedure as joining
from tamis.dedup.join_segments.workflow import DocumentJoinWorkflow
from tamis.errors import RunConflict, UsageError
from tests.support.run_dirs import run_dir_path


def segments(n_documents: int, seed: int = 3) -> tuple[list[dict[str, Any]], dict[str, str]]:
    rng = random.Random(seed)
    rows, whole = [], {}
    for d in range(n_documents):
        texts = [f"document {d} part {s} é漢" for s in range(rng.randint(1, 6))]
        rows += [{"id": f"doc-{d}", "segment_id": s, "text": t, "n": d} for s, t in enumerate(texts)]
        whole[f"doc-{d}"] = "\n\n".join(texts)
    rng.shuffle(rows)
    return rows, whole


def write(folder: Path, rows: list[dict[str, Any]], n_files: int = 3) -> Path:
    folder.mkdir()
    for k in range(n_files):
        (folder / f"{k}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows[k::n_files]))
    return folder


def read(folder: Path) -> dict[str, str]:
    found = [json.loads(line) for p in folder.glob("*.jsonl") for line in p.read_text().splitlines()]
    assert len({d["id"] for d in found}) == len(found)
    assert all("segment_id" not in d for d in found)
    return {d["id"]: d["text"] for d in found}


def test_segments_are_joined_wherever_they_lie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, whole = segments(200)
    source = write(tmp_path / "in", rows)
    monkeypatch.setattr(joining, "RANGE_BYTES", 4096)  # many ranges
    result = DocumentJoinWorkflow(str(source), str(tmp_path / "out"), input_blocksize="2KB").run(
        InProcessExecutor(), memory="512MB"
    )
    assert read(tmp_path / "out") == whole
    assert (result.summary["n_segments"], result.summary["n_documents"]) == (len(rows), 200)
    assert result.summary["n_ranges"] > 3
    assert not (run_dir_path(tmp_path / "out") / "dedup").exists()
    assert DocumentJoinWorkflow(str(source), str(tmp_path / "out"), input_blocksize="3KB").run().status == "already"
    done = run_dir_path(tmp_path / "out") / "dedup.json"
    about = json.loads(done.read_text())
    assert "input_blocksize" not in about["identity"]
    with pytest.raises(RunConflict, match="separator was"):
        DocumentJoinWorkflow(str(source), str(tmp_path / "out"), separator=" ").run()


def test_with_workers_and_parquet(tmp_path: Path) -> None:
    rows, whole = segments(60)
    (tmp_path / "in").mkdir()
    for k in range(3):
        pq.write_table(pa.Table.from_pylist(rows[k::3]), tmp_path / "in" / f"{k}.parquet")
    workflow = DocumentJoinWorkflow(str(tmp_path / "in"), str(tmp_path / "out"), output_filetype="jsonl")
    workflow.run(LocalExecutor(), memory="512MB")
    assert read(tmp_path / "out") == whole


def test_documents_without_an_id_stay_alone(tmp_path: Path) -> None:
    rows = [
        {"id": None, "segment_id": 0, "text": "a"},
        {"segment_id": 1, "text": "b"},
        {"id": 7, "segment_id": 0, "text": "c"},
    ]
    source = write(tmp_path / "in", [*rows, {"id": 7, "segment_id": 1, "text": "d"}], n_files=2)
    DocumentJoinWorkflow(str(source), str(tmp_path / "out")).run(InProcessExecutor(), memory="512MB")
    found = [json.loads(line) for p in (tmp_path / "out").glob("*.jsonl") for line in p.read_text().splitlines()]
    assert sorted(d["text"] for d in found) == ["a", "b", "c\n\nd"]


def test_mistakes_are_those_of_the_joiner(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="max_length and length_field"):
        DocumentJoinWorkflow(str(tmp_path), str(tmp_path / "out"), max_length=3)
