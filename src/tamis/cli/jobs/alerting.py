"""Alerts on the command line: which rules and sinks a run has, and what is said of them at its end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tamis.observe.alerts.parse import Section
    from tamis.observe.alerts.watch import Watch


@dataclass(frozen=True)
class Wanted:
    """What the user and the recipe say. `file`: from --alerts."""

    file: str | None = None
    allow_recipe_sinks: bool = False
    recipe: Section | None = None


def make_watch(
    wanted: Wanted, settings: Mapping[str, Any], run_dir: str, name: str, show: Callable[[str], None]
) -> Watch | None:
    """Return the watch of a run, or None if the user wants none.

    Invalid rules are reported before anything starts.
    """
    from tamis.backends import alerting

    return alerting.make_watch(wanted.file, settings, run_dir, name, show, wanted.recipe, wanted.allow_recipe_sinks)  # type: ignore[no-any-return]


def alert_lines(alerts: Mapping[str, Any] | None) -> list[str]:
    """Return the last lines of the summary: the number of alerts, their rules, and whether all were delivered."""
    if not alerts:
        return []
    lines = []
    if alerts["n"]:
        rules = ", ".join(f"{n} x {rule}" for rule, n in alerts["rules"].items())
        lines.append(f"{alerts['n']} alert{'s' if alerts['n'] != 1 else ''} ({rules}): {alerts['log']}")
    for sink, n in alerts["undelivered"].items():
        lines.append(f"{n} alert{'s' if n != 1 else ''} did not reach {sink}")
    return lines
