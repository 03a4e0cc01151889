"""Workers that keep memory: who is under suspicion, which stage it is, when a worker is replaced for it. Pure.

Every worker belongs to a line: itself, and those that took its place because it had gathered too much. The floors of a
line are one series (memory/leaks.py), so that a leak which fills a cap in twenty partitions is found too. Once a check
says leak, the next partitions are probed (worker/probe.py: what each stage keeps); once the checks agree, the leak is
noted, with the stage, what the memory is made of and how long the cap will last.

A leak is proven when one worker alone lived long enough to show it. From then on workers of that segment are replaced
when their floor has risen by a tenth of their cap: after N* = 0.1 cap / slope partitions. The worker that proved it is
the witness: it stays while its partitions fit, so that a large cache is cleared when it is full. A rise that only shows
across replaced workers is noted too, as not proven, and replaces no worker early.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import field
from statistics import median

from tamis._dataclasses import dataclass
from tamis.engine.messages import Done, RetainedMemory, Vitals
from tamis.engine.schema import EventKind, MemoryLeak
from tamis.engine.supervisor.actions import Action, Note
from tamis.engine.units import Mode, Unit
from tamis.memory.attribution import ARROW, PYTHON, UNEXPLAINED, Shares, attribute
from tamis.memory.leaks import MAX_POINTS, N_IGNORED, FloorTrend, LeakVerdict, allowance, partitions_until
from tamis.sizes import format_size

PROBES, MAX_PROBES, MAX_WAITED = 4, 8, 12
_COUNTERS = ("python_blocks", "arrow_bytes", "malloc_bytes", "shared_bytes")
_NAMED_SHARE = 0.3  # a stage is named when it keeps at least this much of what the floor rises by


@dataclass
class WorkerSeries:
    """A worker and its predecessors."""

    trend: FloorTrend = field(default_factory=FloorTrend)
    probes: list[RetainedMemory] = field(default_factory=list)
    n_probes: int = 0
    n_waited: int = 0  # partitions since the checks agreed: some workers (feeders) cannot be probed
    _counters: dict[str, int] = field(default_factory=dict)
    _grown: deque[dict[str, int]] = field(default_factory=lambda: deque(maxlen=MAX_POINTS))
    _n_units: int = 0

    def add(self, vitals: Vitals, retained: RetainedMemory | None = None) -> None:
        """Note what is left after a partition; `retained`: what a probe found."""
        self.trend.add(float(vitals.level_bytes))
        now = {name: n for name in _COUNTERS if (n := getattr(vitals, name)) is not None}
        self._n_units += 1
        if self._n_units > N_IGNORED and self._counters:
            self._grown.append({name: n - self._counters.get(name, n) for name, n in now.items()})
        self._counters = now
        if retained is not None:
            self.probes.append(retained)
        self.n_waited += self.trend.verdict.is_leak

    def succeed(self) -> None:
        """Begin the next worker of the line."""
        self.trend.succeed()
        self._counters, self._n_units = {}, 0

    @property
    def wants_probe(self) -> bool:
        return self.trend.suspected and len(self.probes) < PROBES and self.n_probes < MAX_PROBES

    @property
    def is_explained(self) -> bool:
        return len(self.probes) >= PROBES or self.n_probes >= MAX_PROBES or self.n_waited > MAX_WAITED

    def shares(self, slope_bytes: float) -> tuple[Shares, str, str]:
        """Return what the growth per partition is made of, the type that grew most, and the variable that holds it.

        The variable is "" if it is unknown.
        """
        mean = {name: sum(g.get(name, 0) for g in self._grown) / len(self._grown) for name in _COUNTERS if self._grown}
        complete = [p for p in self.probes if p.python_bytes is not None]
        python = median(p.python_bytes or 0 for p in complete) if complete else None
        shares = attribute(
            slope_bytes,
            blocks=mean.get("python_blocks", 0.0),
            arrow_bytes=mean.get("arrow_bytes", 0.0),
            malloc_bytes=mean.get("malloc_bytes") if "malloc_bytes" in self._counters else None,
            python_bytes=python,
            shared_bytes=mean.get("shared_bytes", 0.0),
            pinned_bytes=median(p.arrow_bytes for p in complete) if complete else 0.0,
        )
        if shares.main not in (PYTHON, ARROW):
            return shares, "", ""
        types = [p.python_type if shares.main == PYTHON else p.arrow_type for p in complete]
        least = _NAMED_SHARE * slope_bytes
        variables = [p.variable if p.variable_bytes >= least else "" for p in complete]
        return shares, _most_common(types), _most_common(variables)

    def stage(self, slope_bytes: float) -> str:
        """Return the stage that keeps memory, according to the probes; "" if there is none."""
        by_label: dict[str, list[Mapping[str, int]]] = {}
        for probe in self.probes:
            for label, retained in probe.stages:
                by_label.setdefault(label, []).append(retained)
        # Allocators count exactly; resident memory moves by whole arenas, so it is used only where they know nothing.
        for weigh in (_counted, _resident):
            by_stage = {label: median(weigh(h) for h in retained) for label, retained in by_label.items()}
            best = max(by_stage, key=lambda label: by_stage[label], default="")
            if best and by_stage[best] >= _NAMED_SHARE * slope_bytes:
                return best
        return ""


def _most_common(values: list[str]) -> str:
    return max(sorted(set(values)), key=values.count, default="")


def _counted(retained: Mapping[str, int]) -> float:
    return retained.get("malloc_bytes", retained.get("arrow_bytes", 0)) + 64 * retained.get("python_blocks", 0)


def _resident(retained: Mapping[str, int]) -> float:
    return retained.get("rss_bytes", 0)


class Leakage:
    """The leaks found in this run."""

    def __init__(self) -> None:
        self._lines: dict[int, WorkerSeries] = {}  # by worker
        self._orphans: dict[int, list[WorkerSeries]] = {}  # by segment: lines whose worker was replaced
        self._open_warnings: dict[int, MemoryLeak] = {}  # by segment
        self._witnesses: dict[int, int] = {}  # by segment: the worker that proved a leak

    @property
    def leaks(self) -> list[MemoryLeak]:
        """Leaks, one entry per segment of stages: stage, kind, bytes_per_partition, partitions_left and more."""
        return list(self._open_warnings.values())

    def line(self, worker_id: int, segment: int) -> WorkerSeries:
        if worker_id not in self._lines:
            orphans = self._orphans.get(segment)
            self._lines[worker_id] = orphans.pop() if orphans else WorkerSeries()
        return self._lines[worker_id]

    def probe(self, worker_id: int, unit: Unit) -> None:
        """Have this unit measured stage by stage, if its worker is under suspicion."""
        unit.probe = False
        line = self._lines.get(worker_id)
        if line is not None and unit.mode is Mode.RUN and line.wants_probe:
            line.n_probes += 1
            unit.probe = True

    def forget_worker(self, worker_id: int, segment: int, heir: bool) -> None:
        """Record that a worker ends.

        `heir`: it ends because of the memory it had accumulated, so its series continues in the next one.
        """
        line = self._lines.pop(worker_id, None)
        if line is not None and heir:
            line.succeed()
            self._orphans.setdefault(segment, []).append(line)

    def after_unit(self, worker_id: int, segment: int, report: Done, cap_bytes: int, risen_bytes: int) -> list[Action]:
        """Note the floor after a unit. A leak is noted once per segment; later ones only correct its figures."""
        if report.vitals is None or not report.vitals.floor_bytes:  # the in-process executor has no floor of its own
            return []
        line = self.line(worker_id, segment)
        line.add(report.vitals, report.retained)
        verdict = line.trend.verdict
        previous = self._open_warnings.get(segment)
        if previous is not None and not verdict.is_leak and line.trend.is_level(previous["bytes_per_partition"]):
            return self._clear(worker_id, segment, previous)
        if not verdict.is_leak or not line.is_explained:
            return []
        self._open_warnings[segment] = warning = _describe(worker_id, segment, line, verdict, cap_bytes, risen_bytes)
        if previous is not None:
            _continue_warning(warning, previous)
        if worker_id not in warning["workers"]:
            warning["workers"] = [*warning["workers"], worker_id][-100:]
        if warning["proven"] and not (previous is not None and previous["proven"]):
            self._witnesses[segment] = worker_id
        elif previous is not None:
            return []
        return [Note(EventKind.LEAK, warning["text"], warning)]

    def _clear(self, worker_id: int, segment: int, previous: MemoryLeak) -> list[Action]:
        """Record that a worker no longer accumulates what was taken for a leak.

        Once that is so for all of them, there was no leak.
        """
        previous["workers"] = [w for w in previous["workers"] if w != worker_id and w in self._lines]
        if previous["workers"]:
            return []
        del self._open_warnings[segment]
        self._witnesses.pop(segment, None)
        text = f"{previous['who']} keeps no more than it has: what looked like a leak was a cache that is full now"
        return [Note(EventKind.LEAK_OVER, text, {"stage": previous["stage"], "segment": segment, "worker": worker_id})]

    def is_due(self, worker_id: int, segment: int, cap_bytes: int, risen_bytes: int, has_room: bool) -> bool:
        """Return True if a worker has gathered so much of a proven leak that it should be replaced.

        `has_room`: its next partition fits; then the witness stays, which alone can show that the rise ends.
        """
        previous = self._open_warnings.get(segment)
        if previous is None or not previous["proven"] or risen_bytes < allowance(cap_bytes):
            return False
        return not (has_room and self._witnesses.get(segment) == worker_id)


def _continue_warning(warning: MemoryLeak, previous: MemoryLeak) -> None:
    """Keep what an earlier description of the same leak says and a new one does not."""
    warning["stage"], warning["workers"] = warning["stage"] or previous["stage"], previous["workers"]
    warning["proven"] = previous["proven"] or warning["proven"]


def _describe(
    worker_id: int, segment: int, line: WorkerSeries, verdict: LeakVerdict, cap_bytes: int, risen_bytes: int
) -> MemoryLeak:
    slope = verdict.slope_bytes
    shares, its_type, variable = line.shares(slope)
    stage = line.stage(slope)
    n_left = partitions_until(cap_bytes - risen_bytes, slope)
    every = max(1, partitions_until(allowance(cap_bytes), slope))
    source = (
        f"stage {stage!r}"
        if stage and not stage.startswith("(")
        else f"a worker{f' while {stage[1:-1]}' if stage else ''}"
    )
    cause = f"{shares.main}, mostly {its_type}" if its_type else shares.main
    cause += f", kept in {variable}" if variable else ""
    if shares.main == UNEXPLAINED:
        cause = "neither Python's, Arrow's nor malloc's: fragments, or mapped by a library"
    text = (
        f"{source} keeps {format_size(slope)} of every partition ({cause}): {format_size(verdict.growth_bytes)} over "
        f"{verdict.n_points} partitions of worker {worker_id}"
    )
    if line.trend.is_proven:
        text += (
            f", whose {format_size(cap_bytes)} would be used up after {n_left} more; its workers are replaced after "
            f"about {every}"
        )
    else:
        text += (
            " and those before it, which were replaced, not proven a leak: none of them had room long enough to show "
            "whether it ends. A larger --memory or fewer --workers would"
        )
    return {
        "text": text,
        "who": source,
        "stage": stage,
        "kind": shares.main,
        "python_type": its_type if shares.main == PYTHON else "",
        "arrow_type": its_type if shares.main == ARROW else "",
        "variable": variable,
        "worker": worker_id,
        "workers": [worker_id],
        "segment": segment,
        "bytes_per_partition": round(slope),
        "low_bytes": round(verdict.low_bytes),
        "p": verdict.p,
        "n_partitions": verdict.n_points,
        "growth_bytes": round(verdict.growth_bytes),
        "partitions_left": n_left,
        "replaced_every": every,
        "proven": line.trend.is_proven,
        "cap_bytes": cap_bytes,
        "python_bytes": round(shares.python),
        "arrow_bytes": round(shares.arrow),
        "native_bytes": round(shares.native),
        "shared_bytes": round(shares.shared),
        "unexplained_bytes": round(shares.unexplained),
    }
