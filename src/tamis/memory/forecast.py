"""What a run will take, before it starts: peak, scratch, output and time, each as an interval. Pure: no I/O, no clock.

A forecast is a plain model of the run (`raw_*`) times a factor learned from earlier runs of the same pipeline on this machine.
The logarithms of the ratios measured / raw are taken as normal with unknown mean and spread; what is given out is the interval
in which the next run lies with 90 % probability (the posterior predictive of the normal-inverse-gamma model, a Student
distribution). Without any earlier run its width is that of the prior, which is wide; two equal runs narrow it to some 12 %.
Runs under other conditions (another budget, far more data) and older runs count less.

The budget is a promise and not a forecast: no predicted peak lies above it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from tamis.errors import UsageError
from tamis.memory.predictor import Predictor

CONFIDENCE = 0.9
MAX_RUNS = 20  # of one pipeline, kept in its profile
START_S = 1.4  # from the command to the first partition, kernels cached
MIN_BLOCK_BYTES = 1 << 16
_Z = 1.6448536269514722  # one-sided 95 %
_AGEING = 0.9  # each later run makes an older one count this much less
_UNLEARNED = 0.5  # a run that began with small partitions, as the first one does, tells less about the next one
_LARGEST = 1e18


@dataclass(frozen=True)
class Interval:
    """`expected`, and the bounds between which the measured value lies with the probability CONFIDENCE."""

    low: float
    expected: float
    high: float

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high

    def within(self, least: float, most: float) -> Interval:
        return Interval(*(min(max(v, least), most) for v in (self.low, self.expected, self.high)))

    def to_dict(self, digits: int = 0) -> dict[str, float]:
        found = {k: round(v, digits) for k, v in asdict(self).items()}
        return found if digits else {k: int(v) for k, v in found.items()}


@dataclass(frozen=True)
class Conditions:
    """A run as it is asked for. Sizes in bytes."""

    budget_bytes: int
    n_workers: int
    fixed_bytes: int  # supervisor and forking server
    worker_bytes: int  # each worker, before it does anything
    cap_bytes: int  # what a worker may use beyond that
    input_bytes: int  # as stored
    decoded_bytes: int
    max_block_bytes: int
    handover_bytes: int = 0  # what blocks between processes may take; 0: there are none


@dataclass(frozen=True)
class Measured:
    """A run that ended, and what it took. `busy_s`: seconds of all workers together."""

    conditions: Conditions
    peak_bytes: int
    seconds: float
    busy_s: float
    cpu_s: float
    scratch_bytes: int
    written_bytes: int
    n_documents: int
    n_partitions: int
    at: float = 0.0
    learned: bool = False  # it began with what earlier runs had learned

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Any) -> Measured:
        """UsageError when `data` is not what to_dict() makes: profiles are files, and may hold anything."""
        conditions = data.get("conditions") if isinstance(data, dict) else None
        if not isinstance(data, dict) or not isinstance(conditions, dict):
            raise UsageError("machine profile: a run: expected its conditions and what it took")
        numbers = {
            f.name: _number(data, f.name, f.type) for f in fields(cls) if f.name not in ("conditions", "learned")
        }
        asked = {f.name: _number(conditions, f.name, f.type) for f in fields(Conditions)}
        if asked["n_workers"] < 1 or asked["budget_bytes"] < 1:
            raise UsageError("machine profile: a run: expected a budget and at least one worker")
        return cls(Conditions(**asked), learned=data.get("learned") is True, **numbers)


@dataclass(frozen=True)
class Prior:
    """What is assumed before the first run. Spreads are of the logarithm.

    `noise`: from one run to the next under the same conditions. `runs`: how many runs the starting model is worth; the wider the
    prior has to be, the fewer. Chosen so that the first interval spans a factor of 1.9 for the peak and 6 for the time.
    """

    noise: float
    runs: float
    degrees: float = 4.0


PEAK = Prior(noise=0.06, runs=0.04)
SECONDS = Prior(noise=0.25, runs=0.1)
SCRATCH = Prior(noise=0.25, runs=0.1)
OUTPUT = Prior(noise=0.1, runs=0.1)
ELSEWHERE = 0.35  # spread of the speed from one machine to another
_FLOOR = 1_000_000.0  # bytes: less than this is as good as nothing; keeps ratios of small numbers quiet


@dataclass(frozen=True)
class Forecast:
    peak_bytes: Interval
    scratch_bytes: Interval
    output_bytes: Interval
    seconds: Interval
    block_bytes: int
    n_partitions: int
    cpu_s: float
    n_runs: int

    def to_dict(self) -> dict[str, Any]:
        return {
            "confidence": CONFIDENCE, "n_runs": self.n_runs, "peak_bytes": self.peak_bytes.to_dict(),
            "scratch_bytes": self.scratch_bytes.to_dict(), "output_bytes": self.output_bytes.to_dict(),
            "seconds": self.seconds.to_dict(2), "cpu_s": round(self.cpu_s, 2), "block_bytes": self.block_bytes,
            "n_partitions": self.n_partitions,
        }  # fmt: skip


def predict(
    asked: Conditions,
    models: Sequence[Predictor],
    past: Sequence[Measured],
    start_s_per_byte: float,
    *,
    start_output_share: float = 1.0,
    elsewhere: bool = False,
    nodes: int = 1,
) -> Forecast:
    """What a run under these conditions will take.

    `models`: one per segment. `past`: earlier runs, oldest first. `start_s_per_byte`: seconds of one worker per decoded byte,
    from a table, used where there is no earlier run. `elsewhere`: the run is for another machine than the past ones. `nodes`:
    machines that share the work; peak and scratch are those of one of them.
    """
    weights = [
        _alike(asked, m.conditions) * _AGEING**age * (1.0 if m.learned else _UNLEARNED)
        for age, m in enumerate(reversed(past))
    ][::-1]
    work = _mean([m.busy_s / m.conditions.decoded_bytes for m in past if m.conditions.decoded_bytes], start_s_per_byte)
    share = _mean(
        [m.written_bytes / m.conditions.decoded_bytes for m in past if m.conditions.decoded_bytes], start_output_share
    )
    cpu = _mean([m.cpu_s / m.conditions.decoded_bytes for m in past if m.conditions.decoded_bytes], start_s_per_byte)

    def interval(raw: float, prior: Prior, pairs: Sequence[tuple[float, float]], extra: float = 0.0) -> Interval:
        ratios = [math.log(took / expected) for took, expected in pairs if took > 0 and expected > 0]
        used = [w for w, (took, expected) in zip(weights, pairs, strict=True) if took > 0 and expected > 0]
        centre, half = spread(ratios, used, prior, extra)
        return Interval(*(raw * math.exp(centre + d) for d in (-half, 0.0, half)))

    peak_raw, block = raw_peak(asked, models)
    peak = interval(peak_raw, PEAK, [(m.peak_bytes, raw_peak(m.conditions, models)[0]) for m in past])
    # What a run takes beside its work. The shortest tells best: of long ones it is mostly workers waiting for each other.
    start_s = min((max(0.1, m.seconds - m.busy_s / m.conditions.n_workers) for m in past), default=START_S)
    seconds = interval(
        raw_seconds(asked, work, start_s, nodes),
        SECONDS,
        [(m.seconds, raw_seconds(m.conditions, work, start_s)) for m in past],
        ELSEWHERE if elsewhere else 0.0,
    )
    return Forecast(
        peak_bytes=peak.within(0, asked.budget_bytes),
        scratch_bytes=_scratch(asked, past, interval),
        output_bytes=_output(asked, past, share, interval),
        seconds=seconds.within(0, math.inf),
        block_bytes=block,
        n_partitions=max(1, math.ceil(asked.decoded_bytes / block)),
        cpu_s=cpu * asked.decoded_bytes,
        n_runs=len(past),
    )


def _scratch(asked: Conditions, past: Sequence[Measured], interval: Any) -> Interval:
    """Nothing where nothing is handed over. Otherwise between nothing and the bound: who waits for whom is known only by trying."""
    if not asked.handover_bytes:
        return Interval(0.0, 0.0, 0.0)
    most = raw_scratch(asked)
    if not past:
        return Interval(0.0, most / 2, most)
    pairs = [(m.scratch_bytes + _FLOOR, raw_scratch(m.conditions) + _FLOOR) for m in past]
    # A block that is being written when the bound is reached still comes on top of it.
    return _less(interval(most + _FLOOR, SCRATCH, pairs), _FLOOR).within(0, most + asked.cap_bytes)


def _output(asked: Conditions, past: Sequence[Measured], share: float, interval: Any) -> Interval:
    """Anything from nothing to a little more than the input, until a run has shown how much stays."""
    decoded = asked.decoded_bytes
    if not past:
        return Interval(0.0, share * decoded, 1.2 * decoded)
    pairs = [(m.written_bytes + _FLOOR, share * m.conditions.decoded_bytes + _FLOOR) for m in past]
    return _less(interval(share * decoded + _FLOOR, OUTPUT, pairs), _FLOOR)


def raw_peak(asked: Conditions, models: Sequence[Predictor]) -> tuple[float, int]:
    """Everything that is there anyway, and one partition of the usual size per worker; and that size."""
    block, above = asked.max_block_bytes, 0.0
    share = max(asked.decoded_bytes // asked.n_workers, MIN_BLOCK_BYTES)
    for model in models:
        a, b, c = model.coefficients
        largest = model.to_dict()["largest_record_bytes"]
        size = max(MIN_BLOCK_BYTES, min(model.best_size(asked.cap_bytes, largest), asked.max_block_bytes, share))
        block = min(block, size)
        above = max(above, min(a + b * size + c * largest, float(asked.cap_bytes)))
    return asked.fixed_bytes + asked.n_workers * (asked.worker_bytes + above), max(block, MIN_BLOCK_BYTES)


def raw_seconds(asked: Conditions, s_per_byte: float, start_s: float = START_S, nodes: int = 1) -> float:
    return start_s + asked.decoded_bytes * s_per_byte / (asked.n_workers * nodes)


def raw_scratch(asked: Conditions) -> float:
    return float(min(asked.handover_bytes, asked.decoded_bytes))


def spread(ratios: Sequence[float], weights: Sequence[float], prior: Prior, extra: float = 0.0) -> tuple[float, float]:
    """Centre and half width of the interval for the next logarithm of a ratio. `extra`: a spread that no run can tell.

    >>> centre, half = spread([], [], PEAK)
    >>> round(centre, 2), round(half, 2)
    (0.0, 0.65)
    >>> centre, half = spread([0.3, 0.3], [1, 1], PEAK)
    >>> round(centre, 2), round(half, 2)
    (0.29, 0.13)
    """
    n = sum(weights)
    mean = sum(w * r for w, r in zip(weights, ratios, strict=True)) / n if n else 0.0
    worth, degrees = prior.runs + n, prior.degrees + n
    squares = sum(w * (r - mean) ** 2 for w, r in zip(weights, ratios, strict=True))
    off = prior.runs * n / worth * mean * mean
    variance = (prior.degrees * prior.noise**2 + squares + off) / degrees
    scale = math.sqrt(variance * (1 + 1 / worth) + extra * extra)
    return n * mean / worth, student(degrees) * scale


def student(degrees: float) -> float:
    """The one-sided 95 % point of Student's distribution with at least 4 degrees of freedom (an expansion around the normal's).

    >>> [round(student(n), 2) for n in (4, 6, 10, 30, 1000)]
    [2.13, 1.94, 1.81, 1.7, 1.65]
    """
    z = _Z
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / degrees + second / degrees**2 + third / degrees**3


def runs_of(profile: Mapping[str, Any] | None) -> list[Measured]:
    """The runs in a profile, oldest first; damaged ones are left out."""
    kept = (profile or {}).get("runs")
    found = []
    for data in kept[-MAX_RUNS:] if isinstance(kept, list) else ():
        try:
            found.append(Measured.from_dict(data))
        except UsageError:
            continue
    return found


def _alike(a: Conditions, b: Conditions) -> float:
    """How much a run under `b` tells about one under `a`, between 0 and 1."""
    apart = abs(math.log(a.budget_bytes / b.budget_bytes)) + abs(math.log(a.n_workers / b.n_workers))
    apart += abs(math.log(max(a.decoded_bytes, 1 << 20) / max(b.decoded_bytes, 1 << 20))) / 3
    return 1 / (1 + apart)


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def _less(interval: Interval, by: float) -> Interval:
    return Interval(*(max(0.0, v - by) for v in (interval.low, interval.expected, interval.high)))


def _number(data: Mapping[str, Any], name: str, kind: Any) -> Any:
    value = data.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= _LARGEST:
        raise UsageError(f"machine profile: a run: {name}: expected a number from 0 to {_LARGEST:g}, got {value!r:.80}")
    return int(value) if kind == "int" else float(value)
