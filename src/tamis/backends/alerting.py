"""Alerts of a run from any caller: the rules that apply, and the watch that judges its samples by them.

The command line, pipelines and workflows all come here. `alerts` is what the caller says: a file of rules, a mapping
with the same keys, "off" (or False) for none; None for $TAMIS_ALERTS or the file in the user's configuration
(docs/guides/alerts.md).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

from tamis import _satellites
from tamis.engine.run.settings import RunSettings
from tamis.errors import UsageError

if TYPE_CHECKING:
    from tamis.engine.monitor.monitor import Watch
    from tamis.engine.schema import AlertCounts

OFF = "off"


def make_watch(
    alerts: Any,
    settings: Mapping[str, Any],
    run_dir: str,
    name: str,
    show: Callable[[str], None],
    recipe: Any = None,
    allow_recipe_sinks: bool = False,
) -> Any:
    """Return the watch of a run; None if alerts are off. Wrong rules raise before anything starts.

    `show` prints a line; `recipe`: the section `alerts:` of a recipe, whose own sinks count only with
    `allow_recipe_sinks`.
    """
    if alerts is False:
        return None
    source: str | Mapping[str, Any] | None = os.fspath(alerts) if isinstance(alerts, os.PathLike) else alerts
    if not isinstance(source, (str, Mapping, type(None))):
        raise UsageError(f"alerts: expected a file, a mapping or {OFF!r}, got {alerts!r:.80}")
    limits = RunSettings(quarantine_limit=settings.get("quarantine_limit"))
    open_watch = _satellites.load("alerts.open_watch")
    return open_watch(
        source, run_dir, name, show, (limits.quarantine_share, limits.quarantine_floor), recipe, allow_recipe_sinks
    )


@contextlib.contextmanager
def watch_alerts(
    alerts: Any,
    own: Watch | None,
    settings: Mapping[str, Any],
    run_dir: str,
    name: str,
    show: Callable[[str], None] | None = None,
) -> Iterator[Any]:
    """Give the watch of a run, and close it at the end. `own`: that of the caller, which takes its place."""
    if own is not None:
        if alerts not in (None, False, OFF):
            raise UsageError("alerts: there is a `watch` already, which judges the run; give one of them")
        yield own
        return
    watch = None if alerts == OFF else make_watch(alerts, settings, run_dir, name, show or (lambda text: None))
    try:
        yield watch
    finally:
        if watch is not None:
            watch.close()


def summary_of(watch: Any) -> AlertCounts:
    """Return the alerts of a watch; none for a watch that does not count them."""
    summary = getattr(watch, "summary", None)
    return cast("AlertCounts", dict(summary())) if callable(summary) else {}
