"""Where and how a run's workers write: plain data, known to the supervisor without importing anything heavy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class OutputSpec:
    """How documents are written. `format` "keep": whatever loses nothing (results without a writer)."""

    format: str = "keep"
    extension: str = "jsonl"
    codec: str | None = None
    fields: tuple[str, ...] | None = None
    schema: Mapping[str, str] | None = None
    compression: str = "zstd"
    # Of a format that is written as several files (registry.PACKERS).
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Workplace:
    """Folders and limits of a run, the same for all its workers."""

    staged: str
    scratch: str
    max_record_bytes: int
    windows: list[tuple[float, float]] = field(default_factory=lambda: [(0.0, 1.0)])  # sampling steps
    output: OutputSpec = field(default_factory=OutputSpec)
    expected: dict[str, tuple[int, int]] = field(default_factory=dict)
    keep_rejected: bool = False
    stores: dict[str, dict[str, Any]] = field(default_factory=dict)  # how buckets are reached (stores/options.py)
    remote: str = ""  # where the output lies, if that is a bucket
    far: str = ""  # the run's scratch, if that is in a bucket
    sends_blocks: bool = False  # there, since all blocks wait until a whole segment is through (mode "batch")

    @property
    def blocks_go_to(self) -> str:
        """Where blocks lie that other processes read, if not where they are written."""
        return self.far if self.sends_blocks else ""

    def to_dict(self) -> dict[str, Any]:
        """Convert to JSON values, without `expected` (it may name 100,000 files and is read from the plan)."""
        data = asdict(self)
        data.pop("expected")
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], expected: dict[str, tuple[int, int]]) -> Workplace:
        """Restore from the result of `to_dict`, in another process of this run."""
        spec = dict(data["output"])
        spec["fields"] = tuple(spec["fields"]) if spec["fields"] is not None else None
        windows = [(float(low), float(high)) for low, high in data["windows"]]
        return cls(**{**data, "windows": windows, "output": OutputSpec(**spec), "expected": expected})
