"""Probed units: what each stage keeps is found, and what they write is what they write without a probe."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tamis.engine.activity import READING, WRITING
from tamis.engine.job import make_job
from tamis.engine.messages import Done, RetainedMemory
from tamis.engine.units import Piece, PieceKind, Unit
from tamis.engine.worker.config import OutputSpec, WorkerConfig
from tamis.engine.worker.probe import PythonProbe
from tamis.engine.worker.process import UnitRunner
from tamis.stages.base import ProcessingStage
from tamis.stages.text.io.reader import JsonlReaderStage
from tamis.tasks import DocumentBatch

MB = 1_000_000


@dataclass(repr=False)
class Keep(ProcessingStage[Any, Any]):
    """Changes a column and keeps a megabyte."""

    name: str = "keep"

    def setup(self, worker_metadata: Any = None) -> None:
        self.kept: list[Any] = []

    def process(self, task: DocumentBatch) -> DocumentBatch:
        self.kept.append(ctypes.create_string_buffer(MB))
        return task.with_column("t", [t.upper() for t in task.column("t").to_pylist()])


@dataclass(repr=False)
class Large(ProcessingStage[Any, Any]):
    """Makes five megabytes of columns and keeps nothing."""

    name: str = "large"

    def process(self, task: DocumentBatch) -> DocumentBatch:
        return task.with_column("n", ["x" * (5 * MB // task.num_items)] * task.num_items)


@dataclass(repr=False)
class Drop(ProcessingStage[Any, Any]):
    every: int = 2
    name: str = "drop"

    def process(self, task: DocumentBatch) -> DocumentBatch:
        import numpy as np

        task._metadata["seen"] = task._metadata.get("seen", 0) + 1
        return task.filter(np.array([i % self.every != 0 for i in task.column("id").to_pylist()]))


DATA = b"".join(b'{"id": %d,  "t":"word %d"}\n' % (i, i) for i in range(100))


def run(
    folder: Path, stages: list[ProcessingStage[Any, Any]], probe: bool, **place: Any
) -> tuple[Done, dict[str, Any]]:
    """Return the report, and what was written by kind."""
    staged = folder / f"staged{probe}"
    staged.mkdir()
    (folder / "in.jsonl").write_bytes(DATA)
    made = {"max_record_bytes": 1000, "output": OutputSpec("jsonl"), "keep_rejected": True, **place}
    job = make_job("job", [JsonlReaderStage(None, None), *stages], "streaming")
    runner = UnitRunner(job, WorkerConfig(staged=str(staged), scratch=str(folder), **made))
    unit = Unit(1, [Piece(0, PieceKind.BYTES, str(folder / "in.jsonl"), 0, len(DATA))])
    if probe:
        unit.probe = True
    for fence in range(2):  # the first one warms up
        report = runner.run(unit, fence, lambda news: None, lambda: 0)
        assert isinstance(report, Done), report
    files = {}
    for file in report.files:
        path = Path(file.path)
        files[file.kind] = pq.read_table(path).to_pylist() if file.extension == "parquet" else path.read_bytes()
    left = {p.name for p in staged.iterdir()} - {
        Path(f.path).name.replace("u1.1", u) for f in report.files for u in ("u1.0", "u1.1")
    }
    assert left == set()
    return report, files


@pytest.mark.parametrize("output", ["jsonl", "parquet"])
def test_the_stage_that_keeps_memory_is_found_and_nothing_else_changes(tmp_path: Path, output: str) -> None:
    stages = [Large(), Drop(2), Keep(), Drop(3)]
    report, files = run(tmp_path, stages, True, output=OutputSpec(output, output))
    plain, expected = run(tmp_path, stages, False, output=OutputSpec(output, output))
    assert files == expected
    for one in (report, plain):
        for stage in one.ledger.stages:
            stage.seconds = 0.0
    assert report.ledger == plain.ledger
    assert report.n_records == plain.n_records == 100
    assert plain.retained is None
    kept = dict(report.retained.stages)
    assert list(kept) == [READING, "large", "drop", "keep", "drop#2", WRITING]
    assert kept["keep"]["malloc_bytes"] == pytest.approx(MB, abs=150_000)
    assert all(abs(h["malloc_bytes"]) < 150_000 for label, h in kept.items() if label != "keep")


def test_a_partition_of_which_nothing_is_left(tmp_path: Path) -> None:
    report, files = run(tmp_path, [Drop(1), Drop(1), Keep()], True)
    assert set(files) == {"verdicts", "rejected"}
    assert [label for label, _ in report.retained.stages] == [READING, "drop", "drop#2", "keep", WRITING]


def test_a_disk_without_room_ends_the_probe_not_the_unit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tamis.engine.worker import handover

    def full(*args: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(handover, "save", full)
    report, files = run(tmp_path, [Drop(2)], True)
    assert report.retained.stages == []
    assert len(files["output"].splitlines()) == 50


def test_what_python_objects_gained() -> None:
    stage = Keep()
    stage.setup()
    probe = PythonProbe([stage])
    stage.kept.append(b"x" * MB)
    found = probe.with_python_growth(RetainedMemory([("keep", {})]))
    assert found.stages == [("keep", {})]
    if found.python_bytes is not None:  # not where this test process holds too many objects
        assert found.python_bytes == pytest.approx(MB, rel=0.05)
        assert found.python_type == "bytes"
