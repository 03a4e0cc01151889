"""The state of a run as its database has it now: for `tamis top`.

Reads, never writes; a damaged database is a sentence.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from tamis.engine.run_record import RunCounts, RunRecord
from tamis.engine.wire import plain
from tamis.observe.points import GpuPoint, NodePoint, ProcessPoint, StagePoint, Total
from tamis.observe.series import Series, SeriesError, open_series
from tamis.observe.snapshot import counts_of, duplicate_stages_of, read_record, record_status

RECENT_S = 10.0
STALE_S = 10.0  # a run samples every second; after this long without one it is not running
Moment = TypeVar("Moment", Total, StagePoint)


@dataclass(frozen=True)
class StageSpeed:
    """One stage since the start of the run, and its speed over the last seconds."""

    point: StagePoint
    name: str = ""
    documents_per_s: float = 0.0
    bytes_per_s: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, those of the point first."""
        return {**self.point._asdict(), **{k: v for k, v in vars(self).items() if k != "point"}}


@dataclass(frozen=True)
class LiveRun:
    """The run now. Rates are those of the last seconds."""

    total: Total = field(default_factory=Total)  # the newest sample; its `peak_bytes` is that of the whole run
    status: str = "no samples yet"  # running, finished, stopped, or what is wrong
    record: RunRecord | None = None  # of the whole run, all passes and sessions
    duplicate_stages: list[str] = field(default_factory=list)  # labels of those that remove duplicates
    name: str = ""
    host: str = ""  # the machine that the run began on
    input_bytes: int = 0  # of the files as stored; what is left is counted in these, too
    bytes_per_s: float = 0.0  # decoded
    left_per_s: float = 0.0
    seconds: float = 0.0
    processes: list[ProcessPoint] = field(default_factory=list)
    stages: list[StageSpeed] = field(default_factory=list)
    gpus: list[GpuPoint] = field(default_factory=list)
    nodes: list[NodePoint] = field(default_factory=list)
    history: list[int] = field(default_factory=list)  # bytes in use, oldest first
    units: list[tuple[int, int, int, float]] = field(default_factory=list)  # worker, decoded bytes, peak, seconds
    events: list[tuple[float, str, str]] = field(default_factory=list)
    alerts: list[tuple[float, str, str]] = field(default_factory=list)  # time, level, sentence

    @property
    def counts(self) -> RunCounts:
        """The documents of the whole run once it has ended, else those of its newest pass."""
        if self.record is not None and self.record.counts is not None:
            return self.record.counts
        return counts_of(self.total, self.duplicate_stages)

    @property
    def eta_s(self) -> float | None:
        """Seconds until the last pass ends."""
        if self.record is not None and len(self.record.passes) > 1:
            return self.record.left_s
        left_bytes = self.total.left_bytes
        return left_bytes / self.left_per_s if self.left_per_s > 0 and left_bytes > 0 else None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, those of the total first."""
        own = {f.name: plain(getattr(self, f.name)) for f in fields(self) if f.name not in ("total", "record")}
        passes = plain(self.record.passes) if self.record is not None else []
        return {**self.total._asdict(), **own, "passes": passes, "eta_s": self.eta_s}


def read_live(folder: Path, n_history: int = 60, now: float | None = None, whole_dir: Path | None = None) -> LiveRun:
    """Read the state of a run. `folder`: the run directory of its newest pass; `whole_dir`: of its output."""
    now = time.time() if now is None else now
    record = read_record(whole_dir or folder, [])
    try:
        with open_series(folder) as series:
            values = {**_totals(series, n_history, now), **_details(series)}
    except SeriesError as exc:
        return LiveRun(status=str(exc), record=record)
    if record is not None:
        values |= _whole_run(record, values.get("total", Total()), now)
    elif (folder / "run.sqlite").exists() and (folder / "manifest.json").exists():
        values["status"] = "finished"
    return LiveRun(**values)


def _whole_run(record: RunRecord, total: Total, now: float) -> dict[str, Any]:
    """Return what the record of the whole run says in place of the series of its newest pass."""
    return {
        "record": record,
        "name": record.name,
        "status": str(record_status(record, now)),
        "seconds": record.seconds,
        "host": record.sessions[-1].host[:200] if record.sessions else "",
        "total": total._replace(peak_bytes=record.peak_bytes or total.peak_bytes),
    }


def _totals(series: Series, n_history: int, now: float) -> dict[str, Any]:
    last = series.last()
    if last is None:
        return {}
    recent = series.totals(max(n_history, 60), since=last.at - max(n_history, 60))
    earlier = _earlier(last, recent)
    passed_s = last.at - earlier.at
    whole = series.totals(600)
    first_at, reported = whole[0].at, series.about.began_at  # of this attempt; earlier ones may be days ago
    began_at = reported if first_at - 60 < reported <= last.at else first_at
    return {
        "total": last._replace(peak_bytes=max(t.peak_bytes for t in whole)),
        "seconds": last.at - began_at,
        "status": "running" if now - last.at < STALE_S else "stopped",
        "history": [t.used_bytes for t in recent][-n_history:],
        "bytes_per_s": max(0, last.read_bytes - earlier.read_bytes) / passed_s if passed_s > 0 else 0.0,
        "left_per_s": max(0, earlier.left_bytes - last.left_bytes) / passed_s if passed_s > 0 else 0.0,
    }


def _details(series: Series) -> dict[str, Any]:
    newest, processes, gpus = series.stages(), series.newest_processes(), series.gpus(1)
    moments = series.stage_moments(60, since=max((p.at for p in newest), default=0.0) - 3 * RECENT_S)
    return {
        "name": series.about.name[:200],
        "host": series.about.host[:200],
        "input_bytes": series.about.input_bytes,
        "stages": [_stage(point, [p for p in moments if p.stage == point.stage]) for point in newest],
        "processes": processes,
        "duplicate_stages": sorted(duplicate_stages_of(series.about)),
        "nodes": series.nodes(),
        "gpus": [g._replace(name=g.name[:40]) for g in gpus if g.at == gpus[-1].at],
        "units": [(u.worker, u.decoded_bytes, u.peak_bytes, u.seconds) for u in series.units(8)][::-1],
        "events": [(e.at, e.kind[:40], _sentence(e.data)) for e in series.events(6)],
        "alerts": [(a.at, a.level[:20], a.text[:300]) for a in series.alerts(4)],
    }


def _earlier(last: Moment, recent: list[Moment]) -> Moment:
    """Return the moment that `last` is compared with for a speed: some seconds before it, or the first known."""
    return next((p for p in reversed(recent) if last.at - p.at >= RECENT_S), recent[0] if recent else last)


def _stage(last: StagePoint, recent: list[StagePoint]) -> StageSpeed:
    earlier = _earlier(last, recent)
    passed_s = last.at - earlier.at
    grown = (last.n_in - earlier.n_in, last.in_bytes - earlier.in_bytes)
    rates = [max(0, n) / passed_s if passed_s > 0 else 0.0 for n in grown]
    return StageSpeed(last, name=last.stage[:200], documents_per_s=rates[0], bytes_per_s=rates[1])


def _sentence(facts: dict[str, object]) -> str:
    return str(facts.get("text") or facts.get("error") or facts.get("reason") or "")[:200]
