"""The state of a run as its database tells it now: for `tamis top`. Reads, never writes; a damaged database is a sentence."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path

from tamis.observe.series import NodePoint, Series, SeriesError, StagePoint, Total, open_series

RECENT_S = 10.0
STALE_S = 10.0  # a run samples every second; after this long without one it is not running
_NAME_BYTES = 64 << 20  # of a plan.json; larger ones are not opened for a name


@dataclass(frozen=True)
class Process:
    """One process now. `role`: supervisor, server or worker (with its number)."""

    role: str
    worker: int
    pid: int
    pss_bytes: int
    anon_bytes: int
    peak_bytes: int
    cpu_s: float


@dataclass(frozen=True)
class Stage:
    """One stage: totals since the start of the run, and its speed over the last seconds."""

    name: str
    n_in: int
    n_out: int
    n_dropped: int
    seconds: float
    cpu_s: float
    peak_bytes: int
    documents_per_s: float
    bytes_per_s: float


@dataclass(frozen=True)
class Gpu:
    gpu: int
    name: str
    used_bytes: int
    total_bytes: int
    ours_bytes: int
    busy: float | None
    temperature_c: float | None


@dataclass
class Live:
    """Bytes and counts now; rates over the last seconds."""

    status: str = "no samples yet"  # running, finished, stopped, or what is wrong
    name: str = ""
    used_bytes: int = 0
    budget_bytes: int = 0
    peak_bytes: int = 0
    level: int = 0
    documents: int = 0
    written: int = 0
    dropped: int = 0
    quarantined: int = 0
    duplicates: int = 0
    read_bytes: int = 0
    left_bytes: int = 0
    input_bytes: int = 0  # of the files, as they lie there; what is left is counted in these, too
    bytes_per_s: float = 0.0  # decoded
    left_per_s: float = 0.0
    seconds: float = 0.0
    cpu_s: float = 0.0
    queue_bytes: int = 0
    scratch_bytes: int = 0
    disk_free_bytes: int = 0
    machine_used_bytes: int = 0
    machine_total_bytes: int = 0
    cgroup_used_bytes: int = 0
    cgroup_limit_bytes: int = 0
    psi_some: float | None = None
    psi_full: float | None = None
    workers: dict[str, int] = field(default_factory=dict)
    processes: list[Process] = field(default_factory=list)
    stages: list[Stage] = field(default_factory=list)
    gpus: list[Gpu] = field(default_factory=list)
    nodes: list[NodePoint] = field(default_factory=list)
    history: list[int] = field(default_factory=list)  # bytes in use, oldest first
    units: list[tuple[int, int, int, float]] = field(default_factory=list)  # worker, decoded bytes, peak, seconds
    events: list[tuple[float, str, str]] = field(default_factory=list)
    alerts: list[tuple[float, str, str]] = field(default_factory=list)  # time, level, sentence

    @property
    def eta_s(self) -> float | None:
        return self.left_bytes / self.left_per_s if self.left_per_s > 0 and self.left_bytes > 0 else None


_SAME = (
    "used_bytes", "budget_bytes", "level", "documents", "written", "dropped", "quarantined", "duplicates", "read_bytes", "left_bytes",
    "cpu_s", "queue_bytes", "scratch_bytes", "disk_free_bytes", "machine_used_bytes", "machine_total_bytes", "cgroup_used_bytes",
    "cgroup_limit_bytes", "psi_some", "psi_full", "workers",
)  # fmt: skip


def read_live(folder: Path, n_history: int = 60, now: float | None = None) -> Live:
    """`folder`: the run directory."""
    live = Live()
    try:
        with open_series(folder) as series:
            live.name = str(series.about.get("name") or "")[:200]
            told = series.about.get("input_bytes")
            live.input_bytes = told if isinstance(told, int) and not isinstance(told, bool) else 0
            _read(series, live, n_history, time.time() if now is None else now)
    except SeriesError as exc:
        live.status = str(exc)
        return live
    live.name = live.name or _name(folder)
    if (folder / "run.sqlite").exists() and (folder / "manifest.json").exists():
        live.status = "finished"
    return live


def _read(series: Series, live: Live, n_history: int, now: float) -> None:
    last = series.last()
    if last is not None:
        recent = series.totals(max(n_history, 60), since=last.at - max(n_history, 60))
        _read_totals(live, last, recent, n_history)
        whole = series.totals(600)
        live.peak_bytes = max(t.peak_bytes for t in whole)
        began = series.about.get("began_at")  # of this attempt; earlier ones may be days ago
        live.seconds = last.at - (
            began if isinstance(began, float) and whole[0].at - 60 < began <= last.at else whole[0].at
        )
        live.status = "running" if now - last.at < STALE_S else "stopped"
    newest = series.stages()
    moments = series.stage_moments(60, since=max((p.at for p in newest), default=0.0) - 3 * RECENT_S)
    live.stages = [_stage(point, [p for p in moments if p.stage == point.stage]) for point in newest]
    found = series.processes(1)
    live.processes = [
        Process(p.role, p.worker, p.pid, p.pss_bytes, p.anon_bytes, p.peak_bytes, p.cpu_s)
        for p in found
        if p.at == found[-1].at
    ]
    live.nodes = series.nodes()
    gpus = series.gpus(1)
    live.gpus = [
        Gpu(g.gpu, g.name[:40], g.used_bytes, g.total_bytes, g.ours_bytes, g.busy, g.temperature_c)
        for g in gpus
        if g.at == gpus[-1].at
    ]
    live.units = [(u.worker, u.decoded_bytes, u.peak_bytes, u.seconds) for u in series.units(8)][::-1]
    live.events = [(e.at, e.kind[:40], _sentence(e.data)) for e in series.events(6)]
    live.alerts = [(a.at, a.level[:20], a.text[:300]) for a in series.alerts(4)]


def _read_totals(live: Live, last: Total, recent: list[Total], n_history: int) -> None:
    for name in _SAME:
        setattr(live, name, getattr(last, name))
    live.history = [t.used_bytes for t in recent][-n_history:]
    earlier = next((t for t in reversed(recent) if last.at - t.at >= RECENT_S), recent[0] if recent else last)
    if last.at > earlier.at and last.read_bytes >= earlier.read_bytes:
        live.bytes_per_s = (last.read_bytes - earlier.read_bytes) / (last.at - earlier.at)
    if last.at > earlier.at:
        live.left_per_s = max(0, earlier.left_bytes - last.left_bytes) / (last.at - earlier.at)


def _stage(last: StagePoint, recent: list[StagePoint]) -> Stage:
    """Speed over the last seconds."""
    earlier = next((p for p in reversed(recent) if last.at - p.at >= RECENT_S), recent[0] if recent else last)
    passed_s = last.at - earlier.at
    n, n_bytes = last.n_in - earlier.n_in, last.in_bytes - earlier.in_bytes
    return Stage(
        last.stage[:200],
        last.n_in,
        last.n_out,
        last.n_dropped,
        last.seconds,
        last.cpu_s,
        last.peak_bytes,
        max(0, n) / passed_s if passed_s > 0 else 0.0,
        max(0, n_bytes) / passed_s if passed_s > 0 else 0.0,
    )


def _sentence(facts: dict[str, object]) -> str:
    return str(facts.get("text") or facts.get("error") or facts.get("reason") or "")[:200]


def _name(folder: Path) -> str:
    """From the plan, for databases of earlier versions."""
    try:
        path = folder / "plan.json"
        if path.stat().st_size > _NAME_BYTES:
            return ""
        plan = json.loads(path.read_text(encoding="utf-8"))
        return str(plan.get("name", ""))[:200] if isinstance(plan, dict) else ""
    except (OSError, ValueError, RecursionError):
        return ""
