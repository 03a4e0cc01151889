"""The table of measures that alert rules compare, and their values from a sample of a run. No clock, no files.

A sample describes several things: the run, its stages, its GPUs, its leaks. `RunMeter.look` makes plain facts of each;
a measure is one of these facts, or its share of another. What a sample lacks gives no reading, whatever else is in it:
a measure never fails.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import field
from statistics import median
from typing import Any, NamedTuple

from tamis._dataclasses import dataclass
from tamis.engine.progress import RunSample
from tamis.hints import quoted
from tamis.observe.alerts.wording import Amount

Seen = Mapping[str, list[tuple[str, dict[str, Any]]]]  # (subject, its facts) by what they are about

INTERVAL_S = 10.0  # over which a speed is taken
MIN_INTERVALS = 6  # before that the usual speed is unknown
MAX_INTERVALS = 360
GPU_WINDOW_S = 10.0
MAX_SUBJECTS = 64
MIN_DOCUMENTS = 1000  # fewer say nothing about how many are dropped


class MeasureReading(NamedTuple):
    """`value` is compared with limits of the measure's unit, `n_bytes` with limits that are sizes.

    None: unknown.
    """

    value: float | None
    text: str
    subject: str = ""
    n_bytes: float | None = None
    whole: float | None = None  # what 100 % is
    worker: int | None = None


class Measure(NamedTuple):
    """One fact, or its share of the fact `whole`.

    `text` is the sentence about it, with {value}, {n} (the fact), {whole}, {subject} and all other facts;
    `text_without` that where the whole is not known.
    """

    name: str
    about: str
    of: str  # run, stage, gpu, leak or handles
    unit: str  # share, bytes, seconds, degrees or number
    fact: str
    whole: str
    text: str
    advice: str
    text_without: str = ""

    @property
    def sized(self) -> bool:
        """True if the fact is a size: limits may be sizes too."""
        return self.fact.endswith("_bytes")

    def readings(self, seen: Seen) -> list[MeasureReading]:
        return [reading for subject in seen[self.of][:MAX_SUBJECTS] for reading in self._of(*subject)]

    def _of(self, subject: str, facts: dict[str, Any]) -> Iterator[MeasureReading]:
        n, whole = facts.get(self.fact), facts.get(self.whole)
        value, text = n, self.text
        if self.whole:
            whole = whole if whole is not None and whole > 0 else None
            value = Amount(n / whole) if n is not None and whole is not None else None
            text = text if whole is not None else self.text_without
        if n is not None and text:
            sentence = text.format_map({**facts, "subject": subject, "value": value, "n": n, "whole": whole})
            yield MeasureReading(value, sentence, subject, n if self.sized else None, whole, facts.get("worker"))

    def advice_at(self, context: RunContext) -> str:
        limit = f"{Amount(context.quarantine_limit):share}"
        return self.advice.replace("{output}", quoted(context.output)).replace("{quarantine_limit}", limit)


@dataclass
class RunContext:
    """Values that advice refers to. Limits of the quarantine are those of the run."""

    output: str = "OUT"
    quarantine_limit: float = 0.001
    quarantine_floor: int = 100


def numbers(values: object) -> dict[str, Any]:
    """Return the finite numbers of a mapping; nothing for any other value.

    An integer may be too large for a float.
    """
    items = values.items() if isinstance(values, Mapping) else ()
    return {
        k: Amount(v) for k, v in items if isinstance(v, (int, float)) and not isinstance(v, bool) and -1e300 < v < 1e300
    }


@dataclass
class Speed:
    """Amount per second, over intervals; what is usual is the median of all of them, thinned to a bounded number."""

    at_s: float = -1.0
    amount: float = 0.0
    seconds: float = 0.0
    rates: list[float] = field(default_factory=list)
    now: float = -1.0

    def add(self, now_s: float, amount: float, seconds: float) -> None:
        """Add cumulative `amount` after cumulative `seconds` of work."""
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

    def facts(self, words: str) -> dict[str, Any]:
        """Return the current and the usual speed, or nothing while there are too few intervals.

        `words`: the format of a speed in a message.
        """
        usual = median(self.rates) if len(self.rates) >= MIN_INTERVALS else 0.0
        speeds = f"{words}, usually {words}".format(Amount(self.now), Amount(usual))
        return {"speed": self.now, "usual": usual, "speeds": speeds} if usual > 0 else {}


class RunMeter:
    """Looks at samples; remembers what speeds and busy shares were before."""

    def __init__(self, context: RunContext) -> None:
        self._few_records = context.quarantine_floor / 2
        self._run_speed = Speed()
        self._speeds: dict[str, Speed] = {}
        self._busy: dict[int, deque[tuple[float, float]]] = {}

    def look(self, sample: RunSample, now_s: float) -> Seen:
        return {
            "run": [("", self._run(sample, now_s))],
            "stage": list(self._stages(sample.get("stages"), now_s)),
            "gpu": list(self._gpus(sample.get("gpus"), now_s)),
            "leak": list(_leaks(sample.get("leaks"))),
            "handles": list(_handles(sample.get("leaks"))),
        }

    def _run(self, sample: RunSample, now_s: float) -> dict[str, Any]:
        facts = numbers(sample)
        if "read_bytes" in facts and "seconds" in facts:
            self._run_speed.add(now_s, facts["read_bytes"], facts["seconds"])
            facts |= self._run_speed.facts("{:bytes}/s")
        if (percent := facts.get("psi_some")) is not None:
            facts |= {"waited": Amount(percent / 100), "waited_s": percent / 10}
        if facts.get("quarantined", 0) <= self._few_records:
            facts.pop("quarantined", None)
        if facts.get("documents", 0) < MIN_DOCUMENTS:
            facts.pop("dropped", None)
        left = facts.get("left_bytes")
        facts["rest"] = f" ({left:bytes} of input are left)" if left is not None else ""
        return facts

    def _stages(self, stages: object, now_s: float) -> Iterator[tuple[str, dict[str, Any]]]:
        for name, book in list(stages.items())[:MAX_SUBJECTS] if isinstance(stages, Mapping) else ():
            facts = numbers(book)
            n_bytes, seconds = facts.get("in_bytes"), facts.get("seconds")
            amount = n_bytes or facts.get("n_in")
            if amount is not None and seconds is not None:
                speed = self._speeds.setdefault(str(name), Speed())
                speed.add(now_s, amount, seconds)
                yield f"stage {name!s:.80}", speed.facts("{:bytes}/s" if n_bytes else "{:,.0f} documents/s")

    def _gpus(self, gpus: object, now_s: float) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the GPUs on which this run holds memory, with `busy` over the last seconds."""
        for facts in map(numbers, gpus[:MAX_SUBJECTS] if isinstance(gpus, (list, tuple)) else ()):
            if "gpu" not in facts or facts.get("ours_bytes", 0) <= 0:
                continue
            if "busy" in facts:
                seen = self._busy.setdefault(int(facts["gpu"]), deque(maxlen=100))
                seen.append((now_s, facts["busy"]))
                while seen[0][0] <= now_s - GPU_WINDOW_S:
                    seen.popleft()
                facts["busy"] = Amount(sum(busy for _, busy in seen) / len(seen))
            yield f"GPU {facts['gpu']:.0f}", facts


def _leaks(leaks: object) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the worst leak of each stage, as the same stage leaks in every worker.

    A leak has slope_bytes (per partition) and, if known, stage, worker, kind (where the memory is) and
    partitions_left (until the worker has to be replaced).
    """
    worst: dict[str, dict[str, Any]] = {}
    for leak in leaks[:1000] if isinstance(leaks, (list, tuple)) else ():
        facts = numbers(leak)
        n = facts.get("bytes_per_partition", facts.get("slope_bytes", 0))
        stage = str(leak.get("stage") or "")[:80] if facts else ""
        subject = f"stage {stage}" if stage else "a worker"
        if n <= worst.get(subject, {}).get("leak_bytes", 0):
            continue
        kind, until, worker = leak.get("kind"), facts.get("partitions_left"), facts.get("worker")
        more = f", in {kind!s:.40}" if kind else ""
        more += f"; the worker reaches its limit in {until:,.0f} partitions" if until is not None else ""
        worst[subject] = {"leak_bytes": n, "more": more, "worker": None if worker is None else int(worker)}
    yield from worst.items()


def _handles(leaks: object) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the worst leak of descriptors or threads of each stage.

    Facts: handles_per_partition, kind, and partitions_left where known.
    """
    worst: dict[str, dict[str, Any]] = {}
    for leak in leaks[:1000] if isinstance(leaks, (list, tuple)) else ():
        facts = numbers(leak)
        n, worker = facts.get("handles_per_partition", 0), facts.get("worker")
        stage = str(leak.get("stage") or "")[:80] if facts else ""
        subject = f"stage {stage}" if stage else "a worker"
        if n <= worst.get(subject, {}).get("handles", 0):
            continue
        until = facts.get("partitions_left")
        more = f"; the worker reaches its limit in {until:,.0f} partitions" if until is not None else ""
        kind = str(leak.get("kind") or "handles")[:40]
        worst[subject] = {"handles": n, "kind": kind, "more": more, "worker": None if worker is None else int(worker)}
    yield from worst.items()


_SIZES = "({n:bytes} of {whole:bytes})"
_SLOW = "at {value:share} of its usual speed ({speeds})"
_LOOK = "look for what changed: other programs on the machine, a slow disk, harder documents; tamis top {output}"
MEASURES = {
    m.name: m
    for m in (
        Measure(
            "memory",
            "memory of all processes, of the budget",
            "run",
            "share",
            "used_bytes",
            "budget_bytes",
            f"memory at {{value:share}} of the budget {_SIZES}",
            "the run slows down to stay inside it; give more with --memory, or fewer --workers or a smaller "
            "--blocksize",
        ),
        Measure(
            "machine_memory",
            "memory in use on the machine",
            "run",
            "share",
            "machine_used_bytes",
            "machine_total_bytes",
            f"memory of the machine at {{value:share}} {_SIZES}",
            "other programs need memory too: end some, or give this run a smaller --memory",
        ),
        Measure(
            "cgroup_memory",
            "memory in use in the container or job, of its limit",
            "run",
            "share",
            "cgroup_used_bytes",
            "cgroup_limit_bytes",
            f"memory at {{value:share}} of the limit of this container or job {_SIZES}",
            "the system ends processes at the limit: raise it, or give this run a smaller --memory",
        ),
        Measure(
            "pressure",
            "time in which the machine waited for memory",
            "run",
            "share",
            "waited",
            "",
            "the machine waited for memory {value:share} of the last 10 s ({waited_s:.1f} s)",
            "the machine is short of memory: end other programs, or give this run a smaller --memory",
        ),
        Measure(
            "throughput",
            "speed of a stage while it works, of its own median",
            "stage",
            "share",
            "speed",
            "usual",
            f"{{subject}} {_SLOW}",
            _LOOK,
        ),
        Measure(
            "speed",
            "speed of the whole run, of its own median",
            "run",
            "share",
            "speed",
            "usual",
            f"the run {_SLOW}",
            _LOOK,
        ),
        Measure(
            "quarantine",
            "records in quarantine, of all read",
            "run",
            "share",
            "quarantined",
            "documents",
            "{value:share} of the records are in quarantine ({n:,.0f} of {whole:,.0f})",
            "above {quarantine_limit} the run ends incomplete; see what is wrong: tamis quarantine {output}",
        ),
        Measure(
            "dropped",
            "documents dropped by filters, of all read",
            "run",
            "share",
            "dropped",
            "documents",
            "{value:share} of the documents are dropped ({n:,.0f} of {whole:,.0f})",
            "see which rule drops them: tamis report {output}",
        ),
        Measure(
            "disk",
            "free space on the disk of the output",
            "run",
            "share",
            "disk_free_bytes",
            "disk_total_bytes",
            f"the disk has {{value:share}} free {_SIZES}",
            "make room there, or stop the run (Ctrl-C keeps what is committed) and start it again with more room",
            "the disk has {n:bytes} free",
        ),
        Measure(
            "scratch",
            "temporary blocks on disk",
            "run",
            "bytes",
            "scratch_bytes",
            "",
            "temporary blocks take {n:bytes}",
            "point --scratch at a disk with room for them",
        ),
        Measure(
            "queue",
            "blocks that wait for a stage",
            "run",
            "bytes",
            "queue_bytes",
            "",
            "{n:bytes} wait for a stage",
            "a later stage is slower than an earlier one",
        ),
        Measure(
            "gpu",
            "busy time of a GPU that this run uses",
            "gpu",
            "share",
            "busy",
            "",
            "{subject} busy {value:share} of the time (this run holds {ours_bytes:bytes} on it)",
            "the GPU waits for work: give it larger batches, more --workers before it, or faster input",
        ),
        Measure(
            "gpu_memory",
            "memory in use on a GPU that this run uses",
            "gpu",
            "share",
            "used_bytes",
            "total_bytes",
            f"memory of {{subject}} at {{value:share}} {_SIZES}",
            "give its stage smaller batches, or end other programs on that GPU",
        ),
        Measure(
            "gpu_temperature",
            "temperature of a GPU that this run uses",
            "gpu",
            "degrees",
            "temperature_c",
            "",
            "{subject} at {n:.0f} °C",
            "a hot GPU slows itself down: check its cooling",
        ),
        Measure(
            "leak",
            "memory that a stage keeps after each partition",
            "leak",
            "bytes",
            "leak_bytes",
            "",
            "{subject} keeps {n:bytes} more after each partition{more}",
            "the worker is replaced in time; release what the stage keeps, or report it to who wrote the stage",
        ),
        Measure(
            "handles",
            "file descriptors or threads that a stage keeps after each partition",
            "handles",
            "number",
            "handles",
            "",
            "{subject} keeps {n:number} {kind} more after each partition{more}",
            "the worker is replaced in time; close files and join threads in the stage, or report it to its author",
        ),
        Measure(
            "progress",
            "time since something was committed",
            "run",
            "seconds",
            "progress_s",
            "",
            "nothing was committed for {n:seconds}{rest}",
            "see what the workers do: tamis top {output}; a partition that takes longer than --timeout is ended and "
            "tried again",
        ),
        Measure(
            "runtime",
            "time since the run began",
            "run",
            "seconds",
            "seconds",
            "",
            "the run takes {n:seconds} so far",
            "the same command again resumes where it stopped",
        ),
    )
}
