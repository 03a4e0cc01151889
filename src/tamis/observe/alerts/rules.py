"""Rules: raise an alert when a measure is beyond a limit for long enough, and resolve it later. Pure.

    quiet --beyond the limit--> pending --for `for_s`--> firing --back by a margin for RESOLVE_S--> quiet

The margin and the wait before "resolved" keep a value that swings around its limit from being reported at each swing,
and one rule never speaks about one subject more often than every `every_s`. The clock comes in with the samples.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import field
from typing import Any, NamedTuple

from tamis._dataclasses import dataclass
from tamis.engine.progress import RunSample
from tamis.observe.alerts.measures import MAX_SUBJECTS, MEASURES, MeasureReading, RunContext, RunMeter
from tamis.observe.alerts.wording import Amount

WARNING, CRITICAL, RESOLVED = "warning", "critical", "resolved"
LEVELS = (WARNING, CRITICAL)
# What may be done about an alert, and the sentence for it.
REMEDIES = {
    "shrink": "halving partitions",
    "recycle": "replacing the worker",
    "pause": "pausing for {:seconds}",
    "stop": "stopping the run with everything committed",
}
BUILT_IN_SINKS = ("log", "terminal")
RESOLVE_S = 10.0
RESOLVE_MARGIN = 0.05  # of the limit
DEFAULT_EVERY_S = 600.0


class AlertLimit(NamedTuple):
    """In the measure's unit, or (`unit` "bytes" where the measure's is not) a size."""

    amount: float
    unit: str


class AlertRule(NamedTuple):
    """Beyond any one of `limits` for `for_s` seconds.

    `low`: below them, not above. `remedies` may carry a time: pause:30.
    """

    name: str
    measure: str
    limits: tuple[AlertLimit, ...]
    low: bool = False
    for_s: float = 0.0
    level: str = WARNING
    every_s: float | None = None  # None: what is set for all rules
    sinks: tuple[str, ...] | None = None  # None: those set for all rules
    remedies: tuple[str, ...] = ()
    advice: str = ""  # instead of the measure's own
    only: str = ""  # one stage, or one GPU
    on: bool = True

    def exceeded(self, reading: MeasureReading | None, margin: float = 0.0) -> AlertLimit | None:
        """Return the first limit that the reading exceeds; with a margin, the first that it is not clear of."""
        if reading is None:
            return None
        for limit in self.limits:
            value = reading.value if limit.unit == MEASURES[self.measure].unit else reading.n_bytes
            if value is None:
                continue
            if value < limit.amount * (1 + margin) if self.low else value > limit.amount * (1 - margin):
                return limit
        return None

    def means(self, subject: str) -> bool:
        return not self.only or subject in (self.only, f"stage {self.only}", f"GPU {self.only}")


def default_rules(context: RunContext) -> list[AlertRule]:
    """Return the rules that are enabled by default."""
    share = "share"
    return [
        AlertRule("memory", "memory", (AlertLimit(0.85, share),), for_s=30.0),
        AlertRule("throughput", "throughput", (AlertLimit(0.5, share),), low=True, for_s=30.0),
        AlertRule("quarantine", "quarantine", (AlertLimit(context.quarantine_limit / 2, share),), for_s=10.0),
        AlertRule(
            "disk", "disk", (AlertLimit(0.05, share), AlertLimit(1e9, "bytes")), low=True, for_s=5.0, level=CRITICAL
        ),
        AlertRule("gpu", "gpu", (AlertLimit(0.8, share),), low=True, for_s=60.0),
        AlertRule("leak", "leak", (AlertLimit(0.0, "bytes"),)),
        AlertRule("handles", "handles", (AlertLimit(0.0, "number"),)),
        AlertRule("progress", "progress", (AlertLimit(300.0, "seconds"),)),
    ]


class Alert(NamedTuple):
    """The report of a reading; `text` is the whole sentence, `value` in the unit of the limit."""

    value: float | None
    text: str
    subject: str = ""
    n_bytes: float | None = None
    whole: float | None = None  # what 100 % is
    worker: int | None = None
    rule: str = ""
    level: str = ""
    at: float = 0.0  # Unix seconds
    percent: float | None = None
    limit: float = 0.0
    unit: str = ""  # of value and limit
    for_s: float = 0.0
    advice: str = ""
    n_untold: int = 0
    remedies: tuple[str, ...] = ()
    sinks: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        values = {name: value for name, value in self._asdict().items() if name != "sinks"}
        return values | {"remedies": list(self.remedies)}


@dataclass
class _State:
    """The state of one rule for one subject."""

    since_s: float = 0.0  # beyond the limit without a break, where `beyond`
    beyond: bool = False
    firing: bool = False
    limit: AlertLimit | None = None  # that was reported since it fires
    told_s: float = float("-inf")
    calm_s: float | None = None
    n_untold: int = 0


@dataclass
class Rulebook:
    """Judges samples by rules. `every_s` and `sinks` are for rules that do not say themselves."""

    rules: Sequence[AlertRule]
    context: RunContext = field(default_factory=RunContext)
    every_s: float = DEFAULT_EVERY_S
    sinks: tuple[str, ...] = BUILT_IN_SINKS

    def __post_init__(self) -> None:
        self._meter = RunMeter(self.context)
        self._states: dict[str, dict[str, _State]] = defaultdict(dict)  # by rule and subject

    def judge(self, sample: RunSample, now_s: float, time_s: float = 0.0) -> list[Alert]:
        """Judge the rules. `now_s` never goes back; `time_s` is the same moment in Unix seconds."""
        seen = self._meter.look(sample, now_s)
        alerts: list[Alert] = []
        for rule in (rule for rule in self.rules if rule.on):
            readings = {r.subject: r for r in MEASURES[rule.measure].readings(seen) if rule.means(r.subject)}
            states = self._states[rule.name]
            for subject in dict.fromkeys([*readings, *states]):
                if subject in states or len(states) < MAX_SUBJECTS:
                    state = states.setdefault(subject, _State())
                    reading = readings.get(subject)
                    level = self._step(rule, state, reading, now_s)
                    if level:
                        alerts.append(self._alert(rule, state, level, reading, subject, now_s, time_s))
        return alerts

    def _step(self, rule: AlertRule, state: _State, reading: MeasureReading | None, now_s: float) -> str:
        """Return the level at which an alert is due now; "" for none."""
        limit = rule.exceeded(reading)
        if limit is not None:
            state.calm_s = None
            if not state.beyond:
                state.beyond, state.since_s = True, now_s
            if not state.firing and now_s - state.since_s >= rule.for_s:
                state.firing, state.limit = True, None
                state.n_untold += 1
            every_s = self.every_s if rule.every_s is None else rule.every_s
            if not state.firing or now_s - state.told_s < every_s:
                return ""
            state.told_s, state.limit = now_s, limit
            return rule.level
        if not state.firing:
            state.beyond = False
        elif rule.exceeded(reading, RESOLVE_MARGIN) is not None:
            state.calm_s = None
        else:
            state.calm_s = now_s if state.calm_s is None else state.calm_s
            if now_s - state.calm_s >= min(RESOLVE_S, rule.for_s):
                state.beyond = state.firing = False
                state.calm_s = None
                return RESOLVED if state.limit is not None else ""
        return ""

    def _alert(
        self,
        rule: AlertRule,
        state: _State,
        level: str,
        reading: MeasureReading | None,
        subject: str,
        now_s: float,
        time_s: float,
    ) -> Alert:
        measure, limit, lasted_s = MEASURES[rule.measure], state.limit, Amount(now_s - state.since_s)
        assert limit is not None
        over = f"{rule.name}{f' of {subject}' if subject else ''} is over"
        reading = reading or MeasureReading(0.0, over, subject)
        share = reading.value if measure.unit == "share" else None
        alert = Alert(
            value=reading.value if limit.unit == measure.unit else reading.n_bytes,
            text=f"resolved after {lasted_s:seconds}: {reading.text}",
            subject=subject,
            n_bytes=reading.n_bytes,
            whole=reading.whole,
            worker=reading.worker,
            rule=rule.name,
            level=level,
            at=time_s,
            percent=round(100 * share, 3) if share is not None and share < 1e6 else None,
            limit=limit.amount,
            unit=limit.unit,
            for_s=round(lasted_s, 1),
            sinks=self.sinks if rule.sinks is None else rule.sinks,
        )
        if level == RESOLVED:
            return alert
        advice = rule.advice or measure.advice_at(self.context)
        n_untold, state.n_untold = max(0, state.n_untold - 1), 0
        text = reading.text + (f" for {lasted_s:seconds}" if lasted_s >= 1 and measure.unit != "seconds" else "")
        text += _limit_text(limit) + (f" ({n_untold} more since the last alert)" if n_untold else "")
        text += f": {advice}" + (f" [{', '.join(map(_done, rule.remedies))}]" if rule.remedies else "")
        return alert._replace(text=text, advice=advice, n_untold=n_untold, remedies=rule.remedies)


def _limit_text(limit: AlertLimit) -> str:
    """Return the limit as a part of a message; "" for a limit of zero bytes."""
    if not limit.amount and limit.unit == "bytes":
        return ""
    return f", limit {Amount(limit.amount):{limit.unit}}"


def _done(remedy: str) -> str:
    name, _, argument = remedy.partition(":")
    return REMEDIES[name].format(Amount(argument or 0))
