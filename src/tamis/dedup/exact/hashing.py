"""The first pass of exact deduplication: a hash for every document."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tamis.dedup.normalization import NORMALIZATION_VERSION, check_keep, check_mode, normalized
from tamis.stages.base import ProcessingStage
from tamis.stages.resources import Resources
from tamis.tasks import DocumentBatch


@dataclass(repr=False)
class DocumentHashes(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Replaces documents by their records (keys.py): XXH3-128 of the normalised text. A null text has no key."""

    text_field: str = "text"
    normalize_text: str | bool = False
    keep: str = "first"
    keep_by: str | None = None
    name: str = "document_hashes"
    version: int = NORMALIZATION_VERSION

    def __post_init__(self) -> None:
        self.normalize_text = check_mode(self.name, self.normalize_text)
        check_keep(self.name, self.keep, self.keep_by)

    def on_gpu(self, n_workers: int) -> DocumentHashes:
        """The same hashes, made on GPUs that so many workers share: where they are made changes nothing that the run is known by."""
        self.resources = Resources(cpus=1.0, gpus=1.0 / max(1, n_workers))
        self.__dict__["_hasher_kind"] = "gpu"
        return self

    gives_documents: ClassVar[bool] = True
    _hasher_kind: ClassVar[str] = "cpu"
    _hasher: ClassVar[Any] = None

    def setup(self, worker_metadata: Any = None) -> None:
        if self._hasher_kind == "gpu" and self._hasher is None:
            from tamis.dedup.exact.gpu_hash import GpuHasher

            self.__dict__["_hasher"] = GpuHasher()

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "_hasher"}

    def inputs(self) -> Any:
        return ["data"], [self.text_field, *([self.keep_by] if self.keep_by else [])]

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        from tamis.dedup.keys import hash_columns, place_columns, record_batch

        written = batch.texts(self.text_field)
        texts = normalized(written, str(self.normalize_text))
        hashes = hash_columns(batch, written, texts, self.keep, self.keep_by, self._hasher)
        return record_batch(batch, place_columns(batch) | hashes)
