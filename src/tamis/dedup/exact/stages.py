"""The stage of exact deduplication: a hash for every document.

TextKeys is the base of all stages that make keys of texts.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

from tamis._dataclasses import dataclass
from tamis.dedup.normalization import NORMALIZATION_VERSION, check_keep, check_mode, normalized
from tamis.stages.base import ProcessingStage
from tamis.stages.resources import Resources
from tamis.stages.traits import StageTraits
from tamis.tasks import DocumentBatch


class TextKeys(ProcessingStage[DocumentBatch, DocumentBatch]):
    """A stage that replaces documents by records with keys of their texts.

    Subclasses are dataclasses with these fields.
    """

    text_field: str
    normalize_text: str | bool
    keep: str
    keep_by: str | None
    traits: ClassVar[StageTraits] = StageTraits(gives_documents=True)
    _backend: ClassVar[str] = "cpu"
    _device: ClassVar[Any] = None  # the function that makes keys on a GPU, in a worker

    def __post_init__(self) -> None:
        self.normalize_text = check_mode(self.name, self.normalize_text)
        check_keep(self.name, self.keep, self.keep_by)

    def on_gpu(self, n_workers: int, backend: str = "gpu") -> Self:
        """Compute the same keys on GPUs that `n_workers` workers share.

        Where they are computed changes nothing in the identity of the run.
        """
        self.resources = Resources(cpus=1.0, gpus=1.0 / max(1, n_workers))
        self.__dict__["_backend"] = backend
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "_device"}

    def inputs(self) -> Any:
        return ["data"], [self.text_field, *([self.keep_by] if self.keep_by else [])]


@dataclass(repr=False)
class DocumentHashes(TextKeys):
    """XXH3-128 of the normalised text (keys.py). A null text has no key."""

    text_field: str = "text"
    normalize_text: str | bool = False
    keep: str = "first"
    keep_by: str | None = None
    name: str = "document_hashes"
    version: int = NORMALIZATION_VERSION

    def setup(self, worker_metadata: Any = None) -> None:
        if self._backend == "gpu" and self._device is None:
            from tamis.dedup.exact.gpu_hash import GpuHasher

            self.__dict__["_device"] = GpuHasher()

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        from tamis.dedup.keys import hash_columns, position_columns, record_batch

        written = batch.texts(self.text_field)
        texts = normalized(written, str(self.normalize_text))
        hashes = hash_columns(batch, written, texts, self.keep, self.keep_by, self._device)
        return record_batch(batch, position_columns(batch) | hashes)
