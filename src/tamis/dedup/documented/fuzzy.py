"""FuzzyDeduplicationWorkflow with the parameters, defaults and files that its users know."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tamis.dedup.documented.common import (
    DocumentedResult,
    check_storage,
    environment,
    files_of,
    forget_ids,
    say_what_is_done_otherwise,
    tasks_and_executor,
    write_ids,
)
from tamis.dedup.documented.id_generator import of_files
from tamis.dedup.fuzzy import workflow as own
from tamis.errors import UsageError
from tamis.pipeline import WorkflowBase

if TYPE_CHECKING:
    from tamis.dedup.planning import DedupPlan

_WHO = "FuzzyDeduplicationWorkflow"
_IDS, _GENERATOR = "FuzzyDuplicateIds", "fuzzy_id_generator.json"
_BLOCK = "1GiB"  # an upper bound there; partitions follow from the memory budget here, and are smaller
_BANDS = 5  # as many or more: all that the disk has room for, which saves passes over the input
OWN = (
    "text_field", "seed", "char_ngrams", "num_bands", "minhashes_per_band", "use_64_bit_hash", "perform_removal", "word_ngrams",
    "normalize_text", "output_filetype", "threshold", "min_shingles", "keep", "keep_by", "max_source_loss", "method", "index_path",
    "against", "append",
)  # fmt: skip


@dataclass
class FuzzyDeduplicationWorkflow(WorkflowBase):
    """Finds documents that are nearly the same, and verifies each against one that stays.

    `cache_path` is for what lies between passes. `output_path` gets `FuzzyDuplicateIds/` (Parquet with the column
    `_curator_dedup_id`) and `fuzzy_id_generator.json`, for TextDuplicatesRemovalWorkflow; `perform_removal=True` writes the documents
    that stay instead, in the same call. `bands_per_iteration=5` means at least 5: as many as the disk has room for. Parameters
    from `word_ngrams` on: see tamis.dedup.fuzzy.workflow.
    """

    cache_path: str | None = None
    output_path: str = ""
    input_path: Any = None
    input_filetype: str | None = "parquet"
    input_blocksize: str | int | None = _BLOCK
    input_file_extensions: Sequence[str] | None = None
    read_kwargs: Mapping[str, Any] | None = None
    cache_kwargs: Mapping[str, Any] | None = None
    write_kwargs: Mapping[str, Any] | None = None
    text_field: str = "text"
    perform_removal: bool = False
    seed: int = 42
    char_ngrams: int = 24
    num_bands: int = 20
    minhashes_per_band: int = 13
    use_64_bit_hash: bool = False
    bands_per_iteration: int | None = _BANDS
    lsh_num_output_partitions: int | None = None
    lsh_rmm_pool_size: str | int | None = "auto"
    lsh_spill_memory_limit: str | int | None = "auto"
    env_vars: Mapping[str, Any] | None = None
    use_async_memory: bool = True
    word_ngrams: int | None = None
    normalize_text: bool | str = False
    output_filetype: str | None = None
    threshold: float | str | None = "midpoint"
    min_shingles: int = 10
    keep: str = "longest"
    keep_by: str | None = None
    max_source_loss: float | str = 0.95
    method: str = "fss"
    index_path: str | None = None
    against: str | None = None
    append: bool = False

    def __post_init__(self) -> None:
        usual = {f.name: f.default for f in dataclasses.fields(self)}
        say_what_is_done_otherwise(_WHO, vars(self), usual)
        check_storage(_WHO, "write_kwargs", self.write_kwargs)
        if not self.output_path:
            raise UsageError(f"{_WHO}: output_path must name a folder")
        self._own(self.input_path)

    def _own(self, input_path: Any) -> own.FuzzyDeduplicationWorkflow:
        bands = self.bands_per_iteration if self.bands_per_iteration != _BANDS else None
        return own.FuzzyDeduplicationWorkflow(
            self.output_path, input_path, self.cache_path, self.input_filetype,
            None if self.input_blocksize == _BLOCK else self.input_blocksize, self.input_file_extensions, self.read_kwargs,
            bands_per_iteration=bands, **{name: getattr(self, name) for name in OWN},
        )  # fmt: skip

    def run(
        self, initial_tasks: Any = None, executor: Any = None, *, progress: Any = True, **settings: Any
    ) -> DocumentedResult:
        """`initial_tasks`: groups of files instead of input_path. `settings` are those of a run: memory="1GB", workers, scratch, fresh."""
        began_s = time.monotonic()
        tasks, executor = tasks_and_executor(_WHO, initial_tasks, executor)
        made = self._own(files_of(tasks) or self.input_path)
        if self.cache_path is not None:
            os.makedirs(self.cache_path, exist_ok=True)
        if settings.get("fresh"):
            forget_ids(made.output_path, _IDS, _GENERATOR)
        with environment(self.env_vars):
            found = made.run(executor, progress=progress, **settings)
        metadata: dict[str, Any] = {
            "num_duplicates": found.n_duplicates,
            "identification_time": time.monotonic() - began_s,
        }
        written = {}
        if not self.perform_removal:
            folder = os.path.join(found.output, _IDS)
            shared = {k: v for k, v in settings.items() if k not in ("fresh", "watch")}
            written["identification"] = write_ids(folder, found.duplicates, None, None, shared, executor)
            path = os.path.join(found.output, _GENERATOR)
            of_files([os.fsdecode(p) for p in made._input().files().paths]).to_disk(path)
            metadata["id_generator_path"] = path
        metadata["total_time"] = time.monotonic() - began_s
        return DocumentedResult("fuzzy_deduplication", found, written, metadata)

    def own(self) -> own.FuzzyDeduplicationWorkflow:
        """The workflow behind it, as commands know it."""
        return self._own(self.input_path)

    def plan(self, memory: str | int | None = None, work: str | None = None) -> DedupPlan:
        """What a run would take, from a small sample; `work`: its scratch folder. Nothing is written."""
        return self.own().plan(memory, work)
