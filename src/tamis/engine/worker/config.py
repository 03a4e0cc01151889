"""The configuration that all workers of a run share: where and how they read and write.

Plain data, without heavy imports.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, field
from typing import Any

from tamis._dataclasses import dataclass

PlannedInputs = Mapping[str, tuple[int, int]]
"""Size and modification time (ns) of each input file when the run was planned, by path."""


@dataclass(frozen=True)
class OutputSpec:
    """The form in which documents are written. `format` "keep": one that loses nothing (results without a writer)."""

    format: str = "keep"
    extension: str = "jsonl"
    codec: str | None = None
    fields: tuple[str, ...] | None = None
    schema: Mapping[str, str] | None = None
    compression: str = "zstd"
    row_group_rows: int | None = None  # of Parquet, at most; None: as many as 32 MB hold
    # Of a format that is written as several files (registry.PACKERS).
    options: Mapping[str, Any] = field(default_factory=dict)
    partition_by: tuple[str, ...] = ()  # fields whose values name the folders of the files

    def table_options(self) -> dict[str, Any]:
        """Return the arguments of the TableWriter of the format, besides path and schema."""
        more = {} if self.row_group_rows is None else {"row_group_rows": self.row_group_rows}
        return {"compression": self.compression, **more}


@dataclass(frozen=True)
class WorkerConfig:
    """Folders, limits and output format of a run, the same for all its workers."""

    staged: str
    scratch: str
    max_record_bytes: int
    windows: list[tuple[float, float]] = field(default_factory=lambda: [(0.0, 1.0)])  # sampling steps
    output: OutputSpec = field(default_factory=OutputSpec)
    inputs: PlannedInputs = field(default_factory=dict)
    keep_rejected: bool = False
    stores: dict[str, dict[str, Any]] = field(default_factory=dict)  # how buckets are reached (stores/options.py)
    output_url: str = ""  # of an output in a bucket
    remote_scratch: str = ""  # the run's scratch, if that is in a bucket
    sends_blocks: bool = False  # there, since all blocks wait until a whole segment is through (mode "batch")
    plan_path: str = ""  # the plan file, which names the inputs
    budget_bytes: int = 0  # of the run, which loading the stages must fit into
    fail_fast: bool | None = None  # the setting; None: quarantine what a stage fails on, unless that is everything

    @property
    def block_url(self) -> str:
        """URL below which blocks for other processes are stored; "" if they stay in the folder they are written to."""
        return self.remote_scratch if self.sends_blocks else ""

    def to_dict(self) -> dict[str, Any]:
        """Convert to JSON values, without `inputs` (there may be 100,000; workers read them from the plan file)."""
        data = asdict(self)
        data.pop("inputs")
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> WorkerConfig:
        """Restore from the result of `to_dict`, in another process of this run."""
        spec = dict(data["output"])
        spec["fields"] = tuple(spec["fields"]) if spec["fields"] is not None else None
        spec["partition_by"] = tuple(spec["partition_by"])
        windows = [(float(low), float(high)) for low, high in data["windows"]]
        return cls(**{**data, "windows": windows, "output": OutputSpec(**spec)})
