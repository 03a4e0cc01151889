"""The newest state of the page, rendered on request and at most as often as it is cheap.

A page that is open must not slow the run down: looks take at most 0.4 % of the cores (17 ms each, so every 2 s with two
cores and every 0.9 s from five on; the first look, which loads this and that, does not count), nothing is read while
the files stay as they are, and what several pages ask for is made once.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tamis.engine.run_record import FILE as RECORD_FILE
from tamis.observe.dashboard.fragments import fragments
from tamis.observe.passes import ShownRun, find_shown_run
from tamis.observe.snapshot import STALE_S, SnapshotLimits, read_snapshot

INTERVAL_S = 0.9
SHARE = 0.004  # of the cores of this machine
MAX_WAIT_S = 5.0
RANGES: dict[str, float | None] = {"all": None, "600": 600.0, "60": 60.0}
_FILES = ("run.sqlite", "manifest.json", "settings.json", "prediction.json")


@dataclass
class _CachedFragments:
    """The fragments of one range, the look in which each changed last, and the state of the files then."""

    html: dict[str, str] = field(default_factory=dict)
    changed: dict[str, int] = field(default_factory=dict)
    signature: tuple[Any, ...] = ()
    not_before_s: float = 0.0


class Watcher:
    def __init__(self, run_dir: Path, scratch: str | None = None) -> None:
        self.run_dir, self.scratch = run_dir, scratch
        self._kept = {name: _CachedFragments() for name in RANGES}
        self._look = 0
        self._boot = os.urandom(6).hex()  # a page from before a restart is sent everything again
        self._lock = threading.Lock()

    def news(self, range_: str, seen: str, now_s: float | None = None) -> dict[str, Any]:
        """Return the fragments that changed since the version `seen`, and the next version to ask for."""
        name = range_ if range_ in RANGES else "all"
        boot, _, number = seen.partition(".")
        since = int(number) if boot == self._boot and number.isdecimal() and len(number) < 18 else -1
        with self._lock:
            kept = self._kept[name]
            self._refresh(name, kept, time.monotonic() if now_s is None else now_s)
            changed = {k: kept.html[k] for k, at in kept.changed.items() if at > since}
            return {"version": f"{self._boot}.{self._look}", "fragments": changed}

    def _refresh(self, name: str, kept: _CachedFragments, now_s: float) -> None:
        if now_s < kept.not_before_s:
            return
        began_s, is_first = time.thread_time(), not kept.html
        place = find_shown_run(self.run_dir, self.scratch)
        signature = _signature(place)
        if signature != kept.signature or not kept.html:
            limits = SnapshotLimits(recent_s=RANGES[name])
            made = fragments(read_snapshot(place.run_dir, limits, whole_dir=place.whole_dir))
            self._look += 1
            for key, html in made.items():
                if kept.html.get(key) != html:
                    kept.html[key] = html
                    kept.changed[key] = self._look
            kept.signature = signature
        took_s = 0.0 if is_first else time.thread_time() - began_s
        wait_s = min(took_s / SHARE / len(os.sched_getaffinity(0)), MAX_WAIT_S)
        kept.not_before_s = now_s + max(INTERVAL_S, wait_s)


def _signature(place: ShownRun) -> tuple[Any, ...]:
    """Return a signature of the run that changes whenever the page must change.

    It includes whether the run is silent, as that changes by itself.
    """
    signature: list[Any] = [place]
    for path in (*(place.run_dir / name for name in _FILES), place.whole_dir / RECORD_FILE):
        try:
            about = os.stat(path)
        except OSError:
            signature.append(None)
            continue
        signature += [about.st_mtime_ns, about.st_size]
        if path.name in ("run.sqlite", RECORD_FILE):
            signature.append(time.time() - about.st_mtime > STALE_S)
    return tuple(signature)
