"""ExactDeduplicationWorkflow with the parameters, defaults and files that its users know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tamis.dedup.documented.parameters_and_results import FindingWorkflow
from tamis.dedup.exact import workflow as own
from tamis.errors import UsageError

_WHO = "ExactDeduplicationWorkflow"
_BLOCK = "2GiB"  # an upper bound there; partitions follow from the memory budget here, and are smaller
OWN = ("normalize_text", "output_filetype", "keep", "keep_by", "max_source_loss", "index_path", "against", "append")


@dataclass
class ExactDeduplicationWorkflow(FindingWorkflow):
    """Finds documents whose texts are equal.

    `output_path` gets `ExactDuplicateIds/` (Parquet with one column: ids of all documents but one of each group) and
    `exact_id_generator.json`, for TextDuplicatesRemovalWorkflow. Ids are whole numbers, a function of file and place
    (`_curator_dedup_id`), or with `assign_id=False` those that documents have in `id_field`. `perform_removal=True` writes the documents
    that stay instead, in the same call. `input_filetype` None reads JSONL and Parquet. Parameters from `normalize_text` on: see
    tamis.dedup.exact.workflow.
    """

    output_path: str
    input_path: Any = None
    input_filetype: str | None = "parquet"
    input_blocksize: str | int | None = _BLOCK
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

    kind, ids_folder = "exact", "ExactDuplicateIds"

    def __post_init__(self) -> None:
        self._check_documented()
        if self.assign_id and self.id_field is not None:
            raise UsageError(f"{_WHO}: id_field goes with assign_id=False; with assign_id=True ids are made here")
        if not self.assign_id and self.id_field is None:
            raise UsageError(f"{_WHO}: assign_id=False needs id_field, the field that holds the documents' own ids")
        self._own(self.input_path)

    def _own(self, input_path: Any) -> own.ExactDeduplicationWorkflow:
        return own.ExactDeduplicationWorkflow(
            self.output_path, input_path, self.input_filetype, None if self.input_blocksize == _BLOCK else self.input_blocksize,
            input_file_extensions=self.input_file_extensions, read_kwargs=self.read_kwargs, text_field=self.text_field,
            perform_removal=self.perform_removal, **{name: getattr(self, name) for name in OWN},
        )  # fmt: skip
