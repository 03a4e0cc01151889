"""TextDuplicatesRemovalStage with the parameters and defaults that its users know."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tamis.dedup.ids.stages import check_field, id_texts
from tamis.dedup.keys import text_hashes
from tamis.errors import UsageError
from tamis.stages.base import ProcessingStage
from tamis.stages.text.io.options import read_options
from tamis.stages.text.io.reader.ids import CURATOR_DEDUP_ID_STR
from tamis.tasks import DocumentBatch

if TYPE_CHECKING:
    import numpy as np


@dataclass(repr=False)
class TextDuplicatesRemovalStage(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Drops the documents whose ids are listed in `ids_to_remove_path`: Parquet or JSONL, a file or a folder.

    A worker holds 16 bytes for each id; TextDuplicatesRemovalWorkflow keeps them on the disk.
    """

    ids_to_remove_path: str
    id_field: str = CURATOR_DEDUP_ID_STR
    duplicate_id_field: str = "id"
    read_kwargs: Mapping[str, Any] | None = None
    drop_id_field: bool = False
    name: str = "remove_listed_duplicates"

    def __post_init__(self) -> None:
        read_options("TextDuplicatesRemovalStage", self.read_kwargs)
        check_field("id_field", self.id_field)
        check_field("duplicate_id_field", self.duplicate_id_field)

    def inputs(self) -> Any:
        return ["data"], [self.id_field]

    def setup(self, worker_metadata: Any = None) -> None:
        import numpy as np

        from tamis.formats.input_files.listing import list_files
        from tamis.formats.whole_file import read_whole_file

        files = list_files(self.ids_to_remove_path, (".parquet", ".jsonl", ".json"))
        found = [_keys(self.name, read_whole_file(os.fsdecode(p)), self.duplicate_id_field) for p in files.paths]
        self._listed = np.unique(np.concatenate([keys[has] for keys, has in found]))

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        import numpy as np

        keys, has_id = _keys(self.name, batch, self.id_field)
        gone = has_id & np.isin(keys, self._listed)
        if gone.any():
            self._note_drops(batch.serial[gone], "listed_duplicate", None, f"listed in {self.ids_to_remove_path}")
        if self.drop_id_field:
            batch = batch.drop_columns([self.id_field])
        return batch.filter(~gone)


def _keys(who: str, batch: DocumentBatch, field: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The 128-bit hashes of ids, 16 bytes each; and which documents have one."""
    import numpy as np

    if field not in batch.get_columns():
        raise UsageError(f"{who}: there is no field {field!r}; there are {batch.get_columns()}")
    texts = id_texts(batch.column(field))
    if texts is None:
        raise UsageError(f"{who}: {field!r} must hold texts or numbers")
    hi, lo, length = text_hashes(texts)
    pairs = np.ascontiguousarray(np.stack([hi, lo], axis=1)).view("V16").reshape(-1)
    return pairs, length >= 0
