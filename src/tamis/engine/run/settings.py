"""Settings of a run: what the user may choose, checked early, and the record of every choice with its reason."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from tamis.engine.run.shard import Shard
from tamis.errors import UsageError
from tamis.sizes import check_optional_integer, check_seconds, parse_fraction, parse_size
from tamis.stores.urls import scratch_url

DEFAULT_MAX_RECORD = "64MiB"
DEFAULT_TIMEOUT_S = 1800.0
GPU_OVERFLOWS = ("quarantine", "cut")
DEFAULT_QUARANTINE_LIMIT = 0.001
MODES = ("streaming", "batch")
_CHOICES = {"mode": MODES, "on_infeasible": ("stop", "sample"), "gpu_overflow": GPU_OVERFLOWS}


@dataclass(frozen=True)
class RunSettings:
    """How a run is executed. None of these changes the output, except max_record, sample, schema and gpu_overflow."""

    memory: str | int | None = None
    workers: int | None = None
    scratch: str | None = None
    mode: str = "streaming"
    max_record: str | int = DEFAULT_MAX_RECORD
    timeout: float = DEFAULT_TIMEOUT_S
    quarantine_limit: float | str | None = None
    fresh: bool = False
    sample: float | str | None = None
    progressive: bool = False
    on_infeasible: str = "stop"
    run_dir: str | None = None
    blocksize: str | int | None = None
    queue: str | int = "256MB"
    gpu_memory: str | int | None = None  # what the run may take of each GPU; None: all there is
    # A document that does not fit a GPU alone: "quarantine" it, or "cut" it until it does.
    gpu_overflow: str = "quarantine"
    keep_rejected: bool = False  # write dropped documents to the run directory, with the rule that dropped them
    shard: str | None = None  # "3/16": only this part of the input, into a folder of its own (shard.py)
    merge: bool | str = False  # join the shards that lie in the output (or in this folder), and go on from there
    count_caller: bool = False  # the calling process is part of the budget (the command line sets this)
    # Who chose a setting, where it was not the user: "recipe".
    chosen_by: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("memory", "gpu_memory", "max_record", "queue", "blocksize"):
            if getattr(self, name) is not None:
                parse_size(getattr(self, name), name)
        for name, known in _CHOICES.items():
            if getattr(self, name) not in known:
                raise UsageError(f"{name}: expected {known[0]!r} or {known[1]!r}, got {getattr(self, name)!r}")
        check_optional_integer(self.workers, "workers")
        check_seconds(self.timeout, "timeout")
        _ = self.rate_limit  # UsageError where it is none
        if self.sample is not None:
            parse_fraction(self.sample, "sample")
        if self.sample is not None and self.progressive:
            raise UsageError("give --sample or --progressive, not both")
        if self.shard is not None:
            Shard.parse(self.shard)
            if self.merge:
                raise UsageError("give --shard to make one, or --merge to join all, not both")
            if self.sample is None and self.progressive:
                raise UsageError("progressive is for runs on one machine; give --sample to each shard instead")
        if self.scratch is not None and "://" in str(self.scratch):
            scratch_url(str(self.scratch))
        elif self.scratch is not None and not os.path.isdir(self.scratch):
            raise UsageError(f"scratch: {self.scratch} is not a folder")

    def who(self, name: str) -> str:
        """Return what chose a setting: "user", "recipe" or "default"."""
        if name in self.chosen_by:
            return self.chosen_by[name]
        default = next(f.default for f in fields(self) if f.name == name)
        return "default" if getattr(self, name) == default else "user"

    @property
    def max_record_bytes(self) -> int:
        return parse_size(self.max_record)

    @property
    def changing_output(self) -> dict[str, Any]:
        """Settings on which the output depends, as the plan of a run keeps them; a default that came later is left out."""
        cut = {"gpu_overflow": self.gpu_overflow} if self.gpu_overflow != GPU_OVERFLOWS[0] else {}
        return {"max_record": self.max_record_bytes, **cut}

    @property
    def rate_limit(self) -> float:
        if self.quarantine_limit is None:
            return DEFAULT_QUARANTINE_LIMIT
        is_zero = str(self.quarantine_limit) in ("0", "0.0", "0%")
        return 0.0 if is_zero else parse_fraction(self.quarantine_limit, "quarantine_limit")

    @property
    def rate_floor(self) -> int:
        """So few bad records never end a run, unless the user set a limit."""
        return 100 if self.quarantine_limit is None else 0

    @property
    def targets(self) -> list[float]:
        """The shares of documents to deliver, one after the other."""
        if self.sample is not None:
            return [parse_fraction(self.sample)]
        return [0.01, 0.1, 1.0] if self.progressive or self.on_infeasible == "sample" else [1.0]

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> RunSettings:
        known = [f.name for f in fields(cls)]
        for name in values:
            if name not in known:
                near = difflib.get_close_matches(name, known, 1)
                hint = f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(known)}"
                raise UsageError(f"unknown setting {name!r}{hint}")
        # What is named was chosen, even where it equals the default.
        told = dict(values.get("chosen_by") or {})
        chosen = {name: "user" for name, value in values.items() if value is not None and name != "chosen_by"} | told
        return cls(**{**values, "chosen_by": chosen})


@dataclass
class Record:
    """Every memory-related setting of a run: its value, who chose it, why, and the figures behind it.

    Who: user, recipe, environment (a variable), machine (found or measured here), machine profile (learned by earlier runs),
    adaptation (changed by the run itself), default.
    """

    entries: list[dict[str, Any]] = field(default_factory=list)

    def amend(self, name: str, more: str, evidence: Mapping[str, Any]) -> None:
        """Add to what was noted what the run made of it."""
        for entry in self.entries:
            if entry["name"] == name:
                entry["why"] += more
                entry["evidence"] = {**entry["evidence"], **evidence}

    def note(self, name: str, value: Any, chosen_by: str, why: str, evidence: Mapping[str, Any] | None = None) -> None:
        self.entries = [e for e in self.entries if e["name"] != name]
        self.entries.append(
            {"name": name, "value": value, "chosen_by": chosen_by, "why": why, "evidence": dict(evidence or {})}
        )
