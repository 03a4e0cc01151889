"""Semantic deduplication of embeddings step by step, with the files between the steps that users know.

    cache_path/kmeans_results/      clusters (KMeansStage)
    cache_path/pairwise_results/    pairs (PairwiseStage)
    output_path/duplicates/         ids of what goes (IdentifyDuplicatesStage)

Each step is a pipeline of its own, inside the same budget; a whole cluster must fit into it. Without these files
SemanticDeduplicationWorkflow works in one call and compares a document with documents that stay only.

See also: stages.py (the stages), text_steps.py (from texts to documents that stay).
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tamis._lazy import pq
from tamis.dedup.semantic.stages import IdentifyDuplicatesStage, KMeansStage, PairwiseStage
from tamis.errors import UsageError
from tamis.pipeline import Pipeline, WorkflowRunResult
from tamis.stages.text.io.reader.ids import CURATOR_DEDUP_ID_STR

if TYPE_CHECKING:
    from tamis.dedup.semantic.workflow import SemanticDeduplicationWorkflow

KMEANS, PAIRWISE, DUPLICATES = "kmeans_results", "pairwise_results", "duplicates"


def run_in_steps(
    workflow: SemanticDeduplicationWorkflow, executors: tuple[Any, Any], progress: bool, settings: Mapping[str, Any]
) -> WorkflowRunResult:
    """Cluster, compare and, unless `eps` is None, identify duplicates; `executors`: of the clusters and of the rest."""
    if workflow.input_filetype != "parquet":
        raise UsageError(
            f"SemanticDeduplicationWorkflow: with cache_path, or without eps, embeddings are read from Parquet, got "
            f"input_filetype={workflow.input_filetype!r}; write them with ParquetWriter"
        )
    started_s = time.monotonic()
    cache = workflow.cache_path or workflow.output_path
    clusters, pairs = os.path.join(cache, KMEANS), os.path.join(cache, PAIRWISE)
    result = WorkflowRunResult("semantic_deduplication")
    kmeans = KMeansStage(
        workflow.n_clusters or 100,
        workflow.id_field or CURATOR_DEDUP_ID_STR,
        workflow.embedding_field,
        workflow.input_path,
        clusters,
        workflow.metadata_fields,
        workflow.verbose,
        workflow.embedding_dim,
        input_file_extensions=workflow.input_file_extensions,
        read_kwargs=workflow.read_kwargs,
        write_kwargs=workflow.cache_kwargs,
        max_iter=workflow.max_iter,
        tol=workflow.tol,
        random_state=workflow.random_state,
        init=workflow.init,
        oversampling_factor=workflow.oversampling_factor,
        max_samples_per_batch=workflow.max_samples_per_batch,
        fit_data_fraction=workflow.fit_data_fraction,
    )
    tasks = Pipeline("semantic_dedup_kmeans", stages=[kmeans]).run(executors[0], progress=progress, **settings)
    result.add_pipeline_tasks("kmeans", tasks)
    clustered_s = time.monotonic()
    stages: list[Any] = [
        PairwiseStage(
            workflow.id_field or CURATOR_DEDUP_ID_STR,
            workflow.embedding_field,
            clusters,
            pairs,
            workflow.ranking_strategy,
            workflow.embedding_dim,
            workflow.pairwise_batch_size,
            workflow.verbose,
            write_kwargs=workflow.cache_kwargs,
            which_to_keep=workflow.which_to_keep,
            sim_metric=workflow.distance_metric,
            random_seed=workflow.random_state,
        )
    ]
    if workflow.eps is not None:
        folder = os.path.join(workflow.output_path, DUPLICATES)
        hint = workflow._duplicates_num_row_groups_hint
        stages.append(
            IdentifyDuplicatesStage(
                folder, float(workflow.eps), hint, workflow.verbose, write_kwargs=workflow.write_kwargs
            )
        )
    tasks = Pipeline("semantic_dedup_pairwise", stages=stages).run(executors[1], progress=progress, **settings)
    result.add_pipeline_tasks("pairwise", tasks)
    ended_s = time.monotonic()
    result.extend_metadata(
        {
            "kmeans_time": clustered_s - started_s,
            "pairwise_time": ended_s - clustered_s,
            "total_time": ended_s - started_s,
            "num_duplicates": 0 if workflow.eps is None else _n_rows(os.path.join(workflow.output_path, DUPLICATES)),
        }
    )
    return result


def _n_rows(folder: str) -> int:
    names = os.listdir(folder) if os.path.isdir(folder) else []
    return sum(pq.read_metadata(os.path.join(folder, n)).num_rows for n in names if n.endswith(".parquet"))
