"""ExactDeduplicationWorkflow: find documents whose texts are equal, and remove all but one of each, in one call."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tamis.dedup.exact.gpu_hash import BACKENDS, choose
from tamis.dedup.exact.hashing import DocumentHashes
from tamis.dedup.index.options import index_options
from tamis.dedup.normalization import NORMALIZATION_VERSION
from tamis.dedup.options import InOneCall, absolute
from tamis.errors import UsageError
from tamis.sizes import parse_fraction

if TYPE_CHECKING:
    from tamis.dedup.kinds import Passes
    from tamis.dedup.planning import DedupPlan


@dataclass
class ExactDeduplicationWorkflow(InOneCall):
    """Documents are equal when XXH3-128 of their normalised texts is. `run()` does all passes, and goes on where it was stopped.

    `output_path` gets the documents that stay and, in `_tamis/duplicates`, one row per duplicate: its id, the id of the kept document,
    group size. Ids are a function of file and position (as AddId gives them). `perform_removal=False` only finds duplicates.
    `normalize_text`: False, True (case and whitespace do not count), or a name: none, strip, nfc, casefold, alphanumeric.
    `keep`: "first" in the input, the "longest", or the "best" by the highest number in the column `keep_by`. A document whose
    text is null or no text is never a duplicate. `max_source_loss`: stop before removal when a folder (or file, if there is one
    folder) would lose more than this share. `index_path`: keep an index of what stays in this folder. `against`: an index that an
    earlier run kept; documents in it stay, and new ones that equal one of them go. `append`: add what stays to it. `backend`: where
    texts are hashed: "cpu", "gpu" (the same hashes), or "auto", whichever is faster here, measured.
    """

    output_path: str
    input_path: Any = None
    input_filetype: str | None = None
    input_blocksize: str | int | None = None
    input_file_extensions: Sequence[str] | None = None
    read_kwargs: Mapping[str, Any] | None = None
    text_field: str = "text"
    normalize_text: bool | str = False
    assign_id: bool = True
    id_field: str | None = None
    perform_removal: bool = True
    output_filetype: str | None = None
    keep: str = "first"
    keep_by: str | None = None
    max_source_loss: float | str = 0.95
    index_path: str | None = None
    against: str | None = None
    append: bool = False
    backend: str = "cpu"

    def __post_init__(self) -> None:
        self.output_path, self.input_path = absolute(self.output_path), absolute(self.input_path or "") or None
        if not self.assign_id or self.id_field is not None:
            raise UsageError(
                "ExactDeduplicationWorkflow: documents are named by file and position (assign_id=True, id_field=None); to carry an "
                "id of your own, leave it in the documents: verdicts and tamis why show the field `id`"
            )
        self.max_source_loss = parse_fraction(self.max_source_loss, "max_source_loss")
        if self.backend not in BACKENDS:
            raise UsageError(f"backend: expected one of {', '.join(BACKENDS)}, got {self.backend!r}")
        self._keys()
        self._index()
        self._input()

    def _index(self) -> dict[str, Any]:
        return index_options("ExactDeduplicationWorkflow", self.index_path, self.against, self.append)

    def _keys(self) -> DocumentHashes:
        return DocumentHashes(self.text_field, self.normalize_text, self.keep, self.keep_by)

    def passes(self) -> Passes:
        from tamis.dedup.kinds import Passes

        identity = {
            "input": self.input_path, "input_filetype": self.input_filetype, "text_field": self.text_field, "normalize_text": str(self._keys().normalize_text),
            "normalization_version": NORMALIZATION_VERSION, "keep": self.keep, "keep_by": self.keep_by,
            "perform_removal": self.perform_removal,
        }  # fmt: skip
        index = self._index()
        identity |= {k: v for k, v in index.items() if v is not None}
        how = {"normalize_text": identity["normalize_text"], "normalization_version": NORMALIZATION_VERSION}
        keys, told = self._keys(), {}
        if self.backend != "cpu":
            n_cores = len(os.sched_getaffinity(0))
            chosen = choose(self.backend, n_cores)
            told = {"told": {"hashed_on": f"{chosen.backend} ({chosen.why})"}}
            keys = keys.on_gpu(n_cores) if chosen.backend == "gpu" else keys
        return Passes(
            "exact deduplication", self._input().reader, [(keys, [])], self.output_path, {"keep_by": self.keep_by, **told},
            self._writer(), max_source_loss=float(self.max_source_loss), identity=identity, index_kind="exact", index_parameters=how, **index,
        )  # fmt: skip

    def plan(self, memory: str | int | None = None, work: str | None = None) -> DedupPlan:
        """What a run would take, from a small sample; `work`: its scratch folder. Nothing is written."""
        return self._input().plan(0, 0, None, memory, work or self.output_path)
