"""Metrics of a run: literally for small databases, and by the strict reader for whole ones."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tamis.engine.monitor.database import RunDatabase
from tamis.engine.run_record import PassRecord, RunRecorder
from tamis.engine.schema import RunFacts
from tamis.memory.sampler import Mark
from tamis.observe.metrics.run_metrics import RunMetrics
from tests.support.made_run import STAGES, make_run
from tests.support.run_dirs import run_dir_path
from tests.support.strict_exposition import parse

TOTALS = {
    "used_bytes": 300, "budget_bytes": 1000, "documents": 50, "written": 30, "dropped": 15, "quarantined": 5,
    "read_bytes": 7000, "left_bytes": 2000, "level": 1, "queue_bytes": 11, "scratch_bytes": 12, "disk_free_bytes": 13,
    "machine_used_bytes": 14, "machine_total_bytes": 15, "cgroup_used_bytes": 16, "cgroup_limit_bytes": 17,
    "psi_some": 1.5, "psi_full": 0.25, "cpu_s": 4.5, "n_processes": 4, "server_bytes": 90, "supervisor_bytes": 40,
    "duplicates": 6, "peak_bytes": 350,
}  # fmt: skip


def small(folder: Path) -> RunDatabase:
    folder.mkdir(parents=True, exist_ok=True)
    db = RunDatabase(str(folder / "run.sqlite"))
    db.about(RunFacts(run_id="r-1", name='a "run"', began_at=100.5, stages=["f"]))
    db.sample(TOTALS, {1: 100, 2: 70}, at=200.0)
    db.put(
        "stages",
        at=200.0,
        stage="f",
        position=0,
        n_in=45,
        n_out=30,
        n_dropped=15,
        in_bytes=6000,
        seconds=2.5,
        cpu_s=2.25,
        peak_bytes=99,
    )
    return db


def test_every_line_of_a_small_run(tmp_path: Path) -> None:
    db = small(tmp_path)
    db.put(
        "gpus",
        at=200.0,
        gpu=0,
        name="G",
        used_bytes=5,
        total_bytes=8,
        busy=0.5,
        temperature_c=61.0,
        ours_bytes=4,
        processes="{}",
    )
    db.replace("cells", [(0, 0, 10, 10, 0, 0, 0, 0), (1, 10, 20, 0, 4, 6, 0, 2), (2, 20, 30, 0, 0, 9, 1, 1)])
    db.alert("memory", "critical", "too much")
    db.close()
    lines = [line for line in RunMetrics(tmp_path).text(now=205.0).splitlines() if not line.startswith("#")]
    assert lines == [
        "tamis_up 1",
        "tamis_finished 0",
        "tamis_readable 1",
        'tamis_run_info{run_id="r-1",name="a \\"run\\"",pass=""} 1',
        "tamis_run_start_time_seconds 100.5",
        "tamis_sample_time_seconds 200.0",
        "tamis_memory_used_bytes 300",
        "tamis_memory_budget_bytes 1000",
        "tamis_memory_recent_peak_bytes 350",
        "tamis_pressure_level 1",
        'tamis_worker_memory_bytes{worker="1"} 100',
        'tamis_worker_memory_bytes{worker="2"} 70',
        'tamis_process_memory_bytes{role="supervisor"} 40',
        'tamis_process_memory_bytes{role="server"} 90',
        "tamis_processes 4",
        "tamis_left_bytes 2000",
        "tamis_queue_bytes 11",
        "tamis_scratch_bytes 12",
        "tamis_disk_free_bytes 13",
        'tamis_machine_memory_bytes{kind="used"} 14',
        'tamis_machine_memory_bytes{kind="total"} 15',
        'tamis_cgroup_memory_bytes{kind="used"} 16',
        'tamis_cgroup_memory_bytes{kind="limit"} 17',
        'tamis_psi_percent{kind="some"} 1.5',
        'tamis_psi_percent{kind="full"} 0.25',
        "tamis_cpu_seconds_total 4.5",
        'tamis_documents_total{state="read"} 50',
        'tamis_documents_total{state="written"} 30',
        'tamis_documents_total{state="dropped"} 9',
        'tamis_documents_total{state="duplicate"} 6',
        'tamis_documents_total{state="quarantined"} 5',
        "tamis_documents_in_flight 0",
        "tamis_read_bytes_total 7000",
        'tamis_stage_documents_total{stage="f",direction="in"} 45',
        'tamis_stage_documents_total{stage="f",direction="out"} 30',
        'tamis_stage_documents_total{stage="f",direction="dropped"} 15',
        'tamis_stage_documents_total{stage="f",direction="quarantined"} 0',
        'tamis_stage_read_bytes_total{stage="f"} 6000',
        'tamis_stage_seconds_total{stage="f"} 2.5',
        'tamis_stage_cpu_seconds_total{stage="f"} 2.25',
        'tamis_stage_peak_bytes{stage="f"} 99',
        'tamis_partitions{state="waiting"} 1',
        'tamis_partitions{state="running"} 0',
        'tamis_partitions{state="committed"} 2',
        'tamis_partitions{state="quarantined"} 0',
        'tamis_input_bytes{state="waiting"} 10',
        'tamis_input_bytes{state="running"} 4',
        'tamis_input_bytes{state="committed"} 15',
        'tamis_input_bytes{state="quarantined"} 1',
        "tamis_splits 3",
        'tamis_gpu_memory_used_bytes{gpu="0",name="G"} 5',
        'tamis_gpu_memory_run_bytes{gpu="0",name="G"} 4',
        'tamis_gpu_memory_total_bytes{gpu="0",name="G"} 8',
        'tamis_gpu_busy_ratio{gpu="0",name="G"} 0.5',
        'tamis_gpu_temperature_celsius{gpu="0",name="G"} 61.0',
        'tamis_alerts_total{rule="memory",level="critical"} 1',
        'tamis_alert_active{rule="memory",level="critical"} 1',
    ]
    parse(RunMetrics(tmp_path).text())


def test_a_run_is_up_while_it_samples(tmp_path: Path) -> None:
    small(tmp_path).close()
    metrics = RunMetrics(tmp_path)
    assert parse(metrics.text(now=214.0))["tamis_up"] == {(): 1.0}
    assert parse(metrics.text(now=216.0))["tamis_up"] == {(): 0.0}
    (tmp_path / "manifest.json").write_text("{}")
    after = parse(metrics.text(now=201.0))
    assert (after["tamis_up"], after["tamis_finished"]) == ({(): 0.0}, {(): 1.0})


def test_a_run_that_has_not_begun(tmp_path: Path) -> None:
    assert {k: v for k, v in parse(RunMetrics(tmp_path / "nothing").text()).items() if k != "tamis_run_info"} == {
        "tamis_up": {(): 0.0},
        "tamis_finished": {(): 0.0},
        "tamis_readable": {(): 1.0},
    }


@pytest.mark.parametrize("damage", [b"not a database", b"SQLite format 3\0" + b"\xff" * 5000, b""])
def test_a_damaged_database_is_said_not_raised(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "run.sqlite").write_bytes(damage)
    found = parse(RunMetrics(tmp_path).text())
    assert found["tamis_up"] == {(): 0.0}
    assert found["tamis_readable"] == {(): float(not damage)}


def test_a_whole_run_can_be_read(tmp_path: Path) -> None:
    found = parse(RunMetrics(make_run(tmp_path, seconds=60, n_gpus=2)).text())
    assert found["tamis_up"] == {(): 1.0}
    assert [dict(labels)["stage"] for labels in found["tamis_stage_seconds_total"]] == list(STAGES)
    assert [dict(labels)["gpu"] for labels in found["tamis_gpu_busy_ratio"]] == ["0", "1"]
    assert sum(found["tamis_partitions"].values()) == 1000
    assert found["tamis_alert_active"] == {(("level", "warning"), ("rule", "throughput")): 1.0}
    assert sum(found["tamis_documents_total"].values()) - found["tamis_documents_total"][
        ("state", "read"),
    ] == pytest.approx(found["tamis_documents_total"][("state", "read"),], rel=1e-3)


def test_counters_do_not_go_back_while_the_run_continues(tmp_path: Path) -> None:
    db = small(tmp_path)
    db.flush()
    metrics = RunMetrics(tmp_path)
    before = parse(metrics.text(now=200.0))
    for step in range(1, 4):
        more = {k: v + step * 10 if isinstance(v, int) else v for k, v in TOTALS.items()}
        db.sample({**more, "duplicates": 6 + step * 3}, {1: 1}, at=200.0 + step)
        db.put(
            "stages",
            at=200.0 + step,
            stage="f",
            position=0,
            n_in=45 + step,
            n_out=30,
            n_dropped=15 + step,
            in_bytes=6000,
            seconds=2.5,
            cpu_s=3,
        )
        db.alert("memory", "warning", "again")
        db.flush()
        after = parse(metrics.text(now=200.0 + step))
        for name in (n for n in before if n.endswith("_total")):
            assert all(after[name][labels] >= value for labels, value in before[name].items()), name
        before = after
    assert before["tamis_alerts_total"] == {(("level", "warning"), ("rule", "memory")): 3.0}
    db.close()


def test_alerts_that_the_database_forgets_stay_counted(tmp_path: Path) -> None:
    import sqlite3

    db = small(tmp_path)
    for i in range(5):
        db.put("alerts", at=300.0 + i, rule="disk", level="warning", text="", data="{}")
    db.put("alerts", at=304.0, rule="disk", level="critical", text="", data="{}")
    db.flush()
    metrics = RunMetrics(tmp_path)
    metrics.text()
    with sqlite3.connect(tmp_path / "run.sqlite", isolation_level=None) as other:
        other.execute("DELETE FROM alerts WHERE at < 304")
    other.close()
    db.put("alerts", at=305.0, rule="disk", level="resolved", text="", data="{}")
    db.put("alerts", at=306.0, rule="disk", level="warning", text="", data="{}")
    db.close()
    found = parse(metrics.text())
    assert found["tamis_alerts_total"] == {
        (("level", "warning"), ("rule", "disk")): 6.0,
        (("level", "critical"), ("rule", "disk")): 1.0,
    }
    assert found["tamis_alert_active"] == {(("level", "warning"), ("rule", "disk")): 1.0}


def test_names_that_users_chose_cannot_break_the_text(tmp_path: Path) -> None:
    db = small(tmp_path)
    for i, name in enumerate(['a"b', "a\\", "two\nlines", "\r", "\u2028", "x" * 1000, "", "ä" * 300]):
        db.put(
            "stages", at=201.0, stage=name, position=i, n_in=i, n_out=i, n_dropped=0, in_bytes=0, seconds=0.0, cpu_s=0.0
        )
        db.alert(name, name, name)
    db.close()
    assert len(parse(RunMetrics(tmp_path).text())["tamis_stage_seconds_total"]) == 8


def test_the_pass_of_a_deduplication_is_named(tmp_path: Path) -> None:
    run_dir = run_dir_path(tmp_path / "out")
    small(run_dir_path(run_dir / "dedup" / "keys-0")).close()
    recorder = RunRecorder(str(run_dir), "d", Mark(), time.monotonic())
    recorder.plan([PassRecord("keys-0"), PassRecord("decision-0", weight=0.25)])
    with recorder, recorder.doing("keys-0"):
        recorder.advance({"total_bytes": 100, "left_bytes": 75})
        recorder._write()
        page = RunMetrics(run_dir).text()
    found = parse(page)
    assert found["tamis_pass_done_ratio"] == {(("pass", "keys-0"),): 0.25, (("pass", "decision-0"),): 0.0}
    assert found["tamis_run_done_ratio"] == {(): 0.2}
    assert [dict(labels)["pass"] for labels in found["tamis_run_info"]] == ["keys-0"]
    assert found["tamis_memory_used_bytes"] == {(): 300.0}
