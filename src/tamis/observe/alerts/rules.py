"""Rules: when a measure is beyond a limit for long enough, somebody is told; once it is well back, too. Pure.

    quiet --beyond the limit--> pending --for `for_s`--> firing --back by a margin for RESOLVE_S--> quiet

The margin and the wait before "resolved" keep a value that swings around its limit from being told at each swing, and one
rule never speaks about one subject more often than every `every_s`. The clock comes in with the samples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tamis.observe.alerts.measures import MAX_SUBJECTS, MEASURES, Measure, Meter, Place, Reading, Sample, advice
from tamis.observe.alerts.wording import amount_text, time_text

WARNING, CRITICAL, RESOLVED = "warning", "critical", "resolved"
LEVELS = (WARNING, CRITICAL)
REMEDIES = ("shrink", "recycle", "pause", "stop")
BUILT_IN_SINKS = ("log", "terminal")
RESOLVE_S = 10.0
RESOLVE_MARGIN = 0.05  # of the limit
DEFAULT_EVERY_S = 600.0


@dataclass(frozen=True)
class Limit:
    """In the measure's unit, or (`unit` "bytes" where the measure's is not) a size."""

    amount: float
    unit: str


@dataclass(frozen=True)
class Rule:
    """Beyond any one of `limits` for `for_s` seconds. `low`: below them, not above. `remedies` may carry a time: pause:30."""

    name: str
    measure: str
    limits: tuple[Limit, ...]
    low: bool = False
    for_s: float = 0.0
    level: str = WARNING
    every_s: float | None = None  # None: what is set for all rules
    sinks: tuple[str, ...] | None = None  # None: those set for all rules
    remedies: tuple[str, ...] = ()
    advice: str = ""  # instead of the measure's own
    only: str = ""  # one stage, or one GPU
    on: bool = True


def default_rules(place: Place) -> list[Rule]:
    """The rules that are on without anybody asking."""
    share = "share"
    return [
        Rule("memory", "memory", (Limit(0.85, share),), for_s=30.0),
        Rule("throughput", "throughput", (Limit(0.5, share),), low=True, for_s=30.0),
        Rule("quarantine", "quarantine", (Limit(place.quarantine_limit / 2, share),), for_s=10.0),
        Rule("disk", "disk", (Limit(0.05, share), Limit(1e9, "bytes")), low=True, for_s=5.0, level=CRITICAL),
        Rule("gpu", "gpu", (Limit(0.8, share),), low=True, for_s=60.0),
        Rule("leak", "leak", (Limit(0.0, "bytes"),)),
        Rule("progress", "progress", (Limit(300.0, "seconds"),)),
    ]


@dataclass(frozen=True)
class Alert:
    rule: str
    level: str
    text: str
    at: float  # Unix seconds
    subject: str = ""
    value: float | None = None
    percent: float | None = None
    limit: float | None = None
    unit: str = ""  # of value and limit
    n_bytes: float | None = None
    whole: float | None = None
    for_s: float = 0.0
    advice: str = ""
    n_untold: int = 0
    remedies: tuple[str, ...] = ()
    sinks: tuple[str, ...] = ()
    worker: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        told = {name: value for name, value in vars(self).items() if name != "sinks"}
        return told | {"remedies": list(self.remedies)}


@dataclass
class _State:
    """Of one rule and one subject."""

    since_s: float | None = None  # beyond the limit without a break
    firing: bool = False
    told: bool = False  # that it fires now
    told_s: float | None = None
    calm_s: float | None = None
    n_untold: int = 0
    limit: Limit | None = None


@dataclass
class Rulebook:
    """Judges samples by rules. `every_s` and `sinks` are for rules that do not say themselves."""

    rules: Sequence[Rule]
    place: Place = field(default_factory=Place)
    every_s: float = DEFAULT_EVERY_S
    sinks: tuple[str, ...] = BUILT_IN_SINKS

    def __post_init__(self) -> None:
        self._meter = Meter(self.place)
        self._states: dict[tuple[str, str], _State] = {}
        self._rules = [rule for rule in self.rules if rule.on]
        self._measures = dict.fromkeys(rule.measure for rule in self._rules)

    def judge(self, sample: Sample, now_s: float, at: float = 0.0) -> list[Alert]:
        """`now_s` never goes back; `at` is the same moment in Unix seconds."""
        taken = {measure: self._meter.readings(measure, sample, now_s) for measure in self._measures}
        alerts: list[Alert] = []
        for rule in self._rules:
            readings = {r.subject: r for r in taken[rule.measure] if _is_meant(rule, r)}
            known = [subject for name, subject in self._states if name == rule.name]
            for subject in dict.fromkeys([*readings, *known]):
                state = self._states.get((rule.name, subject))
                if state is None:
                    if len(known) >= MAX_SUBJECTS:
                        continue
                    state = self._states[rule.name, subject] = _State()
                    known.append(subject)
                alert = self._step(rule, state, subject, readings.get(subject), now_s, at)
                alerts += [alert] if alert is not None else []
        return alerts

    def _step(
        self, rule: Rule, state: _State, subject: str, reading: Reading | None, now_s: float, at: float
    ) -> Alert | None:
        limit = exceeded(rule, reading)
        if limit is not None and reading is not None:
            state.calm_s = None
            state.since_s = now_s if state.since_s is None else state.since_s
            if now_s - state.since_s >= rule.for_s and not state.firing:
                state.firing, state.told = True, False
                state.n_untold += 1
            return self._tell(rule, state, reading, limit, now_s, at) if state.firing else None
        if not state.firing:
            state.since_s = None
            return None
        if exceeded(rule, reading, RESOLVE_MARGIN) is not None:
            state.calm_s = None
            return None
        state.calm_s = now_s if state.calm_s is None else state.calm_s
        if now_s - state.calm_s < min(RESOLVE_S, rule.for_s):
            return None
        alert = self._resolved(rule, state, subject, reading, now_s, at) if state.told else None
        state.firing = state.told = False
        state.since_s = state.calm_s = None
        return alert

    def _tell(self, rule: Rule, state: _State, reading: Reading, limit: Limit, now_s: float, at: float) -> Alert | None:
        every_s = self.every_s if rule.every_s is None else rule.every_s
        if state.told_s is not None and now_s - state.told_s < every_s:
            return None
        assert state.since_s is not None
        lasted_s = now_s - state.since_s
        measure = MEASURES[rule.measure]
        what_to_do = rule.advice or advice(measure, self.place)
        lasting = f" for {time_text(lasted_s)}" if lasted_s >= 1 and measure.unit != "seconds" else ""
        n_untold = max(0, state.n_untold - 1)
        again = f" ({n_untold} more since the last alert)" if n_untold else ""
        allowed = f", limit {amount_text(limit.amount, limit.unit)}" if limit.amount or limit.unit != "bytes" else ""
        done = f" [{', '.join(map(remedy_text, rule.remedies))}]" if rule.remedies else ""
        state.told, state.told_s, state.n_untold, state.limit = True, now_s, 0, limit
        text = f"{reading.text}{lasting}{allowed}{again}: {what_to_do}{done}"
        return self._alert(rule, rule.level, text, reading, limit, lasted_s, at, what_to_do, n_untold)

    def _resolved(
        self, rule: Rule, state: _State, subject: str, reading: Reading | None, now_s: float, at: float
    ) -> Alert:
        assert state.since_s is not None
        lasted_s = now_s - state.since_s
        now = reading.text if reading is not None else f"{rule.name}{f' of {subject}' if subject else ''} is over"
        text = f"resolved after {time_text(lasted_s)}: {now}"
        reading = reading if reading is not None else Reading(0.0, "", subject)
        return self._alert(rule, RESOLVED, text, reading, state.limit, lasted_s, at, "", 0)

    def _alert(
        self, rule: Rule, level: str, text: str, r: Reading, limit: Limit | None, lasted_s: float, at: float, what: str, n: int
    ) -> Alert:  # fmt: skip
        measure = MEASURES[rule.measure]
        unit = limit.unit if limit is not None else measure.unit
        value = r.n_bytes if unit == "bytes" and measure.unit != "bytes" else r.value
        return Alert(
            rule.name, level, text, at, r.subject, value, _percent(measure, r), limit.amount if limit else None, unit,
            r.n_bytes, r.whole, round(lasted_s, 1), what, n, () if level == RESOLVED else rule.remedies,
            self.sinks if rule.sinks is None else rule.sinks, r.worker,
        )  # fmt: skip


def exceeded(rule: Rule, reading: Reading | None, margin: float = 0.0) -> Limit | None:
    """The first limit that the reading is beyond. With a margin: that it is not clear of."""
    if reading is None:
        return None
    unit = MEASURES[rule.measure].unit
    for limit in rule.limits:
        value = reading.value if limit.unit == unit else reading.n_bytes
        if value is None:
            continue
        if value < limit.amount * (1 + margin) if rule.low else value > limit.amount * (1 - margin):
            return limit
    return None


def remedy_text(remedy: str) -> str:
    """
    >>> remedy_text("pause:90"), remedy_text("stop")
    ('pausing for 90 s', 'stopping the run with everything committed')
    """
    name, _, argument = remedy.partition(":")
    texts: Mapping[str, str] = {
        "shrink": "halving partitions",
        "recycle": "replacing the worker",
        "stop": "stopping the run with everything committed",
    }
    return f"pausing for {time_text(float(argument or 0))}" if name == "pause" else texts[name]


def _is_meant(rule: Rule, reading: Reading) -> bool:
    return not rule.only or reading.subject in (rule.only, f"stage {rule.only}", f"GPU {rule.only}")


def _percent(measure: Measure, reading: Reading) -> float | None:
    return round(100 * reading.value, 3) if measure.unit == "share" and reading.value < 1e6 else None
