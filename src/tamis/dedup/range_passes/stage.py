"""The stage that looks at ranges of keys: equal texts, or documents that share a key of a band."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, ClassVar

from tamis import files
from tamis._lazy import np
from tamis.dedup.range_passes.ranges import KeyRange
from tamis.files import read_json
from tamis.stages.base import ProcessingStage
from tamis.stages.resources import Resources
from tamis.stages.text.io.writer import JsonlWriter
from tamis.tasks import DocumentBatch


@dataclass(repr=False)
class LookAtRanges(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Each document names a range (ranges.KeyRange); it passes through unchanged, and what is found lies in `found_in`/<its name>.npy then.

    `records`: a JSON file with the paths of the record files. `equal_in`: the folder of the ranges of equal texts, for those of bands: of equal
    documents one is linked. Whoever looks at a range again writes the same file again. `memory_gb`: what a worker takes while it does.
    """

    records: str
    found_in: str
    equal_in: str | None = None
    memory_gb: float = 0.1
    name: str = "look_at_ranges"

    kernel_groups: ClassVar[tuple[str, ...]] = ("sketch",)
    _open: ClassVar[Any] = None
    columns_in = ("text",)

    def __post_init__(self) -> None:
        self.resources = Resources(cpus=1.0, memory_gb=self.memory_gb)

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "_open"}

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        from tamis.dedup.range_passes.found import equal_bits, look_for_edges, look_for_equal
        from tamis.dedup.records import Records

        if self._open is None:
            records = Records(read_json(self.records))
            bits = None if self.equal_in is None else equal_bits(self.equal_in, len(records))
            self.__dict__["_open"] = records, bits
        records, bits = self._open
        for text in batch.column("text").to_pylist():
            one = KeyRange.from_text(str(text))
            found = look_for_equal(records, one) if bits is None else look_for_edges(records, one, bits)
            with files.replacing(os.path.join(self.found_in, f"{one.name}.npy")) as file:
                np.save(file, found, allow_pickle=False)
        return batch


@dataclass(repr=False)
class RangeWriter(JsonlWriter):
    """Which ranges were looked at: what it writes is for the commit log alone."""

    name: str = "range_writer"
    is_reported = False  # one pass of several
