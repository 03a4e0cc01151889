"""ImageDuplicatesRemovalStage: drops the images whose ids a deduplication wrote into Parquet files."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, ClassVar

from tamis._lazy import np
from tamis.errors import UsageError
from tamis.stages.base import ProcessingStage
from tamis.stages.traits import StageTraits
from tamis.stores.urls import absolute, is_remote
from tamis.tasks import DocumentBatch


class ImageDuplicatesRemovalStage(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Removes the images whose ids are listed in Parquet files.

    `removal_parquets_dir`: a local or s3:// folder (or file) of Parquet with the column `duplicate_id_field`. 16 bytes
    per id are held, once per machine. `verbose` is accepted for compatibility with NeMo Curator: the report always
    counts removed images.
    """

    columns_in = ("id",)
    columns_out = ()
    traits: ClassVar[StageTraits] = StageTraits(removes_duplicates=True)

    def __init__(
        self,
        removal_parquets_dir: str,
        duplicate_id_field: str = "id",
        verbose: bool = False,
        num_workers_per_node: int | None = None,
        name: str = "image_dedup_filter",
        _ids_to_remove: set[str] | None = None,
    ) -> None:
        self.removal_parquets_dir = absolute(removal_parquets_dir)
        self.duplicate_id_field, self.verbose, self.name = duplicate_id_field, verbose, name
        self._ids_to_remove = set(_ids_to_remove or ())
        self._per_node = num_workers_per_node
        self._known: tuple[Any, Any] | None = None

    def num_workers_per_node(self) -> float | None:
        return self._per_node

    def setup_on_node(self, node_info: Any = None, worker_metadata: Any = None) -> None:
        self._known = self._read()

    def setup(self, worker_metadata: Any = None) -> None:
        if self._known is None:
            self._known = self._read()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_known": None}

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        self.setup()
        assert self._known is not None
        known_hi, known_lo = self._known
        hi, lo = _hashed(batch.column("id").to_pylist())
        is_removed = np.zeros(batch.num_items, bool)
        if len(known_hi):
            positions = np.minimum(np.searchsorted(known_hi, hi), len(known_hi) - 1)
            # Two ids with one upper half: not in the life of this universe.
            is_removed = (known_hi[positions] == hi) & (known_lo[positions] == lo)
        self._note_drops(batch.serial[is_removed], self.name, None, f"its id is in {self.removal_parquets_dir}")
        return batch.filter(~is_removed)

    def _read(self) -> tuple[Any, Any]:
        """Read the sorted 128-bit hashes of the ids, in two halves."""
        from tamis.formats.parquet.format import open_file

        parts = [_hashed(sorted(self._ids_to_remove))]
        for path in _files(self.removal_parquets_dir, self.name):
            with open_file(path) as file:
                if self.duplicate_id_field not in file.schema_arrow.names:
                    raise UsageError(f"{self.name}: {path} has no column {self.duplicate_id_field!r}")
                for rows in file.iter_batches(1 << 16, columns=[self.duplicate_id_field]):
                    parts.append(_hashed(rows.column(0).to_pylist()))
        hi, lo = (np.concatenate([part[k] for part in parts]) for k in (0, 1))
        order = np.argsort(hi, kind="stable")
        return hi[order], lo[order]


def _hashed(ids: Iterable[Any]) -> tuple[Any, Any]:
    import xxhash

    raw = b"".join(xxhash.xxh3_128_digest(str(i).encode("utf-8", "surrogatepass")) for i in ids)
    halves = np.frombuffer(raw, np.uint64).reshape(-1, 2)
    return halves[:, 0].copy(), halves[:, 1].copy()


def _files(place: str, stage: str) -> list[str]:
    if is_remote(place):
        from tamis.formats.input_files.listing import list_files

        return list(list_files(place, (".parquet",)).paths)
    if os.path.isfile(place):
        return [place]
    if not os.path.isdir(place):
        raise UsageError(f"{stage}: removal_parquets_dir: there is no folder {place}")
    return sorted(os.path.join(place, n) for n in os.listdir(place) if n.endswith(".parquet"))
