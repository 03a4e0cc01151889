"""The metrics of a run, from its run directory: what `tamis metrics` and `tamis run --metrics-port` serve.

Names carry units and begin with tamis_. Counters count since the start of the run, earlier attempts included. What is not
known (no GPU, no pressure information, an older database) is left out rather than shown as zero. A run directory that cannot
be read gives tamis_up 0 and tamis_readable 0.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tamis.observe.exposition import Family, render
from tamis.observe.passes import find_place
from tamis.observe.points import AlertPoint, Cell, GpuPoint, StagePoint, Total
from tamis.observe.series import Series, SeriesError, open_series

STALE_S = 15.0  # a run samples every second; after this long without one it is not running
_MAX_ALERTS = 5000
_INFO = ("run_id", "name")


class Metrics:
    """One run, looked at again and again. Remembers the alerts it has counted, which the database forgets in time."""

    def __init__(self, run_dir: Path, scratch: str | None = None) -> None:
        self.run_dir, self.scratch = run_dir, scratch
        self._alerts = _Alerts()

    def text(self, now: float | None = None) -> str:
        """Everything that is known now, in the text format of Prometheus."""
        at = time.time() if now is None else now
        place = find_place(self.run_dir, self.scratch)
        finished = (place.run_dir / "manifest.json").exists()
        try:
            with open_series(place.run_dir) as series:
                about, last, stages = series.about, series.last(), series.stages()
                gpus, cells = series.gpus(max_points=1), series.cells()
                self._alerts.look(series, str(place.run_dir))
        except SeriesError:
            return render([*_state(False, finished, readable=False)])
        running = last is not None and not finished and at - last.at < STALE_S
        info = {k: str(about.get(k, "")) for k in _INFO} | {"pass": place.doing}
        families = [*_state(running, finished, readable=True), _info(info), *_start(about.get("began_at"))]
        if last is not None:
            families += _totals(last)
        return render([*families, *_stages(stages), *_partitions(cells), *_gpus(gpus), *self._alerts.families()])


def _state(running: bool, finished: bool, readable: bool) -> Iterable[Family]:
    yield Family("tamis_up", "1 while the run works, 0 before, after, or when it was killed.").add(int(running))
    yield Family("tamis_finished", "1 once the run has finished.").add(int(finished))
    yield Family("tamis_readable", "0 if the run database is damaged.").add(int(readable))


def _info(labels: dict[str, str]) -> Family:
    family = Family("tamis_run_info", "Always 1. The run, and the pass of a deduplication.")
    return family.add(1, labels)


def _start(began_at: object) -> Iterable[Family]:
    known = isinstance(began_at, (int, float)) and not isinstance(began_at, bool)
    family = Family("tamis_run_start_time_seconds", "When the last attempt began, in Unix time.")
    yield family.add(float(began_at) if known else None)  # type: ignore[arg-type]


# Families of the totals: name, what it is, the label, and column by value of that label.
_TOTALS: tuple[tuple[str, str, str, dict[str, str]], ...] = (
    ("tamis_sample_time_seconds", "When these figures were taken, in Unix time.", "", {"": "at"}),
    ("tamis_memory_used_bytes", "Memory of all processes of the run together.", "", {"": "used_bytes"}),
    ("tamis_memory_budget_bytes", "The budget, which is never exceeded.", "", {"": "budget_bytes"}),
    ("tamis_memory_recent_peak_bytes", "The most in use since the figures before these (1 s).", "", {"": "peak_bytes"}),
    (
        "tamis_pressure_level",
        "Pressure on the budget: 0 none, 1 no growth, 2 only the end of the pipeline starts, 3 workers are stopped, 4 one worker.",
        "",
        {"": "level"},
    ),
    ("tamis_worker_memory_bytes", "Memory of each worker process.", "worker", {}),
    (
        "tamis_process_memory_bytes", "Memory of the processes that are no workers.", "role",
        {"supervisor": "supervisor_bytes", "server": "server_bytes"},
    ),
    ("tamis_processes", "Processes of the run.", "", {"": "n_processes"}),
    ("tamis_left_bytes", "Input that is still to be done, as it lies on disk.", "", {"": "left_bytes"}),
    ("tamis_queue_bytes", "Blocks between processes.", "", {"": "queue_bytes"}),
    ("tamis_scratch_bytes", "Temporary files and files not yet committed.", "", {"": "scratch_bytes"}),
    ("tamis_disk_free_bytes", "Free space where output and scratch lie, the lesser.", "", {"": "disk_free_bytes"}),
    ("tamis_machine_memory_bytes", "Memory of the machine.", "kind", {"used": "machine_used_bytes", "total": "machine_total_bytes"}),
    (
        "tamis_cgroup_memory_bytes", "Memory of the control group that the run is in, if it has a limit.", "kind",
        {"used": "cgroup_used_bytes", "limit": "cgroup_limit_bytes"},
    ),
    ("tamis_psi_percent", "Share of the last 10 s in which some or all tasks waited for memory.", "kind", {"some": "psi_some", "full": "psi_full"}),
    ("tamis_cpu_seconds_total", "CPU time of all processes of this attempt.", "", {"": "cpu_s"}),
    (
        "tamis_documents_total", "Documents: read, written, dropped by a rule, dropped as a duplicate, quarantined.", "state",
        {"read": "documents", "written": "written", "dropped": "dropped", "duplicate": "duplicates", "quarantined": "quarantined"},
    ),
    ("tamis_read_bytes_total", "Input read, decoded.", "", {"": "read_bytes"}),
)  # fmt: skip
# Of these zero says that nobody knows: databases of earlier versions do not have them.
_NOT_ZERO = (
    "supervisor_bytes", "server_bytes", "n_processes", "disk_free_bytes", "machine_used_bytes", "machine_total_bytes", "cpu_s",
    "cgroup_limit_bytes",
)  # fmt: skip


def _totals(last: Total) -> Iterable[Family]:
    values: dict[str, Any] = {k: v or None if k in _NOT_ZERO else v for k, v in vars(last).items()}
    values["dropped"] = max(0, last.dropped - last.duplicates)
    if not last.cgroup_limit_bytes:
        values["cgroup_used_bytes"] = None
    for name, help_, label, columns in _TOTALS:
        family = Family(name, help_)
        for value, column in columns.items():
            family.add(values[column], {label: value} if label else None)
        if label == "worker":
            for worker, used in last.workers.items():
                family.add(used, {label: worker})
        yield family


def _stages(stages: Iterable[StagePoint]) -> Iterable[Family]:
    documents = Family(
        "tamis_stage_documents_total",
        "Documents that went into a stage, came out, were dropped, quarantined.",
    )
    families = {
        "in_bytes": Family("tamis_stage_read_bytes_total", "Bytes of the records that went into a stage."),
        "seconds": Family("tamis_stage_seconds_total", "Time that workers spent in a stage."),
        "cpu_s": Family("tamis_stage_cpu_seconds_total", "CPU time that workers spent in a stage."),
        "peak_bytes": Family("tamis_stage_peak_bytes", "The most memory that one partition took in a stage."),
    }
    for point in stages:
        for direction in ("in", "out", "dropped", "quarantined"):
            documents.add(getattr(point, f"n_{direction}"), {"stage": point.stage, "direction": direction})
        _add(families, point, {"stage": point.stage})
    return documents, *families.values()


def _add(families: Mapping[str, Family], point: object, labels: dict[str, str]) -> None:
    """The figures of one point, each to the family of its name."""
    for name, family in families.items():
        family.add(getattr(point, name), labels)


def _partitions(cells: Iterable[Cell]) -> Iterable[Family]:
    states = ("waiting", "running", "committed", "quarantined")
    n, n_bytes, n_splits = dict.fromkeys(states, 0), dict.fromkeys(states, 0), 0
    for cell in cells:
        sizes = {state: getattr(cell, state) for state in states}
        n[max(states, key=lambda state: sizes[state])] += 1
        for state in states:
            n_bytes[state] += sizes[state]
        n_splits += cell.split
    if not sum(n.values()):
        return
    partitions = Family("tamis_partitions", "The input in at most 1000 equal stretches, by what most of each is.")
    of_input = Family("tamis_input_bytes", "Input as it lies on disk, by what has become of it.")
    for state in states:
        partitions.add(n[state], {"state": state})
        of_input.add(n_bytes[state], {"state": state})
    yield partitions
    yield of_input
    yield Family("tamis_splits", "How often a partition was cut in two because it did not fit.").add(n_splits)


def _gpus(gpus: Iterable[GpuPoint]) -> Iterable[Family]:
    families = {
        "used_bytes": Family("tamis_gpu_memory_used_bytes", "Memory in use on a GPU, whoever uses it."),
        "ours_bytes": Family("tamis_gpu_memory_run_bytes", "Memory in use on a GPU by this run."),
        "total_bytes": Family("tamis_gpu_memory_total_bytes", "Memory of a GPU."),
        "busy": Family("tamis_gpu_busy_ratio", "Share of the time that a GPU works, 0 to 1."),
        "temperature_c": Family("tamis_gpu_temperature_celsius", "Temperature of a GPU."),
    }
    for point in gpus:
        _add(families, point, {"gpu": str(point.gpu), "name": point.name})
    return families.values()


class _Alerts:
    """Counts alerts as they come: the database keeps the newest ones only, and a counter must not go back."""

    def __init__(self) -> None:
        self._where = ""
        self._newest_at = float("-inf")
        self._at_newest: set[tuple[str, str]] = set()  # (rule, level) of those counted at that very moment
        self._counts: dict[tuple[str, str], int] = {}
        self._active: dict[str, str] = {}  # rule -> level

    def look(self, series: Series, where: str) -> None:
        if where != self._where:  # the next pass of a deduplication has a database of its own
            self._where, self._newest_at, self._at_newest, self._active = where, float("-inf"), set(), {}
        for alert in series.alerts(_MAX_ALERTS):
            self._count(alert)

    def _count(self, alert: AlertPoint) -> None:
        key = (alert.rule, alert.level)
        if alert.at < self._newest_at or (alert.at == self._newest_at and key in self._at_newest):
            return
        if alert.at > self._newest_at:
            self._newest_at, self._at_newest = alert.at, set()
        self._at_newest.add(key)
        if alert.level == "resolved":
            self._active.pop(alert.rule, None)
        else:
            self._active[alert.rule] = alert.level
            self._counts[key] = self._counts.get(key, 0) + 1

    def families(self) -> Iterable[Family]:
        total = Family("tamis_alerts_total", "Alerts that were raised.")
        active = Family("tamis_alert_active", "1 for each alert that was raised and is not resolved.")
        for (rule, level), n in self._counts.items():
            total.add(n, {"rule": rule, "level": level})
        for rule, level in self._active.items():
            active.add(1, {"rule": rule, "level": level})
        return total, active
