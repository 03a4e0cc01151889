"""Everything that pages show of a run, read once from its run directory: for the dashboard and for the report.

Nothing in there is trusted: files are read up to a size, what is missing is left out, what is damaged becomes a
sentence in `problems`. plan.json is not read, since it may list a hundred thousand input files.
"""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Collection
from dataclasses import field
from pathlib import Path
from typing import Any, NamedTuple

from tamis._dataclasses import dataclass
from tamis.engine.run_record import FILE as RECORD_FILE
from tamis.engine.run_record import RunCounts, RunRecord, RunStatus, parse_run_record
from tamis.engine.schema import Manifest, RunFacts, read_fields
from tamis.forecast.prediction import Prediction, parse_prediction
from tamis.observe import points
from tamis.observe.series import SeriesError, open_series

STALE_S = 15.0  # a run samples every second; after this long without one it is not running
RECENT_S = 20
MAX_FILE_BYTES = 16 << 20


@dataclass
class Snapshot:
    """The state of a run for a page.

    `began_at`: when the last attempt began; times of charts count from there. `status`: starting, running, stopped
    (without having finished), or that of the manifest (finished, sampled).
    """

    run_dir: Path
    status: str = "starting"
    name: str = ""
    run_id: str = ""
    exit_code: int | None = None
    message: str = ""
    began_at: float = 0.0
    seconds: float = 0.0
    budget_bytes: int = 0
    peak_bytes: int = 0
    totals: list[points.Total] = field(default_factory=list)
    recent: list[points.Total] = field(default_factory=list)  # of the last seconds, for speeds
    last: points.Total | None = None
    stages: list[points.StagePoint] = field(default_factory=list)
    stage_moments: list[points.StagePoint] = field(default_factory=list)
    processes: list[points.ProcessPoint] = field(default_factory=list)  # of the newest moment
    gpus: list[points.GpuPoint] = field(default_factory=list)
    nodes: list[points.NodePoint] = field(default_factory=list)  # of a cluster
    cells: list[points.Cell] = field(default_factory=list)
    drops: list[points.DropPoint] = field(default_factory=list)
    dropped: list[points.DroppedPoint] = field(default_factory=list)  # the last ones
    events: list[points.EventPoint] = field(default_factory=list)
    alerts: list[points.AlertPoint] = field(default_factory=list)
    units: list[points.UnitPoint] = field(default_factory=list)
    manifest: Manifest | None = None  # once the run has ended
    record: RunRecord | None = None  # of the whole run, all passes and sessions
    settings: list[dict[str, Any]] = field(default_factory=list)
    prediction: Prediction = field(default_factory=Prediction)
    about: RunFacts = field(default_factory=RunFacts)
    problems: list[str] = field(default_factory=list)

    @property
    def counts(self) -> RunCounts | None:
        """The documents of the whole run once it has ended, else those of its newest pass at the newest moment."""
        if self.record is not None and self.record.counts is not None:
            return self.record.counts
        return None if self.last is None else counts_of(self.last, self.duplicate_stages)

    @property
    def duplicate_stages(self) -> set[str]:
        """Labels of the stages that remove duplicates."""
        recorded = self.record.duplicate_stages if self.record is not None else []
        return set(recorded) or duplicate_stages_of(self.about)

    @property
    def shows_documents(self) -> bool:
        """True if pages may show parts of documents (setting no_samples)."""
        return self.about.shows_documents

    @property
    def reads_texts(self) -> bool:
        """True if pages may show texts as they are in the input: not where the run removes values from them."""
        return self.shows_documents and not self.about.redacts

    def rate(self, column: str) -> float:
        """Return how fast a count of the totals grows now, per second."""
        if len(self.recent) < 2:
            return 0.0
        a, b = self.recent[0], self.recent[-1]
        return max(float(getattr(b, column) - getattr(a, column)), 0.0) / (b.at - a.at) if b.at > a.at else 0.0

    @property
    def left_s(self) -> float | None:
        """Seconds until nothing is left, at the current speed; None if unknown."""
        if len(self.recent) < 2 or self.recent[-1].at <= self.recent[0].at:
            return None
        a, b = self.recent[0], self.recent[-1]
        return b.left_bytes * (b.at - a.at) / (a.left_bytes - b.left_bytes) if a.left_bytes > b.left_bytes else None

    @property
    def live(self) -> bool:
        return self.status == "running"

    @property
    def good(self) -> bool:
        return self.status in ("finished", "sampled") and not self.exit_code


class SnapshotLimits(NamedTuple):
    """Bounds of what is read. `recent_s`: only the last so many seconds of the series; None: all of the attempt."""

    n_points: int = 150
    n_moments: int = 50
    n_events: int = 60
    recent_s: float | None = None


def read_snapshot(
    run_dir: Path, limits: SnapshotLimits | None = None, now: float | None = None, whole_dir: Path | None = None
) -> Snapshot:
    """Read the state of a run. `run_dir`: of its newest pass; `whole_dir`: of its output, if that is another one."""
    limits, now = limits or SnapshotLimits(), time.time() if now is None else now
    snapshot = Snapshot(run_dir)
    if data := read_object(run_dir / "manifest.json", snapshot.problems):
        snapshot.manifest = read_fields(Manifest, data, snapshot.problems, "manifest.json")
    kept = read_object(run_dir / "settings.json", snapshot.problems).get("settings", [])
    snapshot.settings = [e for e in kept[:1000] if isinstance(e, dict)] if isinstance(kept, list) else []
    snapshot.prediction = parse_prediction(read_object(run_dir / "prediction.json", snapshot.problems))
    try:
        _read_series(snapshot, limits, now)
    except SeriesError as exc:
        snapshot.problems.append(str(exc))
    _read_manifest(snapshot)
    snapshot.record = read_record(whole_dir or run_dir, snapshot.problems)
    if snapshot.record is not None:
        _apply_record(snapshot, snapshot.record, now)
    return snapshot


def duplicate_stages_of(about: RunFacts) -> set[str]:
    """Return the labels of the stages that remove duplicates, from the facts in a run database."""
    return {label[:200] for label in about.duplicate_stages[:1000]}


def counts_of(total: points.Total, duplicate_stages: Collection[str]) -> RunCounts:
    """Return the documents at one moment of a run."""
    return RunCounts(
        records=total.documents,
        written=total.written,
        dropped=total.dropped,
        duplicates=total.duplicates if duplicate_stages else None,
        quarantined=total.quarantined,
        not_sampled=total.not_sampled,
        added=total.added,
        read_bytes=total.read_bytes,
    )


def read_record(run_dir: Path, problems: list[str]) -> RunRecord | None:
    """Read the record of a whole run from the run directory of its output; None if there is none."""
    return parse_run_record(read_object(run_dir / RECORD_FILE, problems), problems)


def record_status(record: RunRecord, now: float) -> str:
    """Return how a run is doing: that of its record, or stopped where no process keeps it up to date."""
    return RunStatus.STOPPED if record.status is RunStatus.RUNNING and not record.is_live(now) else record.status


def _apply_record(snapshot: Snapshot, record: RunRecord, now: float) -> None:
    """Take the figures of the whole run from its record; those of the newest pass are in the series."""
    snapshot.name, snapshot.run_id = record.name or snapshot.name, record.run_id or snapshot.run_id
    snapshot.status, snapshot.seconds = str(record_status(record, now)), record.seconds
    snapshot.budget_bytes = record.budget_bytes or snapshot.budget_bytes
    snapshot.peak_bytes = record.peak_bytes or snapshot.peak_bytes
    snapshot.exit_code, snapshot.message = record.exit_code, record.message
    if record.counts is None and snapshot.manifest is not None:  # of one pass: the run has not ended
        snapshot.manifest = None


def _read_series(snapshot: Snapshot, limits: SnapshotLimits, now: float) -> None:
    with open_series(snapshot.run_dir) as series:
        about = snapshot.about = series.about
        snapshot.name, snapshot.run_id = about.name[:200], about.run_id[:200]
        snapshot.last = last = series.last()
        if last is not None:
            # What an earlier attempt left is not stretched over the gap.
            attempt = about.began_at if 0 < about.began_at <= last.at else None
            since = attempt if limits.recent_s is None else max(attempt or 0.0, last.at - limits.recent_s)
            snapshot.totals = series.totals(limits.n_points, since)
            snapshot.recent = series.totals(RECENT_S, last.at - RECENT_S)
            snapshot.began_at = attempt or (snapshot.totals[0].at if snapshot.totals else last.at)
            snapshot.seconds = max(last.at - snapshot.began_at, 0.0)
            snapshot.budget_bytes = last.budget_bytes
            snapshot.peak_bytes = max((t.peak_bytes for t in snapshot.totals), default=0)
            snapshot.status = "running" if now - last.at < STALE_S else "stopped"
            snapshot.stage_moments = series.stage_moments(limits.n_moments, since)
            snapshot.gpus = series.gpus(limits.n_moments, since)
        moments = snapshot.stage_moments
        snapshot.stages = [p for p in moments if p.at == moments[-1].at] if moments else series.stages()
        snapshot.processes = series.newest_processes(max(last.n_processes, 0) + 8 if last is not None else 8)
        snapshot.nodes = series.nodes()
        snapshot.cells, snapshot.drops, snapshot.dropped = series.cells(), series.drops(), series.dropped()
        snapshot.events, snapshot.alerts = series.events(limits.n_events), series.alerts(limits.n_events)
        snapshot.units = series.units(64)


def _read_manifest(snapshot: Snapshot) -> None:
    manifest = snapshot.manifest
    if manifest is None:
        return
    snapshot.status, snapshot.exit_code = manifest.status[:200], manifest.exit_code
    snapshot.message = manifest.message[:2000]
    snapshot.run_id = (manifest.run_id or snapshot.run_id)[:200]
    snapshot.seconds = _number(manifest.seconds) or snapshot.seconds
    snapshot.budget_bytes = int(_number(manifest.budget_bytes)) or snapshot.budget_bytes
    snapshot.peak_bytes = int(_number(manifest.peak_bytes)) or snapshot.peak_bytes


def read_object(path: Path, problems: list[str]) -> dict[str, Any]:
    """Read a JSON object from a plain file of bounded size; return {} if there is none."""
    try:
        # Not blocking: a planted pipe must not make us wait forever.
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with open(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise OSError("not a file")
            raw = file.read(MAX_FILE_BYTES + 1)
        if len(raw) > MAX_FILE_BYTES:
            problems.append(f"{path.name} is left out: it has more than {MAX_FILE_BYTES >> 20} MiB")
            return {}
        data = json.loads(raw)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as exc:
        problems.append(f"{path.name} cannot be read ({type(exc).__name__})")
        return {}
    if not isinstance(data, dict):
        problems.append(f"{path.name} is damaged: expected an object")
        return {}
    return data


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 2**63:
        return 0.0
    return float(value)
