"""Alerts on their way to sinks: one thread, a bounded queue, retries that wait without holding up what comes after.

The run queues an alert and continues; it never waits, except at its end, for a bounded time, so that the last alert
(which may say why the run stopped) gets out. A failure is counted, and reported once per sink.
"""

from __future__ import annotations

import contextlib
import sched
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tamis.observe.alerts.sinks import AlertSink, SinkError

MAX_WAITING = 100
MAX_PER_MINUTE = 60  # and sink: whatever the rules say, no phone rings all day
MAX_BACKOFF_S = 30.0


def backoff_s(n_tries: int) -> float:
    """Return the seconds to wait after the n-th failed try.

    >>> [backoff_s(n) for n in (1, 2, 3, 4, 10)]
    [1.0, 2.0, 4.0, 8.0, 30.0]
    """
    return min(2.0 ** min(n_tries - 1, 10), MAX_BACKOFF_S)


class Delivery:
    """`complain` is called, once per sink, when an alert was not delivered.

    It is called in the delivering thread, or by `close`.
    """

    def __init__(
        self,
        sinks: Sequence[AlertSink],
        complain: Callable[[str], None],
        max_waiting: int = MAX_WAITING,
        max_per_minute: int = MAX_PER_MINUTE,
        backoff: Callable[[int], float] = backoff_s,
    ) -> None:
        self._sinks = {sink.name: sink for sink in sinks}
        self._complain, self._backoff, self._max_waiting = complain, backoff, max_waiting
        self._sent: dict[str, deque[float]] = {name: deque(maxlen=max_per_minute) for name in self._sinks}
        self._tries = sched.scheduler(time.monotonic)  # may be used by both threads
        self._thread = threading.Thread(target=self._run, name="tamis-alerts", daemon=True)
        self._changed = threading.Event()
        self._ends_s = float("inf")  # set by `close`
        self._counting = threading.Lock()
        self._complaints: deque[str] = deque()
        self.n_delivered: dict[str, int] = dict.fromkeys(self._sinks, 0)
        self.n_failed: dict[str, int] = dict.fromkeys(self._sinks, 0)

    def send(self, alert: Mapping[str, Any], names: Sequence[str]) -> None:
        """Send without waiting for a sink; what does not fit into the queue, or comes too often, counts as failed."""
        for sink in (self._sinks[name] for name in names if name in self._sinks and self._ends_s == float("inf")):
            sent, now = self._sent[sink.name], time.monotonic()
            if len(sent) == sent.maxlen and sent[0] > now - 60.0:
                self._failed(sink, f"more than {sent.maxlen} alerts within a minute")
                continue
            sent.append(now)
            self._plan(sink, alert, 0)
            if not self._thread.ident:
                self._thread.start()

    def close(self, timeout_s: float) -> None:
        """Wait for what is under way, at most `timeout_s`.

        What is left then, or is due later than that, is given up.
        """
        self._ends_s = min(self._ends_s, time.monotonic() + timeout_s)
        self._changed.set()
        if self._thread.ident:
            self._thread.join(timeout_s)
        if self._thread.is_alive():
            for sink in self._sinks.values():
                sink.abandon()
        for waiting in self._tries.queue:
            with contextlib.suppress(ValueError):  # it has just been taken
                self._tries.cancel(waiting)
                sink, _, n_before = waiting.argument
                self._failed(sink, f"the run ended before {'the next try' if n_before else 'it was sent'}")
        self._say()

    @property
    def failures(self) -> dict[str, int]:
        """Alerts that did not arrive, by sink; only sinks that have any."""
        return {name: n for name, n in self.n_failed.items() if n}

    def _plan(self, sink: AlertSink, alert: Mapping[str, Any], n_before: int, why: str = "") -> None:
        """Schedule the next try: now, or after a backoff if there were earlier ones.

        `n_before`: the number of earlier tries. `why`: the reason why the last of them failed.
        """
        if len(self._tries.queue) >= self._max_waiting:
            self._failed(sink, why or f"more than {self._max_waiting} alerts wait already")
            return
        self._tries.enter(self._backoff(n_before) if n_before else 0.0, 0, self._try, (sink, alert, n_before))
        self._changed.set()

    # -- in the thread -----------------------------------------------------------------------------------------------
    def _run(self) -> None:
        while True:
            ends_s = self._ends_s  # before looking: nothing is added once it is set
            due_s = self._tries.run(blocking=False)  # all that are due; how long until the next is
            if ends_s - time.monotonic() < (float("inf") if due_s is None else due_s):
                return
            self._changed.wait(due_s)
            self._changed.clear()

    def _try(self, sink: AlertSink, alert: Mapping[str, Any], n_before: int) -> None:
        try:
            sink.deliver(alert)
            self.n_delivered[sink.name] += 1
        except SinkError as exc:
            why = f"{exc}, after {n_before + 1} tries" if n_before else str(exc)
            if exc.again and n_before < sink.retries:
                self._plan(sink, alert, n_before + 1, why)
            else:
                self._failed(sink, why)
        except Exception as exc:  # a mistake in a sink must not end the thread that serves the others
            self._failed(sink, f"{type(exc).__name__}: {exc}")
        self._say()

    def _failed(self, sink: AlertSink, why: str) -> None:
        with self._counting:
            self.n_failed[sink.name] += 1
            if self.n_failed[sink.name] == 1:
                self._complaints.append(
                    f"an alert did not reach {sink.name}: {why} (further failures are only counted)"
                )

    def _say(self) -> None:
        while self._complaints:
            try:
                self._complain(self._complaints.popleft())
            except Exception:  # there is no one left to report to
                return
