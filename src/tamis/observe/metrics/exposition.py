"""The text format that Prometheus reads (version 0.0.4), written by hand: families of samples with HELP and TYPE lines.

Covers names, escapes and numbers. Does not cover what is measured: see observe/metrics/run_metrics.py.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tamis.terminal import printable

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_MAX_LABEL = 200  # characters: names of stages come from users, and every distinct one is a series of its own
_NAME = re.compile(r"[a-z][a-z0-9_]*")


@dataclass
class MetricFamily:
    """All samples of one name: a counter if it ends in _total, else a gauge."""

    name: str
    help: str
    samples: dict[tuple[tuple[str, str], ...], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        assert _NAME.fullmatch(self.name), self.name

    @property
    def kind(self) -> str:
        return "counter" if self.name.endswith("_total") else "gauge"

    def add(self, value: float | None, labels: Mapping[str, str] | None = None) -> MetricFamily:
        """Add a sample, leaving out an unknown value.

        Of samples with the same labels (a name that was cut) the last one counts.
        """
        if value is not None:
            self.samples[tuple((k, _cut(v)) for k, v in (labels or {}).items())] = value
        return self


def render(families: Iterable[MetricFamily]) -> str:
    lines = []
    for family in families:
        if not family.samples:
            continue
        lines.append(f"# HELP {family.name} {_escaped_help(family.help)}")
        lines.append(f"# TYPE {family.name} {family.kind}")
        for labels, value in family.samples.items():
            inside = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels)
            lines.append(f"{family.name}{{{inside}}} {number(value)}" if inside else f"{family.name} {number(value)}")
    return "".join(line + "\n" for line in lines)


def number(value: float) -> str:
    """Format a number as Prometheus reads it.

    >>> number(3), number(0.5), number(1e300), number(float("inf")), number(float("nan"))
    ('3', '0.5', '1e+300', '+Inf', 'NaN')
    """
    if isinstance(value, int):
        return str(int(value))
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(float(value))


def _escaped(text: str) -> str:
    r"""Escape the value of a label.

    >>> print(_escaped('a\\b "c"\nd'))
    a\\b \"c\"\nd
    """
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _escaped_help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _cut(text: str) -> str:
    """Cut a label to a bounded length, without half surrogate pairs and with control characters as visible text.

    The format could carry control characters; a terminal that shows the metrics would obey them.
    """
    plain = printable(str(text).encode("utf-8", "replace").decode("utf-8"), keep="\n")
    return plain if len(plain) <= _MAX_LABEL else plain[: _MAX_LABEL - 1] + "…"
