"""What held a run back: a cause only where its number says so."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from tamis.engine.run_record import PassRecord, PassWork, RunRecord, StageTime
from tamis.engine.schema import Manifest, RunFacts
from tamis.observe.bottleneck import findings, time_shares
from tamis.observe.points import GpuPoint, StagePoint, Total
from tamis.observe.report.facts import Facts
from tamis.observe.report.summary import held_back
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


def several_passes(**more: Any) -> Snapshot:
    """Return a run of two passes and a decision; the newest series, of the last pass, say nothing."""
    stages = [StageTime("dedup", 60.0, 50.0, 900)]
    first = PassWork(
        workers=2, seconds=40.0, unit_s=75.0, reading_s=10.0, cpu_s=60.0, stages=stages, n_units=10, **more
    )
    last = PassWork(
        workers=2, seconds=5.0, unit_s=4.0, cpu_s=8.0, stages=[StageTime("write", 3.0, 3.0, 900)], n_looks=5
    )
    passes = [
        PassRecord("keys-0", "making keys", seconds=42.0, documents=900, work=first),
        PassRecord("decision-0", "deciding", seconds=3.0),
        PassRecord("write", "writing", seconds=6.0, documents=900, work=last),
    ]
    return replace(run(seconds=6), record=RunRecord(passes=passes))


def test_all_passes_count_not_the_last_one_alone() -> None:
    shares = time_shares(several_passes())
    assert shares == (10.0, 53.0, 10.0, 6.0, 9.0 + 8.0)
    (slow,) = [f for f in findings(several_passes()) if f.cause.startswith("stage")]
    assert slow.cause == "stage dedup decided the speed"
    assert "95%" in slow.proof
    assert "of the pass making keys" in slow.proof
    (short,) = [f for f in findings(several_passes(n_looks=35, n_pressed=30)) if f.cause == "memory was short"]
    assert "75% of the moments" in short.proof
    failed = several_passes(n_failed=4, n_short_of_memory=4, n_recycled=5, gpu_busy=0.2)
    proofs = {f.cause: f.proof for f in findings(failed)}
    assert proofs["partitions were done more than once"].startswith("4 attempts failed for 10 partitions, 4 of them")
    assert proofs["workers were replaced"].startswith("5 times for 10 partitions")
    assert proofs["GPUs waited for work"] == "they were busy 20% of the time"


def test_decisions_between_passes_are_a_cause() -> None:
    snapshot = several_passes()
    assert snapshot.record is not None
    assert "decisions" not in " ".join(causes(snapshot))
    snapshot.record.passes[1].seconds = 100.0
    (found,) = [f for f in findings(snapshot) if f.cause.startswith("decisions")]
    assert found.proof == "68% of the time, the longest 100.0 s (deciding)"
    assert "bands" in found.remedy


def test_the_report_has_a_row_for_each_pass_and_stage() -> None:
    html = held_back(Facts(Path(), several_passes(n_failed=7, gpu_busy=0.25)))
    rows = re.findall(r"<tr>(.*?)</tr>", html)
    (keys,) = [row for row in rows if "making keys" in row and ">42 s<" in row]
    assert [cell in keys for cell in (">7<", ">25%<")] == [True, True]
    assert any("deciding" in row and ">3 s<" in row for row in rows)
    assert any("dedup" in row and ">95%<" in row and ">83%<" in row and ">900<" in row for row in rows)


def test_where_the_time_went() -> None:
    shares = time_shares(run(stages=[StagePoint(stage="a", seconds=90.0, cpu_s=60.0)]))
    assert shares is not None
    assert (shares.computing_s, shares.waiting_s, shares.idle_s) == (60.0, 30.0, 108.0)
