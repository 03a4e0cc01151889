"""The measured totals of a run, summed from its events: for settings, machine profile and prediction. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from tamis._dataclasses import dataclass
from tamis.engine.run.settings import SettingsLog
from tamis.engine.schema import EventKind
from tamis.memory.predictor import Predictor
from tamis.sizes import format_size

_EXAMPLES = 5
_CUT = "; {:,} times one was cut in two after it did not fit"


@dataclass
class Outcome:
    """A summary of events: `add` takes every one. Sizes of partitions are decoded bytes."""

    n_partitions: int = 0
    busy_s: float = 0.0
    cpu_s: float = 0.0
    first_bytes: int = 0
    last_bytes: int = 0
    largest_bytes: int = 0
    largest_record: int = 0
    largest_peak: int = 0  # of one partition, above the worker's baseline
    peak_of_largest: int = 0  # of the largest partition
    scratch_bytes: int = 0
    highest_level: int = 0
    n_by_kind: dict[EventKind, int] = field(default_factory=dict)  # pressure, recovery, recycle, kill, failed, ...
    examples: dict[EventKind, list[str]] = field(default_factory=dict)

    def add(self, kind: EventKind, data: Mapping[str, Any]) -> None:
        """Add an event."""
        if kind is EventKind.UNIT:
            self._unit(data)
        elif kind is not EventKind.COMMIT:
            self.n_by_kind[kind] = self.n_by_kind.get(kind, 0) + 1
            examples = self.examples.setdefault(kind, [])
            if len(examples) < _EXAMPLES:
                examples.append(
                    str(data.get("text") or data.get("why") or data.get("error") or data.get("how") or "")[:200]
                )
            if kind is EventKind.PRESSURE:
                self.highest_level = max(self.highest_level, int(data.get("level") or 0))

    def _unit(self, data: Mapping[str, Any]) -> None:
        self.busy_s += float(data.get("seconds") or 0.0)
        self.cpu_s += float(data.get("cpu_s") or 0.0)
        size = int(data.get("decoded_bytes") or 0)
        if not size:
            return
        self.n_partitions += 1
        self.first_bytes = self.first_bytes or size
        if size >= self.largest_bytes:
            self.peak_of_largest = int(data.get("peak_bytes") or 0)
        self.last_bytes, self.largest_bytes = size, max(self.largest_bytes, size)
        self.largest_record = max(self.largest_record, int(data.get("largest_record") or 0))
        self.largest_peak = max(self.largest_peak, int(data.get("peak_bytes") or 0))

    def note(self, record: SettingsLog, predictors: list[Predictor], counters: Mapping[str, int]) -> None:
        """Record what the run changed by itself, with the figures that caused each change."""
        for i, model in enumerate(predictors):
            a, b, c = model.coefficients
            record.note(
                f"partition model {i} at the end",
                [a, b, c],
                "adaptation",
                f"peak = {format_size(a)} + {b:.2f} x decoded bytes + {c:.2f} x largest record, times "
                f"{model.factor:.2f}; fitted to the exact "
                "peaks of partitions",
                {
                    "n_samples": model.n_samples,
                    "factor": round(model.factor, 4),
                    "largest_peak_bytes": self.largest_peak,
                },
            )
        if self.n_partitions:
            n_failed, n_cut = counters.get("memory_failures", 0), counters.get("splits", 0)
            record.amend("blocksize", _CUT.format(n_cut) if n_cut else "", {"splits": n_cut})
            record.note(
                "partition size",
                self.last_bytes,
                "adaptation",
                f"{self.n_partitions:,} partitions: the first {format_size(self.first_bytes)}, the largest "
                f"{format_size(self.largest_bytes)}, the last {format_size(self.last_bytes)}; halved after each of "
                f"{n_failed} allocation "
                "failures, grown while they fitted",
                {
                    "n_partitions": self.n_partitions,
                    "first_bytes": self.first_bytes,
                    "largest_bytes": self.largest_bytes,
                    "memory_failures": n_failed,
                    "splits": n_cut,
                    "largest_record_bytes": self.largest_record,
                },
            )
        if self.n_by_kind.get(EventKind.PRESSURE):
            record.note(
                "pressure level",
                self.highest_level,
                "adaptation",
                "the highest level reached (0 green to 4 black): from 1 on nothing grows, from 2 on only downstream "
                "work starts, from 3 on "
                "workers are ended",
                {
                    "changes": self.n_by_kind[EventKind.PRESSURE],
                    "kills": counters.get("kills", 0),
                    "events": self.examples[EventKind.PRESSURE],
                },
            )
        if counters.get("recycled"):
            record.note(
                "workers replaced",
                counters["recycled"],
                "adaptation",
                "their memory after release rose",
                {"events": self.examples.get(EventKind.RECYCLE, [])},
            )
        if self.n_by_kind.get(EventKind.KILL):
            record.note(
                "workers ended",
                self.n_by_kind[EventKind.KILL],
                "adaptation",
                "over their cap, under memory pressure, or past their time; their partitions were done again",
                {"events": self.examples[EventKind.KILL]},
            )
        record.note(
            "scratch used", self.scratch_bytes, "adaptation", "the most that blocks between processes took at once"
        )
