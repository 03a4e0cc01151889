"""BaseFilterStage: a score for each image from its embedding, and a limit that it is kept by."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import field
from pathlib import Path
from typing import Any, ClassVar

from tamis._dataclasses import dataclass
from tamis._lazy import np, pa
from tamis.errors import UsageError
from tamis.stages.base import DropRule, ProcessingStage
from tamis.stages.image.models import check_batch_size, image_resources
from tamis.tasks import DocumentBatch


@dataclass(repr=False)
class BaseFilterStage(ProcessingStage[DocumentBatch, DocumentBatch]):
    """A subclass names its score (`score_field`), loads its head (`load_head`) and says which scores stay (`keep`).

    Needs the column `embedding` (ImageEmbeddingStage). An image without an embedding stays, without a score. `verbose`
    is accepted for compatibility with NeMo Curator: the report counts survivors.
    """

    model_dir: str | None = None
    num_gpus_per_worker: float = 0.25
    model_inference_batch_size: int = 32
    score_threshold: float = 0.5
    verbose: bool = False
    name: str = "image_filter"
    embedding_field: str = field(default="embedding", kw_only=True)
    _head: Any = field(default=None, init=False)

    score_field: ClassVar[str] = "image_score"
    keeps_low: ClassVar[bool] = False
    columns_in = ("embedding_field",)
    columns_out = ("score_field",)

    def __post_init__(self) -> None:
        check_batch_size(self.name, self.model_inference_batch_size)
        if isinstance(self.score_threshold, bool) or not isinstance(self.score_threshold, (int, float)):
            raise UsageError(f"{self.name}: score_threshold must be a number, got {self.score_threshold!r}")
        self.resources = image_resources(self.num_gpus_per_worker)

    @abstractmethod
    def weights_file(self, fetch: bool) -> Path:
        """Return the file of the head's weights. `fetch`: it may be downloaded (once per machine)."""

    @abstractmethod
    def load_head(self, path: Path) -> Any:
        """Load the head: a callable that takes unit vectors and returns a score for each."""

    def keep(self, scores: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        limit = self.score_threshold
        is_kept: np.ndarray[Any, Any] = scores < limit if self.keeps_low else scores >= limit
        return is_kept

    def rules(self) -> list[DropRule]:
        side = {"at_most" if self.keeps_low else "at_least": "score_threshold"}
        return [DropRule(self.name, self.name, {"score_threshold": self.score_threshold}, **side)]  # type: ignore[arg-type]

    def setup_on_node(self, node_info: Any = None, worker_metadata: Any = None) -> None:
        self._head = self.load_head(self.weights_file(fetch=True))

    def setup(self, worker_metadata: Any = None) -> None:
        if self._head is None:
            self._head = self.load_head(self.weights_file(fetch=False))

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        if not batch.num_items:
            return batch
        if self.embedding_field not in batch.get_columns():
            raise UsageError(f"{self.name}: no {self.embedding_field}; put ImageEmbeddingStage before it")
        self.setup()
        column = batch.column(self.embedding_field)
        indices = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
        scores = np.full(batch.num_items, np.nan, np.float64)
        if len(indices):
            scores[indices] = self._scores(np.stack(column.take(pa.array(indices)).to_numpy(zero_copy_only=False)))
        self._note_scores(self.name, scores[indices], batch.serial[indices])
        stays = np.ones(batch.num_items, bool)
        stays[indices] = self.keep(scores[indices])
        gone = np.flatnonzero(~stays)
        limits = {"score_threshold": self.score_threshold}
        self._note_drops(batch.serial[gone], self.name, scores[gone].tolist(), limits)
        scored = batch.with_column(self.score_field, pa.array(scores, mask=np.isnan(scores)))
        return scored.filter(stays)

    def _scores(self, vectors: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        if vectors.shape[1] != self._head.width:
            raise UsageError(
                f"{self.name}: embeddings of {vectors.shape[1]} numbers, but the weights are for {self._head.width}; "
                "use the CLIP model that "
                "they were made with (ViT-L/14: 768)"
            )
        n = self.model_inference_batch_size
        parts = [self._head(vectors[i : i + n].astype(np.float32)) for i in range(0, len(vectors), n)]
        return np.concatenate(parts)
