"""Measurements of a stage as numbers that can be added: the entries of `_stage_perf` of tasks."""

from __future__ import annotations

import dataclasses
from dataclasses import field
from typing import Any

from tamis._dataclasses import dataclass


@dataclass
class StagePerfStats:
    """Times in seconds, sizes in MB. `custom_metrics` are those that a stage logged itself."""

    stage_name: str = ""
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
        """Support `sum(stats)`."""
        return self if other == 0 else NotImplemented

    def reset(self) -> None:
        """Reset to zero; the name stays."""
        self.__init__(self.stage_name)  # type: ignore[misc]

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def items(self) -> list[tuple[str, float]]:
        """Return (name, number) for each measure; those that a stage logged as `custom.<name>`."""
        plain = {k: v for k, v in self.to_dict().items() if k not in ("stage_name", "custom_metrics")}
        return [*plain.items(), *((f"custom.{k}", v) for k, v in self.custom_metrics.items())]
