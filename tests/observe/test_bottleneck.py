"""What held a run back: a cause only where its number says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tamis.engine.schema import Manifest, RunFacts
from tamis.observe.bottleneck import findings, time_shares
from tamis.observe.points import GpuPoint, StagePoint, Total
from tamis.observe.snapshot import Snapshot


def run(level: int = 0, cores: float = 1.5, seconds: int = 100, **more: Any) -> Snapshot:
    """Return a run of two workers that used so many cores."""
    totals = [
        Total(at=float(i), used_bytes=10, budget_bytes=100, level=level, cpu_s=1 + i * cores) for i in range(seconds)
    ]
    about = RunFacts(workers=2)
    return Snapshot(Path(), totals=totals, about=about, budget_bytes=100, peak_bytes=50, **more)


def causes(snapshot: Snapshot) -> list[str]:
    return [f.cause for f in findings(snapshot)]


def test_nothing_stands_out() -> None:
    assert causes(run()) == []
    assert causes(run(level=3, seconds=3)) == []  # too short to tell
    assert causes(Snapshot(Path())) == []
    assert time_shares(Snapshot(Path())) is None


def test_each_cause_has_its_number_and_a_remedy() -> None:
    stages = [StagePoint(stage="slow", seconds=150.0, cpu_s=140.0, n_in=7), StagePoint(stage="fast", seconds=10.0)]
    gpus = [GpuPoint(at=1.0, busy=0.2), GpuPoint(at=2.0, busy=0.3)]
    manifest = Manifest(counters={"committed": 100, "retries": 9, "memory_failures": 5, "recycled": 20})
    cases = [
        (run(level=2), "memory was short", "100%", "--memory"),
        (run(cores=0.4), "workers waited", "20%", "local disk"),
        (run(cores=1.9), "processors", "95%", "--workers"),
        (run(gpus=gpus), "GPUs waited", "25%", "batches"),
        (run(manifest=manifest), "partitions were done more than once", "9 attempts", "--blocksize"),
        (run(manifest=manifest), "workers were replaced", "20 times", "events"),
        (run(stages=stages), "stage slow decided the speed", "94%", "GPU"),
    ]
    for snapshot, cause, proof, remedy in cases:
        (found,) = [f for f in findings(snapshot) if f.cause.startswith(cause)]
        assert proof in found.proof
        assert remedy in found.remedy


def test_where_the_time_went() -> None:
    shares = time_shares(run(stages=[StagePoint(stage="a", seconds=90.0, cpu_s=60.0)]))
    assert shares is not None
    assert (shares.computing_s, shares.waiting_s, shares.between_s) == (60.0, 30.0, 108.0)
