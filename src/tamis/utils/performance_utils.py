"""Measurements of a stage, as numbers that can be added."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tamis.tasks.perf import StagePerfStats

__all__ = ["StagePerfStats", "StageTimer"]

log = logging.getLogger("tamis.performance")


class StageTimer:
    """Measures calls of one stage: `reinit` before a call, `time_process` around it, `log_stats` after it."""

    def __init__(self, stage: Any) -> None:
        self._name = str(stage.name)
        self._last_end = time.perf_counter()
        self._begin = self._last_end
        self._idle_s = 0.0
        self._n_bytes = self._n_items = 0
        self._was_used = False

    def reinit(self, stage_input_size: int = 1) -> None:
        """Begin a call; `stage_input_size` is in bytes."""
        self._begin = time.perf_counter()
        self._idle_s = self._begin - self._last_end if self._was_used else 0.0
        self._n_bytes, self._n_items, self._was_used = stage_input_size, 0, True

    @contextmanager
    def time_process(self, num_items: int = 1) -> Iterator[None]:
        """Count the items that are processed inside the block, if it ends well."""
        yield
        self._n_items += num_items

    def log_stats(self, *, verbose: bool = False) -> tuple[str, StagePerfStats]:
        """End the call and return (name of the stage, its numbers)."""
        self._last_end = time.perf_counter()
        stats = StagePerfStats(
            self._name, self._last_end - self._begin, self._idle_s, self._n_bytes / 1024**2, self._n_items
        )
        if verbose:
            log.info("%s", stats)
        return self._name, stats
