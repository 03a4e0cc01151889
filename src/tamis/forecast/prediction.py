"""Prediction of a run: peak, scratch, output and time, each as an interval. Pure: no I/O, no clock.

A forecast is a plain model of the run (`raw_*`) times a factor learned from earlier runs of the same pipeline on this
machine. The logarithms of the ratios measured / raw are taken as normal with unknown mean and spread (the posterior
predictive of the normal-inverse-gamma model, a Student distribution): that gives a centre and a spread, wide without
any earlier run. Runs under other conditions (another budget, far more data) and older runs count less. How far peak and
time may be from the centre, in spreads, is not the model's word but what earlier predictions on this machine showed
(ranges.py).

The budget is a promise and not a forecast: no predicted peak exceeds it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NotRequired, Protocol, TypedDict, get_args, get_type_hints

from tamis.errors import UsageError
from tamis.forecast.fitting import OUTPUT, PEAK, SCRATCH, SECONDS, LinearModel, Point, Prior, fit, spread

if TYPE_CHECKING:
    from tamis.memory.predictor import Predictor

CONFIDENCE = 0.9
MAX_RUNS = 20  # of one pipeline, kept in its profile
START_S = 1.4  # from the command to the first partition, kernels cached
MIN_BLOCK_BYTES = 1 << 16
_AGEING = 0.9  # each later run makes an older one count this much less
_UNLEARNED = 0.5  # a run that began with small partitions, as the first one does, says less about the next one
_LARGEST = 1e18
_USUAL = LinearModel(6e6, 4.5)  # what a partition takes: bytes in any case, and per decoded byte
_DECODE_S_PER_BYTE = 5e-9  # gzip and zstd, with what it takes to hand blocks on
_FIRST_BYTES = 1 << 20  # partitions of a run that has learned nothing begin so small, and double


class Span(TypedDict):
    """An interval as JSON; once the run has ended, what was measured, and whether that is inside."""

    low: float
    expected: float
    high: float
    measured: NotRequired[float]
    inside: NotRequired[bool]


class CpuTime(TypedDict):
    """CPU seconds of a run that has ended, and what was expected of it."""

    expected: float | None
    measured: float


class Prediction(TypedDict, total=False):
    """A forecast as prediction.json, results and `tamis plan --json` hold it.

    Made by `Forecast.to_dict`, and completed by `Experience`: by its `basis` and `conditions` when a run begins, by
    what was measured when it ends. `parse_prediction` reads it.
    """

    version: int
    basis: str  # what it came from, in words
    conditions: dict[str, int]  # fields of `Conditions`
    n_runs: int
    kind: str
    centres: dict[str, list[float]]  # figure -> [centre, spread]
    confidence: float
    peak_bytes: Span
    scratch_bytes: Span
    output_bytes: Span
    seconds: Span
    cpu_s: float | CpuTime  # the expected one; of a run that has ended, with the measured one
    block_bytes: int
    n_partitions: int
    command_s: float  # of a plan: what the command takes around its run
    held: dict[str, list[int]]  # of a plan: how many ranges held on this machine, and of how many


SpanName = Literal["peak_bytes", "scratch_bytes", "output_bytes", "seconds"]
_Text = Literal["basis", "kind"]
_Number = Literal["version", "n_runs", "confidence", "block_bytes", "n_partitions"]
_SPANS: tuple[SpanName, ...] = get_args(SpanName)
_TEXTS: tuple[_Text, ...] = get_args(_Text)
_NUMBERS: tuple[_Number, ...] = get_args(_Number)


def parse_prediction(data: object) -> Prediction:
    """Read a prediction from a file that may hold anything: what is malformed is left out."""
    prediction: Prediction = {}
    if not isinstance(data, dict):
        return prediction
    for name in _SPANS:
        if (span := _parse_span(data.get(name))) is not None:
            prediction[name] = span
    if (cpu_s := _parse_cpu_time(data.get("cpu_s"))) is not None:
        prediction["cpu_s"] = cpu_s
    for text in _TEXTS:
        if isinstance(data.get(text), str):
            prediction[text] = data[text]
    for number in _NUMBERS:
        if _is_number(data.get(number)):
            prediction[number] = data[number]
    if conditions := {k: v for k, v in _object(data.get("conditions")).items() if _is_number(v)}:
        prediction["conditions"] = conditions
    if centres := {k: v for k, v in _object(data.get("centres")).items() if _is_pair(v)}:
        prediction["centres"] = centres
    return prediction


def _parse_span(data: Any) -> Span | None:
    if not isinstance(data, dict) or not all(_is_number(data.get(end)) for end in ("low", "expected", "high")):
        return None
    span: Span = {"low": data["low"], "expected": data["expected"], "high": data["high"]}
    if _is_number(data.get("measured")):
        span["measured"], span["inside"] = data["measured"], data.get("inside") is True
    return span


def _parse_cpu_time(data: Any) -> float | CpuTime | None:
    if not isinstance(data, dict):
        return float(data) if _is_number(data) else None
    expected_s: Any = data.get("expected")
    measured_s: Any = data.get("measured")
    if not _is_number(measured_s):
        return None
    return CpuTime(expected=expected_s if _is_number(expected_s) else None, measured=measured_s)


def _object(value: Any) -> dict[str, Any]:
    return {str(name): member for name, member in value.items()} if isinstance(value, dict) else {}


def _is_pair(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(_is_number, value))


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


class Interval(NamedTuple):
    """`expected`, and the bounds between which the measured value is with the probability CONFIDENCE."""

    low: float
    expected: float
    high: float

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high

    def to_dict(self, digits: int | None = None) -> Span:
        return {
            "low": round(self.low, digits),
            "expected": round(self.expected, digits),
            "high": round(self.high, digits),
        }


class Conditions(NamedTuple):
    """The conditions of a run: input, budget and workers. Sizes in bytes."""

    budget_bytes: int
    n_workers: int
    fixed_bytes: int  # all but workers: caller, server, libraries; of a deduplication its planned peak
    worker_bytes: int  # each worker, before it does anything
    cap_bytes: int  # what a worker may use beyond that
    input_bytes: int  # as stored
    decoded_bytes: int
    max_block_bytes: int
    handover_bytes: int = 0  # what blocks between processes may take; 0: there are none


class RunMeasurement(NamedTuple):
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
    largest_bytes: int = 0  # of the largest partition, decoded; 0: not known
    largest_peak: int = 0  # what one partition took at most, above what its worker had at the start

    def to_dict(self) -> dict[str, Any]:
        return {**self._asdict(), "conditions": self.conditions._asdict()}

    @classmethod
    def from_dict(cls, data: Any) -> RunMeasurement:
        """Build from `to_dict()` output; raise UsageError for anything else, since profiles are files."""
        conditions = data.get("conditions") if isinstance(data, dict) else None
        if not isinstance(data, dict) or not isinstance(conditions, dict):
            raise UsageError("machine profile: a run: expected its conditions and what it took")
        hints = get_type_hints(cls).items()
        numbers = {name: _number(data, name, kind) for name, kind in hints if name not in ("conditions", "learned")}
        values = {name: _number(conditions, name, kind) for name, kind in get_type_hints(Conditions).items()}
        if values["n_workers"] < 1 or values["budget_bytes"] < 1:
            raise UsageError("machine profile: a run: expected a budget and at least one worker")
        return cls(Conditions(**values), learned=data.get("learned") is True, **numbers)


ELSEWHERE = 0.35  # spread of the speed from one machine to another
_FLOOR = 1_000_000.0  # bytes: less than this is as good as nothing; keeps ratios of small numbers quiet


class Reaches(Protocol):
    """Distances of figures from their centres (ranges.py)."""

    def reach(self, figure: str, kind: str) -> tuple[float, float, float]: ...


class Forecast(NamedTuple):
    n_runs: int
    kind: str  # what it came from: table, probe or profile
    centres: dict[str, list[float]]  # figure -> [centre, spread], before ranges.py widens them
    peak_bytes: Interval
    scratch_bytes: Interval
    output_bytes: Interval
    seconds: Interval
    cpu_s: float
    block_bytes: int
    n_partitions: int

    def to_dict(self) -> Prediction:
        return {
            "confidence": CONFIDENCE,
            "n_runs": self.n_runs,
            "kind": self.kind,
            "centres": self.centres,
            "peak_bytes": self.peak_bytes.to_dict(),
            "scratch_bytes": self.scratch_bytes.to_dict(),
            "output_bytes": self.output_bytes.to_dict(),
            "seconds": self.seconds.to_dict(2),
            "cpu_s": round(self.cpu_s, 2),
            "block_bytes": self.block_bytes,
            "n_partitions": self.n_partitions,
        }


class _Intervals:
    """Intervals of one forecast: raw figures corrected by what earlier runs took."""

    def __init__(self, weights: Sequence[float], kind: str, ranges: Reaches) -> None:
        self.weights, self.kind, self.ranges = weights, kind, ranges
        self.centres: dict[str, list[float]] = {}  # figure -> [centre, spread], of all intervals so far

    def around(
        self,
        figure: str,
        prior: Prior,
        raw: float,
        pairs: Sequence[tuple[float, float]],
        floor: float = 0.0,
        most: float = math.inf,
        extra: float = 0.0,
    ) -> Interval:
        """Return the interval of a figure.

        `raw`: from the plain model; `pairs`: the measured value of each earlier run, and that of the model for it.
        """
        samples = [(took + floor, modelled + floor, w) for (took, modelled), w in zip(pairs, self.weights, strict=True)]
        samples = [sample for sample in samples if sample[0] > 0 and sample[1] > 0]
        ratios = [math.log(took / modelled) for took, modelled, _ in samples]
        centre, half = spread(ratios, [w for _, _, w in samples], prior, extra)
        middle = min((raw + floor) * math.exp(centre), most)
        self.centres[figure] = [round(middle, 3), round(half, 6)]
        ends = (middle * math.exp(reach * half) - floor for reach in self.ranges.reach(figure, self.kind))
        return Interval(*(min(max(end, 0.0), most) for end in ends))


def predict(
    conditions: Conditions,
    models: Sequence[Predictor],
    past: Sequence[RunMeasurement],
    start_s_per_byte: float,
    *,
    start_s: float = START_S,
    learned: bool = True,
    kind: str = "table",
    ranges: Reaches,
    elsewhere: bool = False,
    nodes: int = 1,
) -> Forecast:
    """Predict what a run under these conditions will take.

    `models`: one per segment. `past`: earlier runs, oldest first. `start_s`, `start_s_per_byte`: fixed seconds,
    and seconds of one worker per decoded byte, from a table; used if there is no earlier run. `learned`: the run
    begins with what earlier runs learned. `elsewhere`: the run is for another machine than the past ones.
    `nodes`: machines that share the work; peak and scratch are those of one of them.
    """
    weights = [
        _alike(conditions, m.conditions) * _AGEING**age * (1.0 if m.learned else _UNLEARNED)
        for age, m in enumerate(reversed(past))
    ][::-1]
    intervals = _Intervals(weights, kind, ranges)
    each = partition_line(past, weights, models)
    times = time_line(past, weights, LinearModel(start_s, start_s_per_byte))
    measured = [m for m in past if m.conditions.decoded_bytes]
    share = _mean([m.written_bytes / m.conditions.decoded_bytes for m in measured], 1.0)
    cpu = _mean([m.cpu_s / m.conditions.decoded_bytes for m in measured], start_s_per_byte)
    raw, block = raw_peak(conditions, models, each, learned)
    pairs = [(float(m.peak_bytes), raw_peak(m.conditions, models, each, m.learned)[0]) for m in past]
    peak = intervals.around("peak_bytes", PEAK, raw, pairs, most=conditions.budget_bytes)
    pairs = [(m.seconds, raw_seconds(m.conditions, times)) for m in past]
    other = ELSEWHERE if elsewhere else 0.0
    seconds = intervals.around("seconds", SECONDS, raw_seconds(conditions, times, nodes), pairs, extra=other)
    # Until a run has shown how much stays, and who waits for whom, anything between nothing and the bound.
    decoded, bound = conditions.decoded_bytes, raw_scratch(conditions)
    output, scratch = Interval(0.0, share * decoded, 1.2 * decoded), Interval(0.0, bound / 2, bound)
    if past:
        pairs = [(m.written_bytes, share * m.conditions.decoded_bytes) for m in past]
        output = intervals.around("output_bytes", OUTPUT, share * decoded, pairs, _FLOOR)
        pairs = [(m.scratch_bytes, raw_scratch(m.conditions)) for m in past]
        # A block that is being written when the bound is reached still comes on top of it.
        most = bound + conditions.cap_bytes if conditions.handover_bytes else 0.0
        interval = intervals.around("scratch_bytes", SCRATCH, bound, pairs, _FLOOR)
        scratch = Interval(*(min(end, most) for end in (interval.low, interval.expected, interval.high)))
    centres = {figure: intervals.centres[figure] for figure in ("peak_bytes", "seconds")}
    n_partitions = max(1, math.ceil(decoded / block))
    return Forecast(len(past), kind, centres, peak, scratch, output, seconds, cpu * decoded, block, n_partitions)


def partition_line(
    past: Sequence[RunMeasurement], weights: Sequence[float], models: Sequence[Predictor]
) -> LinearModel:
    """Return the line of what one partition takes by its size.

    With earlier runs it is fitted to their largest partitions; without, it is the line of the models, less the safety
    factor of what they reserve. Where nothing has been measured it is `_USUAL`.
    """
    points = [Point(m.largest_bytes, m.largest_peak, w) for m, w in zip(past, weights, strict=True) if m.largest_bytes]
    fitted = [m for m in models if m.n_samples]
    if not points and fitted:
        a, b, c = max((m.coefficients for m in fitted), key=lambda line: line[1])
        return LinearModel(a + c * max(m.to_dict()["largest_record_bytes"] for m in fitted), b)
    return fit(points, _USUAL, 0.05, 0.3)


def time_line(past: Sequence[RunMeasurement], weights: Sequence[float], table: LinearModel) -> LinearModel:
    """Return the line of seconds by decoded bytes of one worker."""
    rates = [(m.busy_s / m.conditions.decoded_bytes, w) for m, w in zip(past, weights, strict=True) if _shows_work(m)]
    worth = sum(w for _, w in rates)
    slope = sum(r * w for r, w in rates) / worth if worth else table.slope
    points = [
        Point(_bytes_per_worker(m.conditions), m.seconds, w)
        for m, w in zip(past, weights, strict=True)
        if m.conditions.decoded_bytes
    ]
    return fit(points, LinearModel(table.start, slope), 0.3, 1.0 if worth else 0.1)


def _shows_work(m: RunMeasurement) -> bool:
    """Return True if the work of its workers was counted (a deduplication knows only how long all of it took)."""
    return 0 < m.busy_s < 0.999 * m.seconds * m.conditions.n_workers and m.conditions.decoded_bytes > 0


def _bytes_per_worker(conditions: Conditions) -> float:
    """Return the decoded bytes that each worker reads."""
    blocks = max(1.0, conditions.decoded_bytes / max(conditions.max_block_bytes, MIN_BLOCK_BYTES))
    return conditions.decoded_bytes / max(1.0, min(conditions.n_workers, blocks))


def raw_peak(
    conditions: Conditions, models: Sequence[Predictor], each: LinearModel | None = None, learned: bool = True
) -> tuple[float, int]:
    """Return the fixed memory plus one partition of the usual size per worker; and that size."""
    each = each or partition_line([], [], models)
    size = conditions.max_block_bytes
    for model in models:
        size = min(size, model.best_size(conditions.cap_bytes, model.to_dict()["largest_record_bytes"]) or size)
    most = conditions.decoded_bytes
    if not learned:  # they double until all is read
        most = (conditions.decoded_bytes // conditions.n_workers + _FIRST_BYTES) // 2
    size = max(MIN_BLOCK_BYTES, min(size, most))
    if not models:  # a deduplication: all of it is in the plan
        return float(conditions.fixed_bytes), size
    n = min(conditions.n_workers, max(1, math.ceil(conditions.decoded_bytes / size)))
    return conditions.fixed_bytes + n * (
        conditions.worker_bytes + min(each.at(size), float(conditions.cap_bytes))
    ), size


def raw_seconds(conditions: Conditions, times: LinearModel, nodes: int = 1) -> float:
    """Return the seconds that the plain model predicts.

    Input that a feeder hands out is decoded by one process, and workers wait for it.
    """
    decode_s = _DECODE_S_PER_BYTE * conditions.decoded_bytes if conditions.handover_bytes else 0.0
    return times.start + max(times.slope * _bytes_per_worker(conditions), decode_s) / nodes


def raw_scratch(conditions: Conditions) -> float:
    return float(min(conditions.handover_bytes, conditions.decoded_bytes))


def runs_of(profile: Mapping[str, Any] | None) -> list[RunMeasurement]:
    """Return the runs in a profile, oldest first, without damaged ones."""
    entries = (profile or {}).get("runs")
    runs = []
    for data in entries[-MAX_RUNS:] if isinstance(entries, list) else ():
        try:
            runs.append(RunMeasurement.from_dict(data))
        except UsageError:
            continue
    return runs


def _alike(a: Conditions, b: Conditions) -> float:
    """Return how much a run under `b` says about one under `a`, between 0 and 1."""
    apart = abs(math.log(a.budget_bytes / b.budget_bytes)) + abs(math.log(a.n_workers / b.n_workers))
    apart += abs(math.log(max(a.decoded_bytes, 1 << 20) / max(b.decoded_bytes, 1 << 20))) / 3
    # Compressed input and Parquet are read by other means than plain text, one process more among them.
    packed = [max(c.decoded_bytes, 1) / max(c.input_bytes, 1) for c in (a, b)]
    apart += abs(math.log(packed[0] / packed[1]))
    return 1 / (1 + apart)


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def _number(data: Mapping[str, Any], name: str, kind: type) -> Any:
    value = data.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= _LARGEST:
        expected = f"expected a number from 0 to {_LARGEST:g}, got {value!r:.80}"
        raise UsageError(f"machine profile: a run: {name}: {expected}")
    return int(value) if kind is int else float(value)
