"""What rules can be about: readings taken from the samples of a run. No clock, no files.

A measure gives no reading, one, or one per subject (a stage, a GPU). What a sample lacks gives no reading, whatever else is
in it: a measure never fails.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from tamis.hints import quoted
from tamis.observe.alerts.wording import share_text, time_text
from tamis.sizes import format_size

Sample = Mapping[str, Any]
Read = Callable[["Meter", Sample, float], Iterable["Reading"]]

INTERVAL_S = 10.0  # over which a speed is taken
MIN_INTERVALS = 6  # before that nobody knows what is usual
MAX_INTERVALS = 360
GPU_WINDOW_S = 10.0
MAX_SUBJECTS = 64


@dataclass(frozen=True)
class Reading:
    """`value` is compared with limits of the measure's unit, `n_bytes` with limits that are sizes."""

    value: float
    text: str
    subject: str = ""
    n_bytes: float | None = None
    whole: float | None = None  # what 100 % is
    worker: int | None = None


@dataclass(frozen=True)
class Measure:
    name: str
    unit: str  # share, bytes, seconds or degrees
    low: bool  # whether small values are the bad ones
    about: str
    read: Read
    advice: str
    sized: bool = False  # limits may be sizes too


@dataclass
class Place:
    """What advice refers to. Limits of the quarantine are those of the run."""

    output: str = "OUT"
    quarantine_limit: float = 0.001
    quarantine_floor: int = 100


def advice(measure: Measure, place: Place) -> str:
    limit = share_text(place.quarantine_limit)
    return measure.advice.replace("{output}", quoted(place.output)).replace("{quarantine_limit}", limit)


def number(values: object, key: str) -> float | None:
    """The finite number at `key`, if there is one."""
    value = values.get(key) if isinstance(values, Mapping) else None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    # A whole number may be too large for a float.
    return float(value) if -1e300 < value < 1e300 and math.isfinite(value) else None


@dataclass
class Speed:
    """Amount per second, over intervals; what is usual is the median of all of them, thinned to a bounded number."""

    at_s: float = -1.0
    amount: float = 0.0
    seconds: float = 0.0
    rates: list[float] = field(default_factory=list)
    now: float = -1.0

    def add(self, now_s: float, amount: float, seconds: float) -> None:
        """Cumulative `amount` after cumulative `seconds` of work."""
        if self.at_s < 0 or amount < self.amount or seconds < self.seconds:  # the first, or a count that starts over
            self.at_s, self.amount, self.seconds = now_s, amount, seconds
            return
        worked_s = seconds - self.seconds
        # Partitions report at their end: an interval without a report says nothing, and lasts until there is one.
        if now_s - self.at_s < INTERVAL_S or worked_s < 0.05 or amount == self.amount:
            return
        self.now = (amount - self.amount) / worked_s
        self.at_s, self.amount, self.seconds = now_s, amount, seconds
        if len(self.rates) >= MAX_INTERVALS:
            del self.rates[::2]
        self.rates.append(self.now)

    @property
    def usual(self) -> float:
        """0 while there are too few intervals."""
        return median(self.rates) if len(self.rates) >= MIN_INTERVALS else 0.0


class Meter:
    """Takes readings; remembers what speeds and busy shares were before."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._stages: dict[str, Speed] = {}
        self._run = Speed()
        self._busy: dict[int, deque[tuple[float, float]]] = {}

    def readings(self, measure: str, sample: Sample, now_s: float) -> list[Reading]:
        return list(MEASURES[measure].read(self, sample, now_s))[:MAX_SUBJECTS]

    def _disk(self, sample: Sample, now_s: float) -> Iterable[Reading]:
        free = number(sample, "disk_free_bytes")
        if free is None or number(sample, "disk_total_bytes"):
            text = "the disk has {share} free {sizes}"
            return _share_of("disk_free_bytes", "disk_total_bytes", text)(self, sample, now_s)
        # Only limits that are sizes can be judged.
        return [Reading(math.nan, f"the disk has {format_size(free)} free", n_bytes=free)]

    def _pressure(self, sample: Sample, now_s: float) -> Iterator[Reading]:
        percent = number(sample, "psi_some")
        if percent is not None:
            text = f"the machine waited for memory {share_text(percent / 100)} of the last 10 s ({percent / 10:.1f} s)"
            yield Reading(percent / 100, text)

    def _throughput(self, sample: Sample, now_s: float) -> Iterator[Reading]:
        stages = sample.get("stages")
        for name, book in list(stages.items())[:MAX_SUBJECTS] if isinstance(stages, Mapping) else ():
            amount, seconds = number(book, "in_bytes"), number(book, "seconds")
            by_bytes = bool(amount)
            amount = amount or number(book, "n_in")
            if amount is None or seconds is None:
                continue
            speed = self._stages.setdefault(str(name), Speed())
            speed.add(now_s, amount, seconds)
            if speed.usual > 0:
                say = (lambda r: f"{format_size(r)}/s") if by_bytes else (lambda r: f"{r:,.0f} documents/s")
                yield self._slow(speed, f"stage {name!s:.80}", say)

    def _speed(self, sample: Sample, now_s: float) -> Iterator[Reading]:
        amount, seconds = number(sample, "read_bytes"), number(sample, "seconds")
        if amount is None or seconds is None:
            return
        self._run.add(now_s, amount, seconds)
        if self._run.usual > 0:
            yield self._slow(self._run, "the run", lambda r: f"{format_size(r)}/s")

    def _slow(self, speed: Speed, who: str, say: Callable[[float], str]) -> Reading:
        share = speed.now / speed.usual
        text = f"{who} at {share_text(share)} of its usual speed ({say(speed.now)}, usually {say(speed.usual)})"
        return Reading(share, text, who if who != "the run" else "", whole=speed.usual)

    def _quarantine(self, sample: Sample, now_s: float) -> Iterator[Reading]:
        if (number(sample, "quarantined") or 0) > self.place.quarantine_floor / 2:
            yield from _count_of(sample, "quarantined", "of the records are in quarantine")

    def _dropped(self, sample: Sample, now_s: float) -> Iterator[Reading]:
        if (number(sample, "documents") or 0) >= 1000:  # fewer say nothing
            yield from _count_of(sample, "dropped", "of the documents are dropped")

    def _ours(self, sample: Sample) -> Iterator[tuple[int, str, Mapping[str, Any]]]:
        """GPUs that this run holds memory on."""
        gpus = sample.get("gpus")
        for gpu in gpus[:MAX_SUBJECTS] if isinstance(gpus, (list, tuple)) else ():
            index = number(gpu, "gpu")
            if index is not None and (number(gpu, "ours_bytes") or 0) > 0:
                yield int(index), f"GPU {index:.0f}", gpu

    def _gpu(self, sample: Sample, now_s: float) -> Iterator[Reading]:
        for index, name, gpu in self._ours(sample):
            busy = number(gpu, "busy")
            if busy is None:
                continue
            seen = self._busy.setdefault(index, deque(maxlen=100))
            seen.append((now_s, busy))
            while seen[0][0] <= now_s - GPU_WINDOW_S:
                seen.popleft()
            mean = sum(b for _, b in seen) / len(seen)
            held = format_size(number(gpu, "ours_bytes") or 0)
            yield Reading(mean, f"{name} busy {share_text(mean)} of the time (this run holds {held} on it)", name)

    def _gpu_memory(self, sample: Sample, now_s: float) -> Iterator[Reading]:
        for _, name, gpu in self._ours(sample):
            read = _share_of("used_bytes", "total_bytes", f"memory of {name} at {{share}} {{sizes}}", name)
            yield from read(self, gpu, now_s)

    def _gpu_temperature(self, sample: Sample, now_s: float) -> Iterator[Reading]:
        for _, name, gpu in self._ours(sample):
            if (degrees := number(gpu, "temperature_c")) is not None:
                yield Reading(degrees, f"{name} at {degrees:.0f} °C", name)

    def _leak(self, sample: Sample, now_s: float) -> Iterator[Reading]:
        """The worst of each stage: the same stage leaks in every worker. A leak: slope_bytes (per partition), and where known
        stage, worker, kind (where the memory is) and partitions_left (until the worker has to be replaced)."""
        leaks = sample.get("leaks")
        worst: dict[str, Reading] = {}
        for leak in leaks[:1000] if isinstance(leaks, (list, tuple)) else ():
            n = next((n for k in ("bytes_per_partition", "slope_bytes") if (n := number(leak, k)) is not None), None)
            if n is None or n <= 0:
                continue
            stage = str(leak.get("stage") or "")[:80]
            who = f"stage {stage}" if stage else "a worker"
            text = f"{who} keeps {format_size(n)} more after each partition"
            kind, until = leak.get("kind"), number(leak, "partitions_left")
            text += f", in {kind!s:.40}" if kind else ""
            text += f"; the worker reaches its limit in {until:,.0f} partitions" if until is not None else ""
            worker = number(leak, "worker")
            found = Reading(n, text, who, n_bytes=n, worker=None if worker is None else int(worker))
            if who not in worst or worst[who].value < n:
                worst[who] = found
        yield from worst.values()

    def _progress(self, sample: Sample, now_s: float) -> Iterator[Reading]:
        if (seconds := number(sample, "progress_s")) is not None:
            left = number(sample, "left_bytes")
            rest = f" ({format_size(left)} of input are left)" if left is not None else ""
            yield Reading(seconds, f"nothing was committed for {time_text(seconds)}{rest}")

    def _runtime(self, sample: Sample, now_s: float) -> Iterator[Reading]:
        if (seconds := number(sample, "seconds")) is not None:
            yield Reading(seconds, f"the run takes {time_text(seconds)} so far")


def _share_of(used: str, whole: str, text: str, subject: str = "") -> Read:
    """Reads one size as a share of another. `text` tells {share} and {sizes}."""

    def read(meter: Meter, sample: Sample, now_s: float) -> Iterator[Reading]:
        n, total = number(sample, used), number(sample, whole)
        if n is not None and total is not None and total > 0:
            sizes = f"({format_size(n)} of {format_size(total)})"
            told = text.format(share=share_text(n / total), sizes=sizes)
            yield Reading(n / total, told, subject, n_bytes=n, whole=total)

    return read


def _size_of(key: str, text: str) -> Read:
    """Reads a size. `text` tells {size}."""

    def read(meter: Meter, sample: Sample, now_s: float) -> Iterator[Reading]:
        if (n := number(sample, key)) is not None:
            yield Reading(n, text.format(size=format_size(n)), n_bytes=n)

    return read


def _count_of(sample: Sample, key: str, text: str) -> Iterator[Reading]:
    """How many of all documents."""
    n, total = number(sample, key), number(sample, "documents")
    if n is not None and total:
        yield Reading(n / total, f"{share_text(n / total)} {text} ({n:,.0f} of {total:,.0f})", whole=total)


MEASURES = {
    m.name: m
    for m in (
        Measure(
            "memory", "share", False, "memory of all processes, of the budget",
            _share_of("used_bytes", "budget_bytes", "memory at {share} of the budget {sizes}"),
            "the run slows down to stay inside it; give more with --memory, or fewer --workers or a smaller --blocksize", True,
        ),
        Measure(
            "machine_memory", "share", False, "memory in use on the machine",
            _share_of("machine_used_bytes", "machine_total_bytes", "memory of the machine at {share} {sizes}"),
            "other programs need memory too: end some, or give this run a smaller --memory", True,
        ),
        Measure(
            "cgroup_memory", "share", False, "memory in use in the container or job, of its limit",
            _share_of("cgroup_used_bytes", "cgroup_limit_bytes", "memory at {share} of the limit of this container or job {sizes}"),
            "the system ends processes at the limit: raise it, or give this run a smaller --memory", True,
        ),
        Measure(
            "pressure", "share", False, "time in which the machine waited for memory", Meter._pressure,
            "the machine is short of memory: end other programs, or give this run a smaller --memory",
        ),
        Measure(
            "throughput", "share", True, "speed of a stage while it works, of its own median", Meter._throughput,
            "look for what changed: other programs on the machine, a slow disk, harder documents; tamis top {output}",
        ),
        Measure(
            "speed", "share", True, "speed of the whole run, of its own median", Meter._speed,
            "look for what changed: other programs on the machine, a slow disk, harder documents; tamis top {output}",
        ),
        Measure(
            "quarantine", "share", False, "records in quarantine, of all read", Meter._quarantine,
            "above {quarantine_limit} the run ends incomplete; see what is wrong: tamis quarantine {output}",
        ),
        Measure(
            "dropped", "share", False, "documents dropped by filters, of all read", Meter._dropped,
            "see which rule drops them: tamis report {output}",
        ),
        Measure(
            "disk", "share", True, "free space on the disk of the output", Meter._disk,
            "make room there, or stop the run (Ctrl-C keeps what is committed) and start it again with more room", True,
        ),
        Measure(
            "scratch", "bytes", False, "temporary blocks on disk", _size_of("scratch_bytes", "temporary blocks take {size}"),
            "point --scratch at a disk with room for them", True,
        ),
        Measure(
            "queue", "bytes", False, "blocks that wait for a stage", _size_of("queue_bytes", "{size} wait for a stage"),
            "a later stage is slower than an earlier one", True,
        ),
        Measure(
            "gpu", "share", True, "busy time of a GPU that this run uses", Meter._gpu,
            "the GPU waits for work: give it larger batches, more --workers before it, or faster input",
        ),
        Measure(
            "gpu_memory", "share", False, "memory in use on a GPU that this run uses", Meter._gpu_memory,
            "give its stage smaller batches, or end other programs on that GPU", True,
        ),
        Measure(
            "gpu_temperature", "degrees", False, "temperature of a GPU that this run uses", Meter._gpu_temperature,
            "a hot GPU slows itself down: check its cooling",
        ),
        Measure(
            "leak", "bytes", False, "memory that a stage keeps after each partition", Meter._leak,
            "the worker is replaced in time; release what the stage keeps, or report it to who wrote the stage", True,
        ),
        Measure(
            "progress", "seconds", False, "time since something was committed", Meter._progress,
            "see what the workers do: tamis top {output}; a partition that takes longer than --timeout is ended and tried again",
        ),
        Measure(
            "runtime", "seconds", False, "time since the run began", Meter._runtime,
            "the same command again goes on where it stopped",
        ),
    )
}  # fmt: skip
