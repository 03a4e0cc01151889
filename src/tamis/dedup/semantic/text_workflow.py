"""TextSemanticWorkflow: documents whose texts mean nearly the same; for `tamis dedup semantic --model`.

They are embedded in the pass that makes records.

Embeddings are not written anywhere: they become unit vectors in the worker that made them (vectors.py), and the rest is
SemanticDeduplicationWorkflow. See also: text_steps.py, the workflow that users of Python call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tamis.dedup.options import UserWorkflow
from tamis.dedup.semantic.ranking import RankingStrategy
from tamis.dedup.semantic.workflow import SemanticDeduplicationWorkflow
from tamis.sizes import check_optional_integer
from tamis.stages.base import ProcessingStage
from tamis.stages.text.embedders.base import DEFAULT_MODEL, EmbeddingCreatorStage

if TYPE_CHECKING:
    from tamis.dedup.nemo_compat.id_files import IdFiles
    from tamis.dedup.passes import Passes


@dataclass
class TextSemanticWorkflow(UserWorkflow):
    """Texts -> embeddings -> clusters -> pairs within each cluster -> all but one of each group go, in one call.

    A document goes when the cosine of its embedding and that of one that stays is at least 1 - `eps`. See
    SemanticDeduplicationWorkflow for the rest, also for what `perform_removal=False` writes. `embedding_field` is only
    a name here: documents come out as they went in. Documents without a text always stay.
    """

    input_path: Any
    output_path: str
    cache_path: str | None = None
    perform_removal: bool = True
    text_field: str = "text"
    embedding_field: str = "embeddings"
    model_identifier: str = DEFAULT_MODEL
    embedding_max_chars: int | None = None
    hf_token: str | None = None
    model_cache_dir: str | None = None
    n_clusters: int | None = 100
    embedding_dim: int | None = None
    distance_metric: str = "cosine"
    which_to_keep: str = "hard"
    eps: float = 0.01
    kmeans_max_iter: int = 300
    kmeans_tol: float = 1e-4
    kmeans_random_state: int = 42
    kmeans_init: str = "k-means||"
    kmeans_n_init: int | str = 1
    kmeans_oversampling_factor: float = 2.0
    kmeans_fit_data_fraction: float | None = None
    ranking_strategy: RankingStrategy | None = None
    pairwise_batch_size: int = 1024
    input_filetype: str | None = "parquet"
    input_file_extensions: Sequence[str] | None = None
    input_blocksize: str | int | None = None
    output_filetype: str | None = None
    read_kwargs: Mapping[str, Any] = field(default_factory=dict)
    max_source_loss: float | str = field(default=0.95, kw_only=True)
    # None: as a model of sentence-transformers says itself.
    embedding_pooling: str | None = field(default=None, kw_only=True)
    embedding_max_seq_length: int | None = field(default=None, kw_only=True)
    trust_remote_code: bool = field(default=False, kw_only=True)
    backend: str = field(default="cpu", kw_only=True)
    id_field: str | None = field(default="id", kw_only=True)

    def __post_init__(self) -> None:
        check_optional_integer(self.embedding_max_chars, "embedding_max_chars")
        self._vectors()
        self._embedder()

    def _vectors(self) -> SemanticDeduplicationWorkflow:
        return SemanticDeduplicationWorkflow(
            self.input_path,
            self.output_path,
            self.n_clusters,
            self.cache_path,
            self.id_field,
            embedding_field=self.embedding_field,
            embedding_dim=self.embedding_dim,
            input_filetype=self.input_filetype,
            input_file_extensions=self.input_file_extensions,
            max_iter=self.kmeans_max_iter,
            tol=self.kmeans_tol,
            random_state=self.kmeans_random_state,
            init=self.kmeans_init,
            n_init=self.kmeans_n_init,
            oversampling_factor=self.kmeans_oversampling_factor,
            fit_data_fraction=self.kmeans_fit_data_fraction,
            distance_metric=self.distance_metric,
            which_to_keep=self.which_to_keep,
            ranking_strategy=self.ranking_strategy,
            pairwise_batch_size=self.pairwise_batch_size,
            eps=self.eps,
            read_kwargs=self.read_kwargs or None,
            perform_removal=self.perform_removal,
            output_filetype=self.output_filetype,
            input_blocksize=self.input_blocksize,
            max_source_loss=self.max_source_loss,
            backend=self.backend,
        )

    def _embedder(self) -> EmbeddingCreatorStage:
        return EmbeddingCreatorStage(
            self.model_identifier,
            use_sentence_transformer=self.embedding_pooling is None,
            text_field=self.text_field,
            embedding_field=self.embedding_field,
            cache_dir=self.model_cache_dir,
            max_chars=self.embedding_max_chars,
            max_seq_length=self.embedding_max_seq_length,
            embedding_pooling=self.embedding_pooling or "mean_pooling",
            hf_token=self.hf_token,
            trust_remote_code=self.trust_remote_code,
        )

    def ids(self) -> IdFiles:
        return self._vectors().ids()

    def passes(self) -> Passes:
        """Return the passes of the workflow over vectors, with the embedder before the stage that writes records."""
        passes = self._vectors().passes()
        parts: list[ProcessingStage[Any, Any]] = self._embedder().decompose()
        # In one worker: a document is known by its place in the input there.
        for stage in (parts[0], passes.keys[0][0]):
            stage.resources = parts[-1].resources
        passes.before = parts
        passes.name = "semantic deduplication of texts"
        passes.identity |= {
            "model": self.model_identifier,
            "text_field": self.text_field,
            "max_chars": self.embedding_max_chars,
            "pooling": self.embedding_pooling,
            "max_seq_length": self.embedding_max_seq_length,
        }
        return passes
