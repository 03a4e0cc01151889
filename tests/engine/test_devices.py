"""Which GPUs workers see: the decisions, and a run on a machine that is told it has two."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tamis import Pipeline, ProcessingStage, Resources
from tamis.engine.supervisor.devices import Devices, environment, fixed_workers, gpu_share, most_workers
from tamis.errors import TamisError
from tamis.stages.text.io.reader import JsonlReader
from tamis.stages.text.io.writer import JsonlWriter
from tamis.tasks import DocumentBatch


def test_whole_devices_go_to_one_worker_each_until_its_process_is_gone() -> None:
    devices = Devices(["0", "1"], [0.0, 1.0])
    assert devices.take(1, 0) == ()
    assert devices.take(2, 1) == ("0",)
    assert devices.take(3, 1) == ("1",)
    assert not devices.has_room(1)
    assert devices.has_room(0)
    devices.free(2)
    assert devices.take(4, 1) == ("0",)


def test_shares_fill_the_emptiest_device() -> None:
    devices = Devices(["a", "b"], [0.5, 0.3])
    assert [devices.take(i, 0) for i in range(2)] == [("a",), ("b",)]
    assert [devices.take(i, 1) for i in range(2, 4)] == [("a",), ("b",)]
    assert not devices.has_room(1)
    assert not devices.has_room(0)


def test_several_devices_for_one_worker() -> None:
    devices = Devices(["0", "1", "2"], [2.0])
    assert devices.take(1, 0) == ("0", "1")
    assert not devices.has_room(0)


def test_how_many_workers_there_can_be() -> None:
    assert [most_workers(8, s) for s in (1.0, 0.25, 0.1, 4.0)] == [8, 32, 80, 2]
    assert fixed_workers([None, None], [0.0, 1.0], 1) == [None, 1]
    assert fixed_workers([None, 1], [0.0, 0.5], 2) == [None, 1]
    assert gpu_share(0.0, 0.0, 0) == 0.0
    assert gpu_share(0.0, 200.0, 80 * 10**9) == 1.0
    assert environment((), 0.0) == {}
    assert environment(("1", "2"), 2.0) == {"CUDA_VISIBLE_DEVICES": "1,2", "TAMIS_GPU_SHARE": "1"}


class See(ProcessingStage[Any, Any]):
    """Notes which devices its worker sees."""

    name = "see"

    def __init__(self, gpus: float, fails: bool = False) -> None:
        self.resources = Resources(cpus=0.1, gpus=gpus)
        self.fails = fails
        self.there_before = os.getpid()

    def setup_on_node(self, node_info: Any = None, worker_metadata: Any = None) -> None:
        os.environ["LEFT_BEHIND"] = str(os.getpid())  # by a process of its own: workers must not see it
        if self.fails:
            raise OSError("no driver")

    def process(self, task: DocumentBatch) -> DocumentBatch:
        seen = [
            os.environ["CUDA_VISIBLE_DEVICES"],
            os.environ.get("TAMIS_GPU_SHARE", ""),
            os.getpid(),
            os.environ.get("LEFT_BEHIND", ""),
        ]
        return task.with_column("seen", pa.array([json.dumps(seen)] * task.num_items, pa.large_string()))


def run(tmp_path: Path, stages: list[Any]) -> list[list[Any]]:
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"n": i, "text": "x" * 2000}) + "\n" for i in range(3000)))
    pipeline = Pipeline(
        "p",
        stages=[
            JsonlReader(str(tmp_path / "in.jsonl"), blocksize="300kB"),
            *stages,
            JsonlWriter(str(tmp_path / "out")),
        ],
    )
    pipeline.execute(memory="2GB")
    return [
        json.loads(json.loads(line)["seen"])
        for p in (tmp_path / "out").glob("*.jsonl")
        for line in p.read_text().splitlines()
    ]


def test_one_worker_for_one_gpu_whatever_the_number_of_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5")
    seen = run(tmp_path, [See(1.0)])
    assert len(seen) == 3000
    assert {(devices, share) for devices, share, _, _ in seen} == {("5", "1")}
    assert len({pid for _, _, pid, _ in seen}) == 1
    assert {left for *_, left in seen} == {""}


def test_two_gpus_and_shares_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,GPU-x")
    seen = run(tmp_path, [See(0.5)])
    assert {devices for devices, *_ in seen} <= {"5", "GPU-x"}
    assert {share for _, share, *_ in seen} == {"0.5"}
    by_worker = {pid: devices for devices, _, pid, _ in seen}
    assert all(by_worker[pid] == devices for devices, _, pid, _ in seen)


def test_what_fails_on_the_node_is_told_and_no_document_is_to_blame(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with pytest.raises(TamisError, match="stage 'see': its setup_on_node failed: OSError: no driver"):
        run(tmp_path, [See(1.0, fails=True)])


def test_more_gpus_than_there_are_is_said_before_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with pytest.raises(TamisError, match="asks for 2 GPU, this machine has 1"):
        run(tmp_path, [See(2.0)])


class Together(ProcessingStage[Any, Any]):
    name = "together"
    batch_size = 4

    def process(self, task: DocumentBatch) -> DocumentBatch:
        raise AssertionError("process_batch is there")

    def process_batch(self, tasks: list[DocumentBatch]) -> list[DocumentBatch]:
        return [
            t.with_column("seen", pa.array([f"[{i}, {len(tasks)}]"] * t.num_items, pa.large_string()))
            for i, t in enumerate(tasks)
        ]


def test_process_batch_gets_as_many_batches_as_the_stage_asks_for(tmp_path: Path) -> None:
    seen = run(tmp_path, [Together()])
    assert len(seen) == 3000
    assert {n for _, n in seen} == {4}
    assert {i for i, _ in seen} == {0, 1, 2, 3}
