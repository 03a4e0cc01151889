"""Widths of ranges that hold as often as claimed, learned from earlier predictions on this machine.

A forecast (prediction.py) gives for each figure a centre and a spread, by a model that may be wrong about both. What is
kept of every run is where its figure lay, in spreads from the centre, whatever pipeline it was. The next range reaches
from the 5th to the 95th percentile of these, and its middle is their median: nothing is assumed about how they are
distributed (conformal prediction), so a machine that is busy with other things, or a model that errs to one side,
widens and moves the ranges until nine in ten hold again. Where more than one in ten of the last ranges failed they
reach further than that, and less far where fewer did: a machine changes (adaptive conformal inference). Shipped values,
measured by benchmarks/plan.py, are used until there are enough of this machine's own.

Figures: the peak, the seconds of a run, and those of the command around it (Python, imports, the report).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field
from typing import Any, Final

from tamis._dataclasses import dataclass
from tamis.errors import UsageError
from tamis.forecast import machine_profiles
from tamis.forecast.prediction import CONFIDENCE, Conditions, Prediction, SpanName, parse_prediction
from tamis.memory.machine import age_s

KEY = machine_profiles.RANGES
PEAK: Final = "peak_bytes"
SECONDS: Final = "seconds"
COMMAND: Final = "command_seconds"
FIGURES = (PEAK, SECONDS, COMMAND)
TABLE, PROBE, PROFILE = KINDS = ("table", "probe", "profile")  # what a forecast came from
KEPT = 80  # of each figure and kind
_ENOUGH = 30  # own ones: then the shipped ones are not needed
_MAX_OFF = 30.0
_MAX_COMMANDS = _MAX_PLANNED = 20
COMMAND_S = 0.45  # what a command takes in addition to its run: Python, imports, the report
_LEAST, _MOST = 0.8, 0.98  # how many in ten ranges may reach for
_STEP = 0.03  # that a range which failed moves this by
_LOOKED_AT = 40  # of the last ranges

# Where figures lay on the machine of benchmarks/plan.py, in spreads: percentiles 2.5, 7.5, ... of held-out jobs.
SHIPPED: dict[str, dict[str, tuple[float, ...]]] = {
    PEAK: {
        TABLE: (-1.4, -1.2, -1.0, -0.9, -0.8, -0.7, -0.6, -0.6, -0.5, -0.4, -0.2, 0.1, 0.5),
        PROBE: (-1.1, -0.6, -0.4, -0.3, -0.2, -0.1, -0.1, 0.0, 0.0, 0.1, 0.3, 0.5, 0.8),
        PROFILE: (-1.4, -0.7, -0.5, -0.4, -0.2, -0.1, 0.1, 0.2, 0.3, 0.5, 0.8, 1.0, 1.7),
    },
    SECONDS: {
        TABLE: (-1.0, -0.6, -0.3, -0.1, 0.0, 0.1, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 0.9),
        PROBE: (-0.8, -0.4, -0.2, -0.1, 0.0, 0.0, 0.1, 0.2, 0.2, 0.3, 0.3, 0.5, 0.9),
        PROFILE: (-1.2, -0.9, -0.7, -0.5, -0.4, -0.2, -0.1, 0.1, 0.2, 0.3, 0.5, 0.8, 1.2),
    },
}
SHIPPED[COMMAND] = SHIPPED[SECONDS]


@dataclass
class Ranges:
    """Deviations of earlier predictions on this machine.

    `off`: figure -> kind of forecast -> spreads from the centre, oldest first; `held`: the same, whether the range that
    was given held.
    """

    off: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    held: dict[str, list[bool]] = field(default_factory=dict)
    command_s: list[float] = field(default_factory=list)
    planned: dict[str, Prediction] = field(default_factory=dict)  # by pipeline: what a plan said of its first run

    def reach(self, figure: str, kind: str) -> tuple[float, float, float]:
        """Lower end, middle and upper end of a range, in spreads from its centre."""
        if figure not in FIGURES:
            return -1.0, 0.0, 1.0
        own = self.off.get(figure, {}).get(kind, [])[-KEPT:]
        shipped = SHIPPED[figure][kind] if len(own) < _ENOUGH else ()
        errors, level = sorted([*own, *shipped]), self.level(figure)
        low, high = percentile(errors, (1 - level) / 2), percentile(errors, (1 + level) / 2)
        return low, min(max(percentile(errors, 0.5), low), high), high

    def level(self, figure: str) -> float:
        """Return the share that ranges aim for, so that nine in ten hold."""
        last = self.held.get(figure, [])[-_LOOKED_AT:]
        off = sum(CONFIDENCE - 1 if is_hit else CONFIDENCE for is_hit in last)
        return min(max(CONFIDENCE + _STEP * off, _LEAST), _MOST)

    def note(self, figure: str, kind: str, off: float, is_hit: bool) -> None:
        some = self.off.setdefault(figure, {}).setdefault(kind, [])
        some.append(round(min(max(off, -_MAX_OFF), _MAX_OFF), 4))
        self.off[figure][kind] = some[-KEPT:]
        self.held[figure] = [*self.held.get(figure, []), is_hit][-KEPT:]

    def coverage(self) -> dict[str, list[int]]:
        """Return how often ranges held on this machine: figure -> [held, number of ranges]."""
        return {figure: [sum(hits), len(hits)] for figure, hits in self.held.items()}

    @property
    def start_of_command_s(self) -> float:
        some = sorted(self.command_s)
        return percentile(some, 0.5) if some else COMMAND_S

    @classmethod
    def from_dict(cls, data: Any) -> Ranges:
        """Build from a profile; raise UsageError for anything but the attributes of a Ranges."""
        try:
            off = {f: {k: _numbers(v, _MAX_OFF) for k, v in kinds.items()} for f, kinds in data["off"].items()}
            hits = {f: values[-KEPT:] for f, values in data["held"].items()}
            command_s, planned = _numbers(data["command_s"], 1e6), data["planned"]
            is_valid = {*off, *hits} <= {*FIGURES} and {k for kinds in off.values() for k in kinds} <= {*KINDS}
            if not is_valid or not all(isinstance(v, bool) for values in hits.values() for v in values):
                raise ValueError
        except (KeyError, TypeError, ValueError, AttributeError):
            raise UsageError("ranges: expected what runs on this machine showed") from None
        return cls(off, hits, command_s[-_MAX_COMMANDS:], {str(k): parse_prediction(p) for k, p in planned.items()})


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the value of a sorted list below which a further value falls with at least this probability.

    For shares below a half: the value above which it falls.

    >>> [percentile([1, 2, 3, 4, 5, 6, 7, 8, 9], share) for share in (0.1, 0.5, 0.9)]
    [1, 5, 9]
    """
    n = len(ordered)
    if share == 0.5:
        return ordered[(n - 1) // 2]
    rank = math.ceil((n + 1) * share) if share > 0.5 else math.floor((n + 1) * share)
    return ordered[min(max(rank, 1), n) - 1]


def load() -> Ranges:
    """Load what this machine has shown; return empty ranges if nothing is stored, or if it is damaged."""
    try:
        return Ranges.from_dict((machine_profiles.load(KEY) or {}).get(KEY))
    except UsageError:
        return Ranges()


def save(ranges: Ranges) -> bool:
    return machine_profiles.save(KEY, {"name": "how far predictions were off", KEY: vars(ranges)})


def with_command(prediction: Prediction, ranges: Ranges) -> Prediction:
    """Return a forecast as `tamis plan` gives it, with the time of the whole command."""
    command_s = ranges.start_of_command_s
    middle, half = prediction["centres"][SECONDS]
    centre = [round(middle + command_s, 3), half]
    low, expected, high = (
        round(centre[0] * math.exp(r * half), 2) for r in ranges.reach(COMMAND, str(prediction["kind"]))
    )
    return {
        **prediction,
        "seconds": {"low": low, "expected": expected, "high": high},
        "command_s": round(command_s, 2),
        "centres": {**prediction["centres"], COMMAND: centre},
        "held": ranges.coverage(),
    }


def learn(prediction: Prediction) -> None:
    """Add a run whose prediction (experience.py) was compared with what it took."""
    centres = _centres(prediction)
    if not centres:
        return
    ranges = load()
    learned: tuple[SpanName, ...] = (PEAK, SECONDS)
    for figure in learned:
        span = prediction.get(figure)
        if span is not None and span.get("measured") and figure in centres:
            middle, half = centres[figure]
            off = math.log(span["measured"] / middle) / half
            ranges.note(figure, prediction["kind"], off, span["inside"])
    save(ranges)


def remember_planned(key: str, prediction: Prediction) -> None:
    """Store what a plan predicted for a pipeline that has not run here: its run will show how far that was off."""
    ranges = load()
    ranges.planned = dict([*ranges.planned.items(), (key, prediction)][-_MAX_PLANNED:])
    save(ranges)


def take_planned(key: str, conditions: Conditions) -> Prediction | None:
    """Return and forget what a plan predicted for a run under exactly these conditions, or None."""
    ranges = load()
    plan = ranges.planned.pop(key, None)
    if plan is None:
        return None
    save(ranges)
    then, now = plan.get("conditions", {}), conditions._asdict()
    return plan if all(then.get(n) == now[n] for n in ("budget_bytes", "n_workers", "input_bytes")) else None


def learn_command(run_s: float, prediction: Prediction) -> None:
    """Learn how much longer a command takes than its run: Python, imports, the report."""
    whole_s, centres = age_s(), _centres(prediction)
    if whole_s is None or not 0 < run_s < whole_s:
        return
    ranges = load()
    if SECONDS in centres:
        kind, (middle, half) = prediction["kind"], centres[SECONDS]
        off = math.log(whole_s / (middle + ranges.start_of_command_s)) / half
        low, _, high = ranges.reach(COMMAND, kind)
        ranges.note(COMMAND, kind, off, low <= off <= high)
    ranges.command_s = [*ranges.command_s, round(whole_s - run_s, 3)][-_MAX_COMMANDS:]
    save(ranges)


def _centres(prediction: Prediction) -> dict[str, tuple[float, float]]:
    """Return centre and spread by figure, of a prediction of a known kind."""
    if prediction.get("kind") not in KINDS:
        return {}
    return {f: (a, b) for f, (a, b) in prediction.get("centres", {}).items() if a > 0 and b > 0}


def _numbers(values: Any, most: float) -> list[float]:
    """Return the last numbers of a list of numbers; raise ValueError for anything else."""
    if not isinstance(values, list) or len(values) > 10 * KEPT:
        raise ValueError
    if any(isinstance(v, bool) or not isinstance(v, (int, float)) or not abs(v) <= most for v in values):
        raise ValueError
    return [float(v) for v in values[-KEPT:]]
