"""Which GPUs workers see: the decisions, and a run on a machine that is told it has two."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tamis import Pipeline, ProcessingStage, Resources
from tamis.engine.run.budget.gpus import GpuNeed, fit_shares
from tamis.engine.supervisor.devices import Devices, environment, fixed_workers, gpu_share, most_workers
from tamis.errors import BudgetError, TamisError
from tamis.memory import device_limits
from tamis.memory.device_limits import DeviceLimit
from tamis.memory.gpu import FreeDeviceMemory
from tamis.stages.text.io.reader import JsonlReader
from tamis.stages.text.io.writer import JsonlWriter
from tamis.tasks import DocumentBatch
from tests.support.run_dirs import run_dir_path


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


def test_what_workers_of_one_device_may_take_adds_up_to_at_most_the_limit() -> None:
    rng, limit = random.Random(0), 40 * 10**9
    devices, living = Devices(["0", "1"], [0.0, 1.0, 0.3, 0.5, 2.0], limit), dict[int, tuple[tuple[str, ...], int]]()
    for worker in range(2000):
        if living and rng.random() < 0.5:
            gone = rng.choice(list(living))
            devices.free(gone)
            del living[gone]
        segment = rng.randrange(5)
        if devices.has_room(segment):
            taken = devices.take(worker, segment)
            told = environment(taken, devices.share(segment), limit)
            living[worker] = taken, int(told.get("TAMIS_GPU_MEMORY", 0))
        for device in ("0", "1"):
            assert sum(n for names, n in living.values() if device in names) <= limit
    told = environment(("0",), 0.3, limit, "cut")
    assert (told["TAMIS_GPU_MEMORY"], told["TAMIS_GPU_OVERFLOW"]) == (str(int(0.3 * limit)), "cut")
    assert device_limits.assigned_limit(told) == DeviceLimit(0.3, int(0.3 * limit), "cut")
    # ... and a process refuses itself more, CUDA's own memory left out
    assert DeviceLimit(0.3, int(0.3 * limit)).fraction_of(80 * 10**9) == pytest.approx((12e9 - 6e8) / 80e9)


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
            os.environ.get("TAMIS_GPU_MEMORY", ""),
        ]
        return task.with_column("seen", pa.array([json.dumps(seen)] * task.num_items, pa.large_string()))


def run(tmp_path: Path, stages: list[Any], **settings: Any) -> list[list[Any]]:
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"n": i, "text": "x" * 2000}) + "\n" for i in range(3000)))
    pipeline = Pipeline(
        "p",
        stages=[
            JsonlReader(str(tmp_path / "in.jsonl"), blocksize="300kB"),
            *stages,
            JsonlWriter(str(tmp_path / "out")),
        ],
    )
    pipeline.execute(memory="2GB", **settings)
    return [
        json.loads(json.loads(line)["seen"])
        for p in (tmp_path / "out").glob("*.jsonl")
        for line in p.read_text().splitlines()
    ]


def test_one_worker_for_one_gpu_whatever_the_number_of_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5")
    seen = run(tmp_path, [See(1.0)])
    assert len(seen) == 3000
    assert {(devices, share) for devices, share, *_ in seen} == {("5", "1")}
    assert len({pid for _, _, pid, *_ in seen}) == 1
    assert {left for *_, left, _ in seen} == {""}


def test_two_gpus_and_shares_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,GPU-x")
    seen = run(tmp_path, [See(0.5)], gpu_memory="40GB")
    assert {limit for *_, limit in seen} == {"20000000000"}
    entries = json.loads((run_dir_path(tmp_path / "out") / "settings.json").read_text())["settings"]
    noted = {e["name"]: e for e in entries}
    assert noted["share_of_gpu of segment 0"]["value"] == 0.5
    assert noted["share_of_gpu of segment 0"]["evidence"]["bytes"] == 20_000_000_000
    assert (noted["gpu_memory"]["value"], noted["gpu_memory"]["chosen_by"]) == (40_000_000_000, "user")
    assert {devices for devices, *_ in seen} <= {"5", "GPU-x"}
    assert {share for _, share, *_ in seen} == {"0.5"}
    by_worker = {pid: devices for devices, _, pid, *_ in seen}
    assert all(by_worker[pid] == devices for devices, _, pid, *_ in seen)


def test_what_fails_on_the_node_is_reported_and_no_document_is_to_blame(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with pytest.raises(TamisError, match="stage 'see': its setup_on_node failed: OSError: no driver"):
        run(tmp_path, [See(1.0, fails=True)])


def test_more_gpus_than_there_are_is_said_before_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with pytest.raises(TamisError, match="asks for 2 GPU, this machine has 1"):
        run(tmp_path, [See(2.0)])


def test_too_little_memory_of_a_gpu_is_said_before_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with pytest.raises(
        BudgetError, match=r"gpu-memory 1 GB is too small for one worker of see, .* give --gpu-memory 2GB or more"
    ):
        run(tmp_path, [See(1.0)], gpu_memory="1GB")


class DiesInSetup(See):
    """Ends its process while it is set up, as a driver or a library may."""

    def setup(self, worker_metadata: Any = None) -> None:
        os._exit(7)


def test_the_third_death_in_setup_ends_the_run_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(
        TamisError, match=r"stage 'see \(its setup\)' ended 3 workers in a row: the worker process died: .*7"
    ):
        run(tmp_path, [DiesInSetup(0.0)])
    assert not list(run_dir_path(tmp_path / "out").glob("quarantine/*"))


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


# -- a GPU that other processes hold most of --------------------------------------------------------------------------
MB = 1_000_000
BERT = GpuNeed("bert", 703 * MB, 1206 * MB)  # 406 MB of weights
CROWDED = FreeDeviceMemory(140_000 * MB, 2_200 * MB)


def test_as_many_workers_share_a_crowded_gpu_as_fit() -> None:
    assert fit_shares([0.0, 0.5], [GpuNeed("", 0, 0), BERT], 2_150 * MB, CROWDED) == [0.0, 1.0]
    assert fit_shares([0.25], [BERT], 4_000 * MB, CROWDED) == [pytest.approx(1 / 3)]
    assert fit_shares([0.25], [BERT], 40_000 * MB, CROWDED) == [0.25]
    assert fit_shares([2.0], [BERT], 2_150 * MB, CROWDED) == [2.0]
    assert fit_shares([0.5], [BERT], 703 * MB, CROWDED) == [1.0]  # it may fit: trying tells
    with pytest.raises(
        BudgetError, match=r"one worker of bert needs at least 703 MB of a GPU, and 600 MB of 140 GB are free"
    ):
        fit_shares([0.5], [BERT], 550 * MB, FreeDeviceMemory(140_000 * MB, 600 * MB))


@pytest.mark.parametrize(("free_mb", "is_crowded"), [(2_200, True), (139_000, False), (0, True)])
def test_a_gpu_is_crowded_where_others_hold_much_of_it(free_mb: int, is_crowded: bool) -> None:
    assert FreeDeviceMemory(140_000 * MB, free_mb * MB).is_crowded is is_crowded
    assert not FreeDeviceMemory().is_crowded  # nobody can tell


def test_no_more_workers_are_started_than_fitted() -> None:
    devices = Devices(["0", "1"], [0.5, 0.25])
    assert (devices.take(1, 0), devices.take(2, 0)) == (("0",), ("1",))
    devices.free(2)
    devices.limit_workers(0, 1)
    assert not devices.has_room(0)
    assert devices.has_room(1)
    devices.free(1)
    assert devices.has_room(0)
    devices.limit_workers(0, 0)  # one at least
    assert devices.has_room(0)


class Weighs(See):
    """Needs so much of a device whose free memory is told by a file."""

    name = "weighs"

    def least_bytes(self) -> int:
        return 406 * MB


def test_what_is_free_on_a_gpu_is_what_workers_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setattr("tamis.engine.run.budget.gpus.free_device_memory", lambda: CROWDED)
    seen = run(tmp_path, [Weighs(0.5)])
    assert len(seen) == 3000
    assert {(share, limit) for _, share, _, _, limit in seen} == {("1", str(2_150 * MB))}
    noted = {
        e["name"]: e for e in json.loads((run_dir_path(tmp_path / "out") / "settings.json").read_text())["settings"]
    }
    assert (noted["gpu_memory"]["value"], noted["gpu_memory"]["chosen_by"]) == (2_150 * MB, "machine")


def test_a_gpu_without_room_for_one_worker_is_refused_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setattr(
        "tamis.engine.run.budget.gpus.free_device_memory", lambda: FreeDeviceMemory(140_000 * MB, 600 * MB)
    )
    with pytest.raises(
        BudgetError, match=r"one worker of weighs needs at least 703 MB of a GPU, and 600 MB of 140 GB are free"
    ):
        run(tmp_path, [Weighs(0.5)])
    assert not list((tmp_path / "out").glob("*.jsonl"))


class Crowds(See):
    """Fits its device `n` times: each worker holds one of so many files while it lives."""

    name = "crowds"

    def __init__(self, folder: str, n: int) -> None:
        super().__init__(0.25)
        self.folder, self.n = folder, n

    def setup(self, worker_metadata: Any = None) -> None:
        import fcntl

        for i in range(self.n):
            self.held = open(f"{self.folder}/room{i}", "w")  # noqa: SIM115 - as long as the process lives
            try:
                fcntl.flock(self.held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except OSError:
                self.held.close()
        raise RuntimeError("CUDA error: out of memory")


@pytest.mark.parametrize("n", [1, 2])
def test_a_run_continues_with_the_workers_that_fit_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n: int
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    seen = run(tmp_path, [Crowds(str(tmp_path), n)], workers=4)
    assert len(seen) == 3000
    assert 1 <= len({pid for _, _, pid, *_ in seen}) <= n


def test_one_worker_that_does_not_fit_ends_the_run_before_any_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with pytest.raises(
        BudgetError, match=r"one worker alone does not fit its GPU: .*CUDA error: out of memory.* 0 documents"
    ):
        run(tmp_path, [Crowds(str(tmp_path), 0)])
