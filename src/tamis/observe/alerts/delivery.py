"""Alerts on their way to sinks: one thread, a bounded queue, retries that wait without holding up what comes after.

The run hands an alert over and goes on; it never waits, except at its end, for a bounded time, so that the last alert (which
may say why the run stopped) gets out. A failure is counted and told once per sink.
"""

from __future__ import annotations

import heapq
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tamis.observe.alerts.sinks import Sink, SinkError, backoff_s

MAX_WAITING = 100
MAX_PER_MINUTE = 60  # and sink: whoever wrote the rules, nobody's phone rings all day
_Try = tuple[float, int, int, Sink, Mapping[str, Any]]  # when, order, tries so far, sink, alert


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
        self._queue: queue.Queue[tuple[Sink, Mapping[str, Any]] | None] = queue.Queue(max_waiting)
        self._later: list[_Try] = []
        self._n_tries = 0
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()
        self._deadline_s = 0.0
        self._lock = threading.Lock()
        self._told: set[str] = set()
        self._complaints: deque[str] = deque()
        self.n_delivered: dict[str, int] = dict.fromkeys(self._sinks, 0)
        self.n_failed: dict[str, int] = dict.fromkeys(self._sinks, 0)

    def send(self, alert: Mapping[str, Any], names: Sequence[str]) -> None:
        """Never blocks: what does not fit into the queue, or comes too often, is counted as failed."""
        for name in names:
            sink = self._sinks.get(name)
            if sink is None or self._closing.is_set():
                continue
            if self._is_too_much(name):
                self._failed(sink, f"more than {self._sent[name].maxlen} alerts within a minute")
                continue
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="tamis-alerts", daemon=True)
                self._thread.start()
            try:
                self._queue.put_nowait((sink, alert))
            except queue.Full:
                self._failed(sink, f"more than {self._max_waiting} alerts wait already")

    def _is_too_much(self, name: str) -> bool:
        sent, now = self._sent[name], time.monotonic()
        if len(sent) == sent.maxlen and sent[0] > now - 60.0:
            return True
        sent.append(now)
        return False

    def close(self, timeout_s: float) -> None:
        """Wait for what is under way, at most `timeout_s`; retries that are due later than that are given up."""
        if self._thread is None or self._closing.is_set():
            return
        self._deadline_s = time.monotonic() + timeout_s
        self._closing.set()
        try:
            self._queue.put_nowait(None)  # wakes the thread
        except queue.Full:
            pass
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            for sink in self._sinks.values():
                sink.abandon()
        self._say()

    @property
    def failures(self) -> dict[str, int]:
        """Alerts that did not arrive, by sink; only sinks that have any."""
        return {name: n for name, n in self.n_failed.items() if n}

    # -- in the thread --------------------------------------------------------------------------------------------------
    def _run(self) -> None:
        while True:
            self._say()
            now = time.monotonic()
            if self._later and self._later[0][0] <= now:
                _, _, n_tries, sink, alert = heapq.heappop(self._later)
                self._try(sink, alert, n_tries)
                continue
            if self._closing.is_set() and (now >= self._deadline_s or self._is_done()):
                self._give_up()
                return
            try:
                wait_s = self._later[0][0] - now if self._later else None
                if self._closing.is_set():
                    wait_s = min(self._deadline_s - now, 0.05 if wait_s is None else wait_s)
                item = self._queue.get(timeout=wait_s)
            except queue.Empty:
                continue
            if item is not None:
                self._try(*item, 0)

    def _is_done(self) -> bool:
        due = self._later[0][0] if self._later else float("inf")
        return self._queue.empty() and due > self._deadline_s

    def _try(self, sink: Sink, alert: Mapping[str, Any], n_tries: int) -> None:
        try:
            sink.deliver(alert)
            self.n_delivered[sink.name] += 1
        except SinkError as exc:
            if exc.again and n_tries < sink.retries and len(self._later) < self._max_waiting:
                self._n_tries += 1
                due_s = time.monotonic() + self._backoff(n_tries + 1)
                heapq.heappush(self._later, (due_s, self._n_tries, n_tries + 1, sink, alert))
            else:
                tries = f", after {n_tries + 1} tries" if n_tries else ""
                self._failed(sink, f"{exc}{tries}")
        except Exception as exc:  # a mistake in a sink must not end the thread that serves the others
            self._failed(sink, f"{type(exc).__name__}: {exc}")

    def _give_up(self) -> None:
        for _, _, _, sink, _ in self._later:
            self._failed(sink, "the run ended before the next try")
        self._later.clear()
        while not self._queue.empty():
            item = self._queue.get_nowait()
            if item is not None:
                self._failed(item[0], "the run ended before it was sent")

    def _failed(self, sink: Sink, why: str) -> None:
        with self._lock:  # the run's thread comes here too, when the queue is full
            self.n_failed[sink.name] += 1
            if sink.name not in self._told:
                self._told.add(sink.name)
                self._complaints.append(
                    f"an alert did not reach {sink.name}: {why} (further failures are only counted)"
                )

    def _say(self) -> None:
        while self._complaints:
            try:
                self._complain(self._complaints.popleft())
            except Exception:  # nobody is left to complain to
                return
