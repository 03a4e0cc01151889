"""Real workers whose stages keep memory of every partition: the leak is named, workers are replaced, nothing is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fault_harness import assert_conserved, documents, events, execute, ids_of, write_lines
from fault_stages import AddLength, DropOdd, Shout
from leak_stages import KeepArrow, KeepBytes, KeepMapped, KeepNative, KeepObjects, KeepShared

N_PARTITIONS = 200
KB64, MB = 64_000, 1_000_000


def _run(tmp_path: Path, *stages: Any, **settings: Any) -> Any:
    """A pipeline over 200 tiny files, one per partition."""
    for i in range(N_PARTITIONS):
        write_lines(tmp_path / "in" / f"{i:04}.jsonl", documents(4, first=4 * i))
    return execute(
        tmp_path / "in",
        tmp_path / "out",
        [AddLength(), *stages, DropOdd(), Shout()],
        files_per_partition=1,
        settings={"workers": 1, **settings},
    )


def _leaks(tmp_path: Path) -> list[dict[str, Any]]:
    return [data for kind, data in events(tmp_path / "out") if kind == "leak"]


CASES = [
    (KeepBytes, KB64, "Python objects"), (KeepNative, KB64, "native memory"), (KeepArrow, KB64, "Arrow buffers"),
    (KeepArrow, MB, "Arrow buffers"), (KeepObjects, MB, "Python objects"), (KeepShared, MB, "shared memory"),
]  # fmt: skip
MORE = [
    (KeepObjects, KB64, "Python objects"), (KeepMapped, KB64, "unexplained memory"), (KeepBytes, MB, "Python objects"),
    (KeepNative, MB, "native memory"), (KeepMapped, MB, "unexplained memory"), (KeepShared, KB64, "shared memory"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("stage", "n_bytes", "kind"), [*CASES, *(pytest.param(*case, marks=pytest.mark.slow) for case in MORE)]
)
def test_a_leak_is_named(tmp_path: Path, stage: Any, n_bytes: int, kind: str) -> None:
    result = _run(tmp_path, stage(n_bytes))
    assert_conserved(result)
    assert sorted(ids_of(tmp_path / "out")) == [i for i in range(4 * N_PARTITIONS) if i % 2 == 0]
    (leak,) = _leaks(tmp_path)
    assert (leak["stage"], leak["kind"]) == (stage.name, kind)
    assert leak["bytes_per_partition"] == pytest.approx(n_bytes, rel=0.15)
    assert leak["n_partitions"] <= N_PARTITIONS
    assert leak["text"].startswith(f"stage '{stage.name}' keeps ")
    # A megabyte per partition takes a tenth of the cap several times in this run, 64 KB never.
    assert (result.counters["recycled"] > 0) == (n_bytes == MB)
    assert result.counters["memory_failures"] == 0


def test_a_run_without_a_leak_has_no_event(tmp_path: Path) -> None:
    result = _run(tmp_path)
    assert_conserved(result)
    assert _leaks(tmp_path) == []
    assert result.counters["recycled"] == 0


@pytest.mark.slow
def test_a_leak_that_no_single_worker_lives_long_enough_to_show(tmp_path: Path) -> None:
    """A worker is replaced for a quarter of its cap, after some 27 partitions, whether it is known why or not."""
    result = _run(tmp_path, KeepNative(3 * MB))
    assert_conserved(result)
    (leak,) = _leaks(tmp_path)
    assert (leak["stage"], leak["kind"]) == ("keep_native", "native memory")
    assert result.counters["recycled"] > 4
