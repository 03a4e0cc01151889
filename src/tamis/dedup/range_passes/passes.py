"""The passes over ranges of keys, between key passes and decision; the engine runs and resumes them."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, ClassVar

from tamis import files
from tamis._dataclasses import dataclass
from tamis._lazy import np
from tamis.dedup.planning import BYTES_PER_HASH, BYTES_PER_KEY
from tamis.dedup.range_passes import ranges
from tamis.dedup.solver_task import RangeResults
from tamis.errors import FormatError
from tamis.files import read_json, write_json
from tamis.pipeline import Pipeline
from tamis.stages.base import ProcessingStage
from tamis.stages.resources import Resources
from tamis.stages.text.io.writer import JsonlWriter
from tamis.tasks import DocumentBatch

_LEAST_RANGES = 16  # of a column of keys, so that every worker gets some


@dataclass
class RangePasses:
    """Runs passes over ranges of keys, called by key_comparison.py. `execute(pipeline, label)` runs one pass.

    `work`: the folder of the deduplication, which all nodes see. `room_bytes`: for the keys of one range, in a worker.
    """

    name: str
    work: str
    n_documents: int
    room_bytes: int
    execute: Callable[[Pipeline, str], Any]

    def search(self, i: int, first: list[str], paths: list[str], bands: list[int]) -> RangeResults:
        """Return the folders with the results on the record files of pass `i`.

        Equal texts are searched for in the files of the `first` pass, once: with it, or later where that one was
        decided in another way. Shared bands are searched for in `paths`, if there are any.
        """
        equal = self._results_of("equal", BYTES_PER_HASH)
        if ranges.n_missing(f"{self._folder('equal', BYTES_PER_HASH)}-in", equal):
            self._pass("equal", first, [0], BYTES_PER_HASH)
        return RangeResults(equal, self._pass(f"bands-{i}", paths, bands, BYTES_PER_KEY, equal) if bands else None)

    def _ranges(self, columns: list[int], key_bytes: int) -> list[ranges.KeyRange]:
        return ranges.ranges_of(self.n_documents, columns, key_bytes, self.room_bytes, _LEAST_RANGES)

    def _folder(self, name: str, key_bytes: int) -> str:
        """Return the folder of a pass; its name has the number of ranges.

        A run resumed with other memory or other workers must not find results of ranges that were cut otherwise.
        """
        return os.path.join(self.work, f"ranges-{name}-{len(self._ranges([0], key_bytes))}")

    def _results_of(self, name: str, key_bytes: int) -> str:
        return f"{self._folder(name, key_bytes)}-found"

    def _pass(self, name: str, paths: list[str], columns: list[int], key_bytes: int, equal: str | None = None) -> str:
        from tamis.stages.text.io import JsonlReader

        folder, results = self._folder(name, key_bytes), self._results_of(name, key_bytes)
        os.makedirs(results, exist_ok=True)
        ranges.write_ranges(f"{folder}-in", self._ranges(columns, key_bytes))
        write_json(f"{folder}.json", paths)
        fills_room = self.n_documents * key_bytes > self.room_bytes  # few documents need no request
        memory_gb = (1.25 * self.room_bytes + self.n_documents / 8) / 1e9 if fills_room else 0.1
        stages: list[Any] = [JsonlReader(f"{folder}-in", files_per_partition=1)]
        stages += [SearchRanges(f"{folder}.json", results, equal, round(memory_gb, 3)), RangeWriter(folder)]
        self.execute(Pipeline(f"{self.name}: ranges of {name}", stages=stages), f"ranges-{name}")
        missing = ranges.n_missing(f"{folder}-in", results)
        if (
            missing
        ):  # one that failed is in quarantine, or a disk lost files: without them duplicates would stay unnoticed
            raise FormatError(
                f"{results}: results of {missing} ranges of keys are missing; see `tamis report {folder}`, fix the "
                "cause and start over "
                "(--fresh)"
            )
        return results


@dataclass(repr=False)
class SearchRanges(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Searches the range that each document names (ranges.KeyRange), and writes `results`/<its name>.npy.

    Documents pass unchanged.

    `records`: a JSON file with the paths of the record files. `equal_results`: the results on equal texts, for ranges
    of bands: of equal documents one is linked. A range that is searched again gives the same file. `memory_gb`: what a
    worker takes meanwhile.
    """

    records: str
    results: str
    equal_results: str | None = None
    memory_gb: float = 0.1
    name: str = "search_ranges"

    kernel_groups: ClassVar[tuple[str, ...]] = ("sketch",)
    _open: ClassVar[Any] = None
    columns_in = ("text",)

    def __post_init__(self) -> None:
        self.resources = Resources(cpus=1.0, memory_gb=self.memory_gb)

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "_open"}

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        from tamis.dedup.range_passes.search import equal_bits, find_edges, find_equal
        from tamis.dedup.records import Records

        if self._open is None:
            records = Records(read_json(self.records))
            bits = None if self.equal_results is None else equal_bits(self.equal_results, len(records))
            self.__dict__["_open"] = records, bits
        records, bits = self._open
        for text in batch.column("text").to_pylist():
            key_range = ranges.KeyRange.from_text(str(text))
            rows = find_equal(records, key_range) if bits is None else find_edges(records, key_range, bits)
            with files.replacing(os.path.join(self.results, f"{key_range.name}.npy")) as file:
                np.save(file, rows, allow_pickle=False)
        return batch


@dataclass(repr=False)
class RangeWriter(JsonlWriter):
    """Writes the ranges that were searched, for the commit log alone."""

    name: str = "range_writer"
    is_reported = False  # one pass of several
