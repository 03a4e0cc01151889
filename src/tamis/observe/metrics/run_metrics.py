"""The metrics of a run, from its run directory: what `tamis metrics` and `tamis run --metrics-port` serve.

Names carry units and begin with tamis_. Counters count since the start of the run, earlier attempts included. What is
not known (no GPU, no pressure information) is left out rather than shown as zero. A run directory
that cannot be read gives tamis_up 0 and tamis_readable 0.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tamis.engine.run_record import RunRecord
from tamis.engine.schema import RunFacts
from tamis.observe.metrics.exposition import MetricFamily, render
from tamis.observe.passes import find_shown_run
from tamis.observe.points import AlertPoint, Cell, Total
from tamis.observe.series import Series, SeriesError, open_series
from tamis.observe.snapshot import read_record

STALE_S = 15.0  # a run samples every second; after this long without one it is not running
_MAX_ALERTS = 5000


class RunMetrics:
    """One run, looked at again and again. Remembers the alerts it has counted, which the database forgets in time."""

    def __init__(self, run_dir: Path, scratch: str | None = None) -> None:
        self.run_dir, self.scratch = run_dir, scratch
        self._alerts = _Alerts()

    def text(self, now: float | None = None) -> str:
        """Return everything that is known now, in the text format of Prometheus."""
        at = time.time() if now is None else now
        place = find_shown_run(self.run_dir, self.scratch)
        record = read_record(self.run_dir, [])
        finished = (place.run_dir / "manifest.json").exists() if record is None else record.counts is not None
        try:
            with open_series(place.run_dir) as series:
                about, last, stages = series.about, series.last(), series.stages()
                gpus, cells = series.gpus(max_points=1), series.cells()
                self._alerts.look(series, str(place.run_dir))
        except SeriesError:
            return render([*_state(False, finished, readable=False)])
        running = last is not None and not finished and at - last.at < STALE_S
        running = running if record is None else record.is_live(at)
        info = _family("tamis_run_info").add(1, _labels(about, record))
        start = _family("tamis_run_start_time_seconds").add(about.began_at or None)
        families = [*_state(running, finished, readable=True), info, start, *_whole_run(record)]
        if last is not None:
            families += _totals(last)
        families += _families(_STAGES, [({"stage": p.stage}, p._asdict()) for p in stages])
        families += _partitions(cells)
        families += _families(_GPUS, [({"gpu": str(p.gpu), "name": p.name}, p._asdict()) for p in gpus])
        return render([*families, *self._alerts.families()])


def _state(running: bool, finished: bool, readable: bool) -> Iterable[MetricFamily]:
    yield _family("tamis_up").add(int(running))
    yield _family("tamis_finished").add(int(finished))
    yield _family("tamis_readable").add(int(readable))


def _labels(about: RunFacts, record: RunRecord | None) -> dict[str, str]:
    """Return the labels of a run: as its record names it, or as its database does where there is none."""
    if record is None:
        return {"run_id": about.run_id, "name": about.name, "pass": ""}
    return {
        "run_id": record.run_id,
        "name": record.name,
        "pass": "" if record.current is None else record.current.label,
    }


# Families that are computed: help text, and the names of their labels.
_COMPUTED = {
    "tamis_up": ("1 while the run works, 0 before, after, or when it was killed.", ()),
    "tamis_finished": ("1 once the run has finished.", ()),
    "tamis_readable": ("0 if the run database is damaged.", ()),
    "tamis_run_info": ("Always 1. The run, and the pass of a deduplication.", ("run_id", "name", "pass")),
    "tamis_run_start_time_seconds": ("When the last attempt began, in Unix time.", ()),
    "tamis_pass_done_ratio": ("How much of each pass is done, 0 to 1.", ("pass",)),
    "tamis_pass_seconds_total": ("Time that each pass took so far, all sessions.", ("pass",)),
    "tamis_alerts_total": ("Alerts that were raised.", ("rule", "level")),
    "tamis_alert_active": ("1 for each alert that was raised and is not resolved.", ("rule", "level")),
}


def _family(name: str) -> MetricFamily:
    return MetricFamily(name, _COMPUTED[name][0])


def _whole_run(record: RunRecord | None) -> Iterable[MetricFamily]:
    """Return the figures of the whole run, all of its passes and sessions."""
    if record is None:
        return
    values: dict[str, Any] = {**record.cost(), "share": round(record.share, 4), "left_s": record.left_s}
    for name, help_, key in _WHOLE_RUN:
        yield MetricFamily(name, help_).add(values[key])
    passes, seconds = _family("tamis_pass_done_ratio"), _family("tamis_pass_seconds_total")
    for p in record.passes:
        passes.add(p.share, {"pass": p.label})
        seconds.add(p.seconds, {"pass": p.label})
    yield from (passes, seconds)


_WHOLE_RUN = (
    ("tamis_run_seconds_total", "Time that the run worked, all passes and sessions.", "seconds"),
    ("tamis_run_memory_peak_bytes", "The most memory in use at any instant, all passes and sessions.", "peak_bytes"),
    ("tamis_run_read_bytes_total", "Input read, decoded, each byte once though several passes read it.", "read_bytes"),
    ("tamis_run_sessions", "Calls of the command: more than one where the run was resumed.", "n_sessions"),
    ("tamis_run_done_ratio", "How much of all passes is done, 0 to 1.", "share"),
    ("tamis_run_left_seconds", "Estimated time until the last pass ends.", "left_s"),
)


# Families: name, what it is, a label, and column by value of that label ("": the family has none).
Table = tuple[tuple[str, str, str, dict[str, str]], ...]
_TOTALS: Table = (
    ("tamis_sample_time_seconds", "When these figures were taken, in Unix time.", "", {"": "at"}),
    ("tamis_memory_used_bytes", "Memory of all processes of the run together.", "", {"": "used_bytes"}),
    ("tamis_memory_budget_bytes", "The budget, which is never exceeded.", "", {"": "budget_bytes"}),
    ("tamis_memory_recent_peak_bytes", "The most in use since the figures before these (1 s).", "", {"": "peak_bytes"}),
    (
        "tamis_pressure_level",
        "Pressure on the budget: 0 none, 1 no growth, 2 only the end of the pipeline starts, 3 workers are stopped, 4 "
        "one worker.",
        "",
        {"": "level"},
    ),
    ("tamis_worker_memory_bytes", "Memory of each worker process.", "worker", {}),  # as many as there are
    (
        "tamis_process_memory_bytes",
        "Memory of the processes that are no workers.",
        "role",
        {"supervisor": "supervisor_bytes", "server": "server_bytes"},
    ),
    ("tamis_processes", "Processes of the run.", "", {"": "n_processes"}),
    ("tamis_left_bytes", "Input that is still to be done, in bytes on disk.", "", {"": "left_bytes"}),
    ("tamis_queue_bytes", "Blocks between processes.", "", {"": "queue_bytes"}),
    ("tamis_scratch_bytes", "Temporary files and files not yet committed.", "", {"": "scratch_bytes"}),
    ("tamis_disk_free_bytes", "Free space where output and scratch lie, the lesser.", "", {"": "disk_free_bytes"}),
    (
        "tamis_machine_memory_bytes",
        "Memory of the machine.",
        "kind",
        {"used": "machine_used_bytes", "total": "machine_total_bytes"},
    ),
    (
        "tamis_cgroup_memory_bytes",
        "Memory of the control group that the run is in, if it has a limit.",
        "kind",
        {"used": "cgroup_used_bytes", "limit": "cgroup_limit_bytes"},
    ),
    (
        "tamis_psi_percent",
        "Share of the last 10 s in which some or all tasks waited for memory.",
        "kind",
        {"some": "psi_some", "full": "psi_full"},
    ),
    ("tamis_cpu_seconds_total", "CPU time of all processes of this attempt.", "", {"": "cpu_s"}),
    (
        "tamis_documents_total",
        "Documents: read, written, dropped by a rule, dropped as a duplicate, quarantined.",
        "state",
        {
            "read": "documents",
            "written": "written",
            "dropped": "dropped",
            "duplicate": "duplicates",
            "quarantined": "quarantined",
        },
    ),
    ("tamis_documents_in_flight", "Documents read, and neither written nor dropped so far.", "", {"": "in_flight"}),
    ("tamis_read_bytes_total", "Input read, decoded.", "", {"": "read_bytes"}),
)
# Of these zero means unknown.
_NOT_ZERO = (
    "supervisor_bytes",
    "server_bytes",
    "n_processes",
    "disk_free_bytes",
    "machine_used_bytes",
    "machine_total_bytes",
    "cpu_s",
    "cgroup_limit_bytes",
)


_STAGES: Table = (
    (
        "tamis_stage_documents_total",
        "Documents that went into a stage, came out, were dropped, quarantined.",
        "direction",
        {"in": "n_in", "out": "n_out", "dropped": "n_dropped", "quarantined": "n_quarantined"},
    ),
    ("tamis_stage_read_bytes_total", "Bytes of the records that went into a stage.", "", {"": "in_bytes"}),
    ("tamis_stage_seconds_total", "Time that workers spent in a stage.", "", {"": "seconds"}),
    ("tamis_stage_cpu_seconds_total", "CPU time that workers spent in a stage.", "", {"": "cpu_s"}),
    ("tamis_stage_peak_bytes", "The most memory that one partition took in a stage.", "", {"": "peak_bytes"}),
)
_STATES = ("waiting", "running", "committed", "quarantined")
_PARTITIONS: Table = (
    (
        "tamis_partitions",
        "The input in at most 1000 equal stretches, by what most of each is.",
        "state",
        {s: f"n_{s}" for s in _STATES},
    ),
    ("tamis_input_bytes", "Input in bytes on disk, by its state.", "state", {s: s for s in _STATES}),
    ("tamis_splits", "How often a partition was cut in two because it did not fit.", "", {"": "split"}),
)
_GPUS: Table = (
    ("tamis_gpu_memory_used_bytes", "Memory in use on a GPU, by all processes.", "", {"": "used_bytes"}),
    ("tamis_gpu_memory_run_bytes", "Memory in use on a GPU by this run.", "", {"": "ours_bytes"}),
    ("tamis_gpu_memory_total_bytes", "Memory of a GPU.", "", {"": "total_bytes"}),
    ("tamis_gpu_busy_ratio", "Share of the time that a GPU works, 0 to 1.", "", {"": "busy"}),
    ("tamis_gpu_temperature_celsius", "Temperature of a GPU.", "", {"": "temperature_c"}),
)


def list_metrics() -> list[tuple[MetricFamily, str]]:
    """Return every family that a run can export, without samples, and its labels in words.

    >>> [labels for family, labels in list_metrics() if family.name == "tamis_documents_total"]
    ['state (read, written, dropped, duplicate, quarantined)']
    """
    listed = [(_family(name), ", ".join(labels)) for name, (_, labels) in _COMPUTED.items()]
    listed += [(MetricFamily(name, help_), "") for name, help_, _ in _WHOLE_RUN]
    for table, shared in ((_TOTALS, ""), (_STAGES, "stage"), (_PARTITIONS, ""), (_GPUS, "gpu, name")):
        for name, help_, label, columns in table:
            values = f" ({', '.join(columns)})" if label and columns else ""
            listed.append((MetricFamily(name, help_), ", ".join(filter(None, (shared, label + values)))))
    return listed


def _families(table: Table, rows: Sequence[tuple[Mapping[str, str], Mapping[str, Any]]]) -> Iterable[MetricFamily]:
    """Yield metric families. `rows`: labels and values of each stage, each GPU, or of the whole run."""
    for name, help_, label, columns in table:
        family = MetricFamily(name, help_)
        for labels, values in rows:
            for value, column in columns.items():
                family.add(values[column], {**labels, label: value} if label else labels)
        yield family


def _totals(last: Total) -> Iterable[MetricFamily]:
    values: dict[str, Any] = {k: v or None if k in _NOT_ZERO else v for k, v in last._asdict().items()}
    values["dropped"] = max(0, last.dropped - last.duplicates)
    if not last.cgroup_limit_bytes:
        values["cgroup_used_bytes"] = None
    workers = {worker: f"worker {worker}" for worker in last.workers}
    values |= {workers[worker]: used for worker, used in last.workers.items()}
    return _families(tuple((*row[:3], row[3] or workers) for row in _TOTALS), [({}, values)])


def _partitions(cells: Sequence[Cell]) -> Iterable[MetricFamily]:
    most = Counter(f"n_{max(_STATES, key=lambda state: getattr(cell, state))}" for cell in cells)
    sums = {name: sum(getattr(cell, name) for cell in cells) for name in (*_STATES, "split")}
    counts = {f"n_{state}": most[f"n_{state}"] for state in _STATES}
    return _families(_PARTITIONS, [({}, {**counts, **sums})] if cells else [])


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

    def families(self) -> Iterable[MetricFamily]:
        total, active = _family("tamis_alerts_total"), _family("tamis_alert_active")
        for (rule, level), n in self._counts.items():
            total.add(n, {"rule": rule, "level": level})
        for rule, level in self._active.items():
            active.add(1, {"rule": rule, "level": level})
        return total, active
