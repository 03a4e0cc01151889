"""Alerts on their way to sinks: one thread, a bounded queue, retries that wait without holding up what comes after.

The run hands an alert over and goes on; it never waits, except at its end, for a bounded time, so that the last alert (which
may say why the run stopped) gets out. A failure is counted and told once per sink.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from tamis.observe.alerts.sinks import Sink, SinkError, backoff_s

MAX_WAITING = 100
MAX_PER_MINUTE = 60  # and sink: whoever wrote the rules, nobody's phone rings all day


class _Try(NamedTuple):
    due_s: float
    order: int  # of two that are due at once the first one given goes first
    n_before: int
    sink: Sink
    alert: Mapping[str, Any]


class Delivery:
    """`complain` is told, once per sink, that an alert did not arrive. It is called in the delivering thread, or by `close`."""

    def __init__(
        self,
        sinks: Sequence[Sink],
        complain: Callable[[str], None],
        max_waiting: int = MAX_WAITING,
        max_per_minute: int = MAX_PER_MINUTE,
        backoff: Callable[[int], float] = backoff_s,
    ) -> None:
        self._sinks = {sink.name: sink for sink in sinks}
        self._complain, self._backoff, self._max_waiting = complain, backoff, max_waiting
        self._sent: dict[str, deque[float]] = {name: deque(maxlen=max_per_minute) for name in self._sinks}
        self._waiting: list[_Try] = []  # a heap
        self._n_tries = 0
        self._thread: threading.Thread | None = None
        self._changed = threading.Condition(threading.RLock())  # holds for everything here that changes
        self._ends_s: float | None = None  # set by `close`
        self._complaints: deque[str] = deque()
        self.n_delivered: dict[str, int] = dict.fromkeys(self._sinks, 0)
        self.n_failed: dict[str, int] = dict.fromkeys(self._sinks, 0)

    def send(self, alert: Mapping[str, Any], names: Sequence[str]) -> None:
        """Never waits for a sink: what does not fit into the queue, or comes too often, is counted as failed."""
        with self._changed:
            for sink in (self._sinks[name] for name in names if name in self._sinks and self._ends_s is None):
                sent, now = self._sent[sink.name], time.monotonic()
                if len(sent) == sent.maxlen and sent[0] > now - 60.0:
                    self._failed(sink, f"more than {sent.maxlen} alerts within a minute")
                    continue
                sent.append(now)
                if not self._queue(now, 0, sink, alert):
                    self._failed(sink, f"more than {self._max_waiting} alerts wait already")
                elif self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="tamis-alerts", daemon=True)
                    self._thread.start()

    def close(self, timeout_s: float) -> None:
        """Wait for what is under way, at most `timeout_s`; retries that are due later than that are given up."""
        with self._changed:
            if self._thread is None or self._ends_s is not None:
                return
            self._ends_s = time.monotonic() + timeout_s
            self._changed.notify()
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            for sink in self._sinks.values():
                sink.abandon()
        self._say()

    @property
    def failures(self) -> dict[str, int]:
        """Alerts that did not arrive, by sink; only sinks that have any."""
        return {name: n for name, n in self.n_failed.items() if n}

    def _queue(self, due_s: float, n_before: int, sink: Sink, alert: Mapping[str, Any]) -> bool:
        """Whether there was room for it."""
        with self._changed:
            if len(self._waiting) >= self._max_waiting:
                return False
            self._n_tries += 1
            heapq.heappush(self._waiting, _Try(due_s, self._n_tries, n_before, sink, alert))
            self._changed.notify()
            return True

    # -- in the thread --------------------------------------------------------------------------------------------------
    def _run(self) -> None:
        while (item := self._next()) is not None:
            self._try(item)
            self._say()

    def _next(self) -> _Try | None:
        """What is due, once it is; None at the end: what is not due by then is given up."""
        with self._changed:
            while True:
                now, ends_s = time.monotonic(), float("inf") if self._ends_s is None else self._ends_s
                due_s = self._waiting[0].due_s if self._waiting else float("inf")
                if now >= ends_s or (self._ends_s is not None and due_s > ends_s):
                    for _, _, n_before, sink, _ in self._waiting:
                        self._failed(sink, f"the run ended before {'the next try' if n_before else 'it was sent'}")
                    return None
                if due_s <= now:
                    return heapq.heappop(self._waiting)
                self._changed.wait(None if due_s == float("inf") else due_s - now)

    def _try(self, item: _Try) -> None:
        _, _, n_before, sink, alert = item
        try:
            sink.deliver(alert)
            self.n_delivered[sink.name] += 1
        except SinkError as exc:
            due_s = time.monotonic() + self._backoff(n_before + 1)
            if not (exc.again and n_before < sink.retries and self._queue(due_s, n_before + 1, sink, alert)):
                self._failed(sink, f"{exc}, after {n_before + 1} tries" if n_before else str(exc))
        except Exception as exc:  # a mistake in a sink must not end the thread that serves the others
            self._failed(sink, f"{type(exc).__name__}: {exc}")

    def _failed(self, sink: Sink, why: str) -> None:
        with self._changed:
            self.n_failed[sink.name] += 1
            if self.n_failed[sink.name] == 1:
                self._complaints.append(
                    f"an alert did not reach {sink.name}: {why} (further failures are only counted)"
                )

    def _say(self) -> None:
        while self._complaints:
            try:
                self._complain(self._complaints.popleft())
            except Exception:  # nobody is left to complain to
                return
