"""What a stage took, as numbers that can be added."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

log = logging.getLogger("tamis.performance")


@dataclass
class StagePerfStats:
    """Times in seconds, sizes in MB. `custom_metrics` are those that a stage logged itself."""

    stage_name: str
    process_time: float = 0.0
    actor_idle_time: float = 0.0
    input_data_size_mb: float = 0.0
    num_items_processed: int = 0
    custom_metrics: dict[str, float] = field(default_factory=dict)

    def __add__(self, other: object) -> StagePerfStats:
        if not isinstance(other, StagePerfStats):
            return NotImplemented
        names = {*self.custom_metrics, *other.custom_metrics}
        return StagePerfStats(
            self.stage_name,
            self.process_time + other.process_time,
            self.actor_idle_time + other.actor_idle_time,
            self.input_data_size_mb + other.input_data_size_mb,
            self.num_items_processed + other.num_items_processed,
            {n: self.custom_metrics.get(n, 0.0) + other.custom_metrics.get(n, 0.0) for n in sorted(names)},
        )

    def __radd__(self, other: object) -> StagePerfStats:
        """So that `sum(stats)` works."""
        return self if other == 0 else NotImplemented

    def reset(self) -> None:
        """Back to zero; the name stays."""
        self.__init__(self.stage_name)  # type: ignore[misc]

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def items(self) -> list[tuple[str, float]]:
        """(name, number) for each measure; those that a stage logged as `custom.<name>`."""
        plain = {k: v for k, v in self.to_dict().items() if k not in ("stage_name", "custom_metrics")}
        return [*plain.items(), *((f"custom.{k}", v) for k, v in self.custom_metrics.items())]


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
        """A call begins; `stage_input_size` is in bytes."""
        self._begin = time.perf_counter()
        self._idle_s = self._begin - self._last_end if self._was_used else 0.0
        self._n_bytes, self._n_items, self._was_used = stage_input_size, 0, True

    @contextmanager
    def time_process(self, num_items: int = 1) -> Iterator[None]:
        """Items that are processed inside the block count, if it ends well."""
        yield
        self._n_items += num_items

    def log_stats(self, *, verbose: bool = False) -> tuple[str, StagePerfStats]:
        """The call has ended: (name of the stage, its numbers)."""
        self._last_end = time.perf_counter()
        stats = StagePerfStats(
            self._name, self._last_end - self._begin, self._idle_s, self._n_bytes / 1024**2, self._n_items
        )
        if verbose:
            log.info("%s", stats)
        return self._name, stats
