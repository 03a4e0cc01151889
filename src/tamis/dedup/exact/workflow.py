"""ExactDeduplicationWorkflow: find documents whose texts are equal, and remove all but one of each, in one call."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from tamis._dataclasses import dataclass
from tamis.dedup.exact.gpu_hash import choose
from tamis.dedup.exact.stages import DocumentHashes
from tamis.dedup.kinds import EXACT
from tamis.dedup.nemo_compat.finding import FindingWorkflow
from tamis.dedup.normalization import NORMALIZATION_VERSION
from tamis.dedup.passes import Passes
from tamis.dedup.solver_task import DecideEqual
from tamis.errors import UsageError
from tamis.sizes import check_integer, check_optional_integer


@dataclass
class ExactDeduplicationWorkflow(FindingWorkflow):
    """Finds documents whose texts are equal: XXH3-128 of what normalisation makes of them is.

    `run()` resumes where it stopped.

    `output_path` gets `ExactDuplicateIds/` (Parquet with one column: ids of all documents but one of each group) and
    `exact_id_generator.json`, for TextDuplicatesRemovalWorkflow. Ids are whole numbers, a function of file and place
    (`_curator_dedup_id`), or with `assign_id=False` those that documents have in `id_field`, each its own.
    `perform_removal=True` writes the documents that stay instead, in the same call. In both cases
    `OUT.tamis/duplicates` has one row per duplicate: its id (as AddId gives it), the id of the kept document, group
    size. `input_filetype` None reads JSONL and Parquet.

    `normalize_text`: False, True (case and whitespace do not count), or a name: none, strip, nfc, casefold,
    alphanumeric. `keep`: "first" in the input, the "longest", or the "best" by the highest number in the column
    `keep_by`. A document whose text is null or no text is never a duplicate. `max_source_loss`: stop before removal
    when a folder (or file, if there is one folder) would lose more than this share. `index_path`: keep an index of what
    stays in this folder. `against`: an index that an earlier run kept; documents in it stay, and new ones that equal
    one of them go. `append`: add what stays to it. `backend`: where texts are hashed: "cpu", "gpu" (the same hashes),
    or "auto", whichever is faster here, measured.
    """

    output_path: str
    input_path: Any = None
    input_filetype: str | None = "parquet"
    input_blocksize: str | int | None = "2GiB"
    identification_batchsize: int = 1
    input_file_extensions: Sequence[str] | None = None
    read_kwargs: Mapping[str, Any] | None = None
    write_kwargs: Mapping[str, Any] | None = None
    assign_id: bool = True
    id_field: str | None = None
    text_field: str = "text"
    perform_removal: bool = False
    total_nparts: int | None = None
    rmm_pool_size: str | int | None = "auto"
    spill_memory_limit: str | int | None = "auto"
    env_vars: Mapping[str, Any] | None = None
    use_async_memory: bool = True
    normalize_text: bool | str = False
    output_filetype: str | None = None
    keep: str = "first"
    keep_by: str | None = None
    max_source_loss: float | str = 0.95
    index_path: str | None = None
    against: str | None = None
    append: bool = False
    backend: str = "cpu"

    owner, kind, ids_folder = "ExactDeduplicationWorkflow", EXACT, "ExactDuplicateIds"
    as_the_budget_allows = {"input_blocksize": "2GiB"}

    def __post_init__(self) -> None:
        if self.assign_id and self.id_field is not None:
            raise UsageError(f"{self.owner}: id_field goes with assign_id=False; with assign_id=True ids are made here")
        if not self.assign_id and self.id_field is None:
            raise UsageError(
                f"{self.owner}: assign_id=False needs id_field, the field that holds the documents' own ids"
            )
        check_integer(self.identification_batchsize, f"{self.owner}: identification_batchsize")
        check_optional_integer(self.total_nparts, f"{self.owner}: total_nparts")
        self._keys()
        self._check()

    def _keys(self) -> DocumentHashes:
        return DocumentHashes(self.text_field, self.normalize_text, self.keep, self.keep_by)

    def passes(self) -> Passes:
        identity = {
            "input": self.input_path,
            "input_filetype": self.input_filetype,
            "text_field": self.text_field,
            "normalize_text": str(self._keys().normalize_text),
            "normalization_version": NORMALIZATION_VERSION,
            "keep": self.keep,
            "keep_by": self.keep_by,
            "perform_removal": self.perform_removal,
        }
        index = self.index_options()
        identity |= {k: v for k, v in index.items() if v is not None}
        how = {"normalize_text": identity["normalize_text"], "normalization_version": NORMALIZATION_VERSION}
        keys, facts = self._keys(), {}
        if self.backend != "cpu":
            n_cores = len(os.sched_getaffinity(0))
            chosen = choose(self.backend, n_cores)
            facts = {"hashed_on": f"{chosen.backend} ({chosen.why})"}
            keys = keys.on_gpu(n_cores) if chosen.backend == "gpu" else keys
        return Passes(
            EXACT.title,
            self._input().reader,
            [(keys, [])],
            self.output_path,
            DecideEqual(self.keep_by, facts),
            self._writer(),
            EXACT,
            max_source_loss=float(self.max_source_loss),
            identity=identity,
            index_parameters=how,
            **index,
        )


@dataclass
class RemoveExactDuplicates(ExactDeduplicationWorkflow):
    """The same for commands and curations: input of any format, removal in the same call, no files of ids."""

    input_filetype: str | None = None
    input_blocksize: str | int | None = None
    perform_removal: bool = True

    ids_folder = ""
    as_the_budget_allows = {}
