"""Deduplication against what earlier runs kept: the options for an index, and sketches with a signature to compare by."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from tamis._lazy import np, pa
from tamis.dedup.fuzzy.stages import DocumentSketches
from tamis.dedup.options import absolute
from tamis.errors import UsageError
from tamis.stores.urls import is_remote
from tamis.tasks import DocumentBatch

SIGNATURE_VALUES = 256  # one byte each


def index_options(where: str, index_path: str | None, against: str | None, append: bool) -> dict[str, Any]:
    """`against` and `index` (which gets what stays) as the passes want them."""
    for name, path in (("index_path", index_path), ("against", against)):
        if path is not None and is_remote(path):
            raise UsageError(f"{where}: {name}: an index is a folder of this machine, got {path}")
    if append and against is None:
        raise UsageError(
            f"{where}: append adds to the index that `against` names; give it, or index_path for a new index"
        )
    if append and index_path is not None:
        raise UsageError(
            f"{where}: give append=True to add to the index `against`, or index_path for a new one, not both"
        )
    if index_path is not None and against is not None and os.path.abspath(index_path) == os.path.abspath(against):
        raise UsageError(f"{where}: index_path and against are the same folder; to add to that index give append=True")
    compared = absolute(against, "against") if against is not None else None
    return {
        "against": compared,
        "index": compared if append else absolute(index_path, "index_path") if index_path is not None else None,
    }


@dataclass(repr=False)
class SignedSketches(DocumentSketches):
    """DocumentSketches with a signature of every document: a byte of each of 256 values of a sketch, in columns of 8 bytes."""

    name: str = "signed_sketches"

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        out = super().process(batch)
        if self.first == 0:
            words = self.__dict__.pop("_signatures")
            for i in range(words.shape[1]):
                out = out.with_column(f"sig_{i}", pa.array(words[:, i]))
        return out

    def _keys(self, texts: Any) -> tuple[Any, Any]:
        from tamis.kernels.buffers import string_buffers
        from tamis.kernels.sketch.band_keys import band_keys

        if self.first == 0:
            # Bands of one value each: a key is then a hash of that value.
            keys, _ = band_keys(string_buffers(texts), **(vars(self.sketch()) | {"bands": SIGNATURE_VALUES, "rows": 1}))
            self._signatures = np.ascontiguousarray((keys & np.uint64(0xFF)).astype(np.uint8)).view(np.uint64)
        return super()._keys(texts)
