"""TextSemanticDeduplicationWorkflow: texts whose embeddings nearly agree, with the files between the steps.

    cache_path/embeddings/          the embedding of each document
    cache_path/semantic_dedup/      clusters and pairs (steps.py)
    output_path/duplicates/         ids of what goes
    output_path/deduplicated/       documents that stay

See also: text_workflow.py (in one call, without files between the steps).
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tamis.backends.slurm_array import undivided
from tamis.dedup.ids.workflow import TextDuplicatesRemovalWorkflow
from tamis.dedup.nemo_compat.id_generator import (
    create_id_generator_actor,
    kill_id_generator_actor,
    write_id_generator_to_disk,
)
from tamis.dedup.options import absolute
from tamis.dedup.semantic.ranking import RankingStrategy
from tamis.dedup.semantic.steps import DUPLICATES, run_in_steps
from tamis.dedup.semantic.vectors import check_fraction
from tamis.dedup.semantic.workflow import SemanticDeduplicationWorkflow
from tamis.errors import RunConflict, UsageError, check_choice
from tamis.formats.registry import FILE_TYPES
from tamis.pipeline import Pipeline, WorkflowBase, WorkflowRunResult
from tamis.sizes import check_optional_integer, is_number
from tamis.stages.text.embedders.vllm import VLLMEmbeddingModelStage
from tamis.stages.text.io.formats import reader_of
from tamis.stages.text.io.reader.ids import CURATOR_DEDUP_ID_STR
from tamis.stages.text.io.writer import ParquetWriter

DEFAULT_EMBEDDER = "google/embeddinggemma-300m"


@dataclass
class TextSemanticDeduplicationWorkflow(WorkflowBase):
    """Texts -> embeddings -> clusters -> pairs -> ids -> documents that stay, each step with its files (see above).

    A document goes if the cosine of its embedding and that of one before it, by rank, is at least 1 - `eps`; `eps` None
    stops after the pairs, `perform_removal=False` after the ids. `use_id_generator`: documents are known by numbers of
    file and place (`id_field` is `_curator_dedup_id` then). A repeated call finishes embeddings where it stopped; with
    `clear_output` what an earlier call with other parameters wrote is replaced, and other files are left alone.

    `run(memory=..., workers=...)` takes the settings of a run. `tamis dedup semantic --model` does the same without
    files between the steps.
    """

    input_path: Any
    output_path: str
    cache_path: str | None = None
    perform_removal: bool = True
    text_field: str = "text"
    embedding_field: str = "embeddings"
    model_identifier: str = DEFAULT_EMBEDDER
    embedding_max_chars: int | None = None
    embedding_pretokenize: bool = False
    embedding_vllm_init_kwargs: Mapping[str, Any] | None = None
    hf_token: str | None = None
    model_cache_dir: str | None = None
    n_clusters: int = 100
    id_field: str = CURATOR_DEDUP_ID_STR
    embedding_dim: int | None = None
    metadata_fields: Sequence[str] | None = None
    distance_metric: str = "cosine"
    which_to_keep: str = "hard"
    eps: float | None = 0.01
    kmeans_max_iter: int = 300
    kmeans_tol: float = 1e-4
    kmeans_random_state: int = 42
    kmeans_init: str = "k-means||"
    kmeans_n_init: int | str = 1
    kmeans_oversampling_factor: float = 2.0
    kmeans_max_samples_per_batch: int = 1 << 15
    kmeans_fit_data_fraction: float | None = None
    ranking_strategy: RankingStrategy | None = None
    pairwise_batch_size: int = 1024
    _duplicates_num_row_groups_hint: int | None = None
    use_id_generator: bool = False
    id_generator_state_file: str | None = None
    input_filetype: str = "parquet"
    input_file_extensions: Sequence[str] | None = None
    input_files_per_partition: int | None = None
    input_blocksize: str | int | None = None
    output_filetype: str = "parquet"
    output_file_extension: str | None = None
    output_fields: Sequence[str] | None = None
    read_kwargs: Mapping[str, Any] = field(default_factory=dict)
    cache_kwargs: Mapping[str, Any] = field(default_factory=dict)
    write_kwargs: Mapping[str, Any] = field(default_factory=dict)
    verbose: bool = True
    clear_output: bool = True

    def __post_init__(self) -> None:
        self.output_path = absolute(self.output_path, "output_path")
        self.input_path = absolute(self.input_path, "input_path")
        self.cache_path = self.output_path if self.cache_path is None else absolute(self.cache_path, "cache_path")
        for name in ("input_filetype", "output_filetype"):
            check_choice(f"{type(self).__name__}: {name}", getattr(self, name), FILE_TYPES)
        check_optional_integer(self.embedding_max_chars, "embedding_max_chars")
        if self.eps is None and self.perform_removal:
            raise UsageError(
                "perform_removal=True needs eps: without it nothing is a duplicate; give eps, or perform_removal=False"
            )
        if self.eps is not None and (not is_number(self.eps) or not 0 <= self.eps < 1):
            raise UsageError(f"eps: expected a number from 0 to below 1, got {self.eps!r}")
        if self.use_id_generator and self.id_field != CURATOR_DEDUP_ID_STR:
            raise UsageError(
                f"use_id_generator: ids are in {CURATOR_DEDUP_ID_STR!r}, got id_field={self.id_field!r}; leave one out"
            )
        check_fraction("kmeans_", self.kmeans_fit_data_fraction)
        self.embeddings_path = os.path.join(self.cache_path, "embeddings")
        self.semantic_dedup_path = os.path.join(self.cache_path, "semantic_dedup")
        self.duplicates_path = None if self.eps is None else os.path.join(self.output_path, DUPLICATES)
        self.deduplicated_output_path = os.path.join(self.output_path, "deduplicated") if self.perform_removal else None
        self.id_generator_state_file = self.id_generator_state_file or os.path.join(
            self.output_path, "semantic_id_generator.json"
        )
        self._embedder()
        self._comparison()

    def run(
        self, streaming_executor: Any = None, batch_executor: Any = None, *, progress: bool = True, **settings: Any
    ) -> WorkflowRunResult:
        """Run all steps. `streaming_executor`: for all but the clusters, or three: embeddings, pairs, removal."""
        executors = streaming_executor if isinstance(streaming_executor, tuple) else (streaming_executor,) * 3
        if len(executors) != 3:
            raise UsageError(f"streaming_executor: give one executor or three, got {len(executors)}")
        with undivided(type(self).__name__, settings):
            return self._run_steps(executors, batch_executor, progress and self.verbose, settings)

    def _run_steps(
        self, executors: tuple[Any, Any, Any], batch_executor: Any, shown: bool, settings: Mapping[str, Any]
    ) -> WorkflowRunResult:
        started_s = time.monotonic()
        result = WorkflowRunResult("text_semantic_deduplication")
        result.add_pipeline_tasks("embeddings", self._embed(executors[0], shown, settings))
        embedded_s = time.monotonic()
        compared = run_in_steps(self._comparison(), (batch_executor or executors[1], executors[1]), shown, settings)
        for name, tasks in compared.pipeline_tasks.items():
            result.add_pipeline_tasks(name, tasks)
        result.extend_metadata({k: v for k, v in compared.metadata.items() if k != "total_time"})
        identified_s = time.monotonic()
        if self.perform_removal:
            removed = self._removal().run(executor=executors[2], progress=shown, **settings)
            for name, tasks in removed.pipeline_tasks.items():
                result.add_pipeline_tasks(name, tasks)
            result.add_metadata("num_duplicates_removed", removed.get_metadata("num_duplicates_removed"))
            result.add_metadata("final_output_path", self.deduplicated_output_path)
        if self.use_id_generator:
            result.add_metadata("id_generator_path", self.id_generator_state_file)
        ended_s = time.monotonic()
        result.extend_metadata(
            {
                "embedding_time": embedded_s - started_s,
                "semantic_time": identified_s - embedded_s,
                "removal_time": ended_s - identified_s,
                "total_time": ended_s - started_s,
            }
        )
        return result

    def _embed(self, executor: Any, progress: bool, settings: Mapping[str, Any]) -> list[Any]:
        if self.use_id_generator:
            create_id_generator_actor()
        try:
            tasks = self._embed_once(executor, progress, settings)
            if self.use_id_generator:
                assert self.id_generator_state_file is not None
                write_id_generator_to_disk(self.id_generator_state_file)
        finally:
            if self.use_id_generator:
                kill_id_generator_actor()
        return tasks

    def _embed_once(self, executor: Any, progress: bool, settings: Mapping[str, Any]) -> list[Any]:
        own = [] if self.use_id_generator else [self.id_field]
        metadata = list(self.metadata_fields or ())
        fields = list(dict.fromkeys([*own, self.text_field, *metadata]))
        more = {} if self.input_file_extensions is None else {"file_extensions": list(self.input_file_extensions)}
        reader = reader_of(self.input_filetype)(
            self.input_path,
            files_per_partition=self.input_files_per_partition,
            blocksize=self.input_blocksize,
            fields=fields,
            read_kwargs=dict(self.read_kwargs),
            _generate_ids=self.use_id_generator,
            **more,
        )
        columns = list(dict.fromkeys([self.id_field, self.embedding_field, *metadata]))
        writer = ParquetWriter(self.embeddings_path, fields=columns, write_kwargs=dict(self.cache_kwargs))
        pipeline = Pipeline("text_semantic_dedup_embedding", stages=[reader, self._embedder(), writer])
        try:
            return pipeline.run(executor, progress=progress, **settings)
        except RunConflict:
            if not self.clear_output:
                raise
            return pipeline.run(executor, progress=progress, **{**settings, "fresh": True})

    def _embedder(self) -> VLLMEmbeddingModelStage:
        return VLLMEmbeddingModelStage(
            self.model_identifier,
            vllm_init_kwargs=dict(self.embedding_vllm_init_kwargs or {}),
            text_field=self.text_field,
            pretokenize=self.embedding_pretokenize,
            embedding_field=self.embedding_field,
            max_chars=self.embedding_max_chars,
            cache_dir=self.model_cache_dir,
            hf_token=self.hf_token,
            verbose=self.verbose,
        )

    def _comparison(self) -> SemanticDeduplicationWorkflow:
        return SemanticDeduplicationWorkflow(
            self.embeddings_path,
            self.output_path,
            self.n_clusters,
            self.semantic_dedup_path,
            self.id_field,
            embedding_field=self.embedding_field,
            embedding_dim=self.embedding_dim,
            metadata_fields=self.metadata_fields,
            max_iter=self.kmeans_max_iter,
            tol=self.kmeans_tol,
            random_state=self.kmeans_random_state,
            init=self.kmeans_init,
            n_init=self.kmeans_n_init,
            oversampling_factor=self.kmeans_oversampling_factor,
            max_samples_per_batch=self.kmeans_max_samples_per_batch,
            fit_data_fraction=self.kmeans_fit_data_fraction,
            distance_metric=self.distance_metric,
            which_to_keep=self.which_to_keep,
            ranking_strategy=self.ranking_strategy,
            pairwise_batch_size=self.pairwise_batch_size,
            eps=self.eps,
            _duplicates_num_row_groups_hint=self._duplicates_num_row_groups_hint,
            cache_kwargs=self.cache_kwargs or None,
            write_kwargs=None,
            verbose=self.verbose,
        )

    def _removal(self) -> TextDuplicatesRemovalWorkflow:
        return TextDuplicatesRemovalWorkflow(
            self.input_path,
            self.duplicates_path,
            str(self.deduplicated_output_path),
            input_filetype=self.input_filetype,
            id_field=self.id_field,
            input_files_per_partition=self.input_files_per_partition,
            input_blocksize=self.input_blocksize,
            input_file_extensions=self.input_file_extensions,
            input_kwargs=dict(self.read_kwargs),
            duplicate_id_field="id",
            id_generator_path=self.id_generator_state_file if self.use_id_generator else None,
            output_file_extension=self.output_file_extension,
            output_filetype=self.output_filetype,
            output_kwargs=dict(self.write_kwargs),
            output_fields=self.output_fields,
            output_mode="overwrite" if self.clear_output else None,
        )
