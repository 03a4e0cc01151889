"""The watch of a run: takes its samples, judges them, keeps and sends the alerts, and answers with remedies.

The engine calls it about once a second (engine/monitor/monitor.py) and knows nothing of rules and sinks. It must
neither block nor raise.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from tamis.engine.progress import RunSample
from tamis.engine.schema import AlertCounts
from tamis.observe.alerts.choose import OFF, AlertSetup, choose, find_file
from tamis.observe.alerts.delivery import Delivery
from tamis.observe.alerts.measures import RunContext, numbers
from tamis.observe.alerts.parse import Section, read_file, read_mapping
from tamis.observe.alerts.rules import RESOLVED, Alert, Rulebook
from tamis.observe.alerts.sinks import LOG_NAME, LogSink, TerminalSink
from tamis.stores.run_locations import output_of_run_dir

Record = Callable[[str, str, str, Mapping[str, Any]], None]
SAME_DISK_BYTES = 256_000_000  # what others may have freed since the sample was taken


class Watch:
    """One for each run.

    `attach` and `close` belong to its beginning and end; `show` prints a line above the progress.
    """

    def __init__(
        self,
        chosen: AlertSetup,
        context: RunContext,
        run_dir: str,
        show: Callable[[str], None],
        name: str = "",
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        run = {"name": name, "output": context.output, "run_dir": run_dir}
        self._run = {**run, "host": os.uname().nodename, "pid": os.getpid()}
        self.counts: Counter[str] = Counter()  # alerts by rule; resolved ones are no new alerts
        self._book = Rulebook(chosen.rules, context, chosen.every_s, chosen.to)
        self._clock, self._wall, self._show, self._run_dir = clock, wall, show, run_dir
        self._record: Record | None = None
        self._log = LogSink(os.path.join(run_dir, LOG_NAME))
        self._delivery = Delivery([self._log, TerminalSink(show), *chosen.sinks.values()], self._complain)
        self._paused_until_s = float("-inf")

    def attach(self, record: Record) -> None:
        """Set where alerts are stored: the run database."""
        self._record = record

    def __call__(self, sample: RunSample) -> list[str]:
        """Return the remedies for this sample, in the form that engine/supervisor/alert_orders.py reads."""
        now_s = self._clock()
        remedies: list[str] = []
        for alert in self._book.judge(self._completed(sample, now_s), now_s, self._wall()):
            if alert.level != RESOLVED:
                self.counts[alert.rule] += 1
            data = alert.to_dict()
            if self._record is not None:
                self._record(alert.rule, alert.level, alert.text, data)
            self._delivery.send({**data, "run": self._run}, alert.sinks)
            remedies += [self._meant(remedy, alert, sample, now_s) for remedy in alert.remedies]
        return list(dict.fromkeys(remedies))

    def close(self, timeout_s: float = 10.0) -> None:
        self._delivery.close(timeout_s)

    def summary(self) -> AlertCounts:
        """Return how many alerts there were, by rule, and how many were not delivered, by sink."""
        n = self.counts.total()
        return {"n": n, "rules": dict(self.counts), "undelivered": self._delivery.failures, "log": self._log.path}

    def _complain(self, text: str) -> None:
        self._show(text)
        self._log.deliver({"at": self._wall(), "level": "failed", "rule": "alerts", "text": text})

    def _completed(self, sample: RunSample, now_s: float) -> RunSample:
        """Return the sample with the size of the disk, not counting an ordered pause as a lack of progress."""
        completed, known = sample.copy(), numbers(sample)
        if "disk_total_bytes" not in known:
            completed["disk_total_bytes"] = self._disk_bytes(known.get("disk_free_bytes"))
        if "progress_s" in known:
            completed["progress_s"] = max(0.0, min(known["progress_s"], now_s - self._paused_until_s))
        return completed

    def _disk_bytes(self, free_bytes: float | None) -> int | None:
        """Return the size of the disk that `free_bytes` refers to.

        Return None if that is another disk (scratch may be stored elsewhere).
        """
        try:
            status = os.statvfs(self._run_dir)
        except OSError:
            return None
        if free_bytes is None or free_bytes < 0.98 * status.f_bavail * status.f_frsize - SAME_DISK_BYTES:
            return None
        # As free space is what a user may write, so is the whole what users may fill.
        return (status.f_blocks - status.f_bfree + status.f_bavail) * status.f_frsize

    def _meant(self, remedy: str, alert: Alert, sample: RunSample, now_s: float) -> str:
        """Return the remedy with what the rule leaves open: which worker, and why."""
        name, _, argument = remedy.partition(":")
        if name == "pause":
            self._paused_until_s = max(self._paused_until_s, now_s + float(argument))
        if name == "stop":
            return f"stop:alert {alert.rule}: {alert.text}"
        if name != "recycle":
            return remedy
        workers = numbers(sample.get("workers"))
        worker = alert.worker if alert.worker is not None or not workers else max(workers, key=lambda w: workers[w])
        return "recycle" if worker is None else f"recycle:{worker}"


def open_watch(
    given: str | Mapping[str, Any] | None,
    run_dir: str,
    name: str,
    show: Callable[[str], None],
    limits: tuple[float, int],
    recipe: Section | None = None,
    allow_recipe_sinks: bool = False,
) -> Watch | None:
    """Return the watch of a run by the rules of its user; None if these are off.

    `given`: the user's rules as a mapping, or their file (None: the one that is looked for). `limits`: share and number
    of records in quarantine that end the run.
    """
    own: Section | None
    if isinstance(given, Mapping):
        own = read_mapping(given, os.environ)
    else:
        file = find_file(given, os.environ)
        if file == OFF:
            return None
        own = read_file(file, os.environ) if file is not None else None
    context = RunContext(output_of_run_dir(run_dir), *limits)
    return Watch(choose(recipe, own, context, allow_recipe_sinks), context, run_dir, show, name)
