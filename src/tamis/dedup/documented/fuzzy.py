"""FuzzyDeduplicationWorkflow with the parameters, defaults and files that its users know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tamis.dedup.documented.parameters_and_results import FindingWorkflow
from tamis.dedup.fuzzy import workflow as own
from tamis.errors import UsageError

_WHO = "FuzzyDeduplicationWorkflow"
_BLOCK = "1GiB"  # an upper bound there; partitions follow from the memory budget here, and are smaller
_BANDS = 5  # as many or more: all that the disk has room for, which saves passes over the input
OWN = (
    "text_field", "seed", "char_ngrams", "num_bands", "minhashes_per_band", "use_64_bit_hash", "perform_removal", "word_ngrams",
    "normalize_text", "output_filetype", "threshold", "min_shingles", "keep", "keep_by", "max_source_loss", "method", "index_path",
    "against", "append",
)  # fmt: skip


@dataclass
class FuzzyDeduplicationWorkflow(FindingWorkflow):
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

    kind, ids_folder = "fuzzy", "FuzzyDuplicateIds"

    def __post_init__(self) -> None:
        self._check_documented()
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
