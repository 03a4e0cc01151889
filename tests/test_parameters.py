"""Numbers in public constructors and settings: wrong types and values are refused by name before the run."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tamis.backends.ray_actor_pool import RayActorPoolExecutor
from tamis.backends.ray_data import RayDataExecutor
from tamis.backends.xenna import XennaExecutor
from tamis.core.client import RayClient, SlurmRayClient
from tamis.curation import FuzzyDuplicates
from tamis.engine.run.settings import RunSettings
from tamis.errors import UsageError
from tamis.stages.client_partitioning import ClientPartitioningStage
from tamis.stages.deduplication.exact import ExactDeduplicationWorkflow
from tamis.stages.deduplication.fuzzy import FuzzyDeduplicationWorkflow
from tamis.stages.deduplication.lines.workflow import LineDeduplicationWorkflow
from tamis.stages.deduplication.semantic import (
    IdentifyDuplicatesStage,
    KMeansStage,
    PairwiseStage,
    SemanticDeduplicationWorkflow,
)
from tamis.stages.file_partitioning import FilePartitioningStage
from tamis.stages.image.io import ImageReader
from tamis.stages.text.deduplication.semantic import TextSemanticDeduplicationWorkflow
from tamis.stages.text.download import (
    ArxivDownloadExtractStage,
    CommonCrawlDownloadExtractStage,
    WikipediaDownloadExtractStage,
)
from tamis.stages.text.download.common_crawl import CommonCrawlWARCReader
from tamis.stages.text.embedders import EmbeddingCreatorStage
from tamis.stages.text.io.reader import ArrowReader, DocumentReader, JsonlReader, ParquetReader, TextReader
from tamis.stages.text.modules.join_workflow import DocumentJoinWorkflow
from tamis.stages.video.io.clip_writer import ClipWriterStage
from tamis.stages.video.io.video_reader import VideoReader

Make = Callable[..., Any]


def reader(kind: Any) -> Make:
    return lambda **given: kind("data", **given)


def workflow(kind: Any, **more: Any) -> Make:
    return lambda **given: kind(input_path="data", output_path="out", **{**more, **given})


def arxiv(**given: Any) -> Any:
    return ArxivDownloadExtractStage("downloads", **given)


def common_crawl(**given: Any) -> Any:
    return CommonCrawlDownloadExtractStage("2021-04", "2021-10", "downloads", **given)


def wikipedia(**given: Any) -> Any:
    return WikipediaDownloadExtractStage("en", "downloads", **given)


def clips(**given: Any) -> Any:
    return ClipWriterStage("out", "in", False, False, False, False, False, **given)


def config_of(kind: Any) -> Make:
    return lambda **given: kind(given)


READERS = [
    ArrowReader,
    ClientPartitioningStage,
    DocumentReader,
    FilePartitioningStage,
    JsonlReader,
    ParquetReader,
    TextReader,
    ImageReader,
]
SEMANTIC = workflow(SemanticDeduplicationWorkflow, n_clusters=2, eps=0.01)


# constructor, parameter, the least value that it takes
def embedder(**more: Any) -> Any:
    return EmbeddingCreatorStage("model", **more)


INTEGERS: list[tuple[Make, str, int]] = [
    *((reader(kind), "files_per_partition", 1) for kind in READERS),
    *((reader(kind), "limit", 1) for kind in READERS),
    (reader(VideoReader), "video_limit", -1),
    (clips, "max_workers", 1),
    *((embedder, name, 1) for name in ("max_chars", "max_seq_length", "model_inference_batch_size")),
    (workflow(ExactDeduplicationWorkflow), "total_nparts", 1),
    (workflow(ExactDeduplicationWorkflow), "identification_batchsize", 1),
    (workflow(FuzzyDeduplicationWorkflow), "seed", 0),
    (workflow(FuzzyDeduplicationWorkflow), "char_ngrams", 1),
    (workflow(FuzzyDeduplicationWorkflow), "word_ngrams", 1),
    (workflow(FuzzyDeduplicationWorkflow), "num_bands", 1),
    (workflow(FuzzyDeduplicationWorkflow), "minhashes_per_band", 1),
    (workflow(FuzzyDeduplicationWorkflow), "bands_per_iteration", 1),
    (workflow(FuzzyDeduplicationWorkflow), "min_shingles", 0),
    (workflow(FuzzyDeduplicationWorkflow), "lsh_num_output_partitions", 1),
    (FuzzyDuplicates, "seed", 0),
    (FuzzyDuplicates, "min_shingles", 0),
    (SEMANTIC, "n_clusters", 1),
    (SEMANTIC, "max_iter", 1),
    (SEMANTIC, "pairwise_batch_size", 1),
    (SEMANTIC, "random_state", 0),
    (SEMANTIC, "embedding_dim", 1),
    (workflow(TextSemanticDeduplicationWorkflow, n_clusters=2), "embedding_max_chars", 1),
    (
        lambda **given: KMeansStage(
            **{
                "n_clusters": 2,
                "id_field": "id",
                "embedding_field": "e",
                "input_path": "data",
                "output_path": "out",
                **given,
            }
        ),
        "n_clusters",
        1,
    ),
    (lambda **given: KMeansStage(2, "id", "e", "data", "out", **given), "random_state", 0),
    (lambda **given: KMeansStage(2, "id", "e", "data", "out", **given), "max_samples_per_batch", 1),
    (lambda **given: PairwiseStage("id", "e", "data", "out", **given), "pairwise_batch_size", 1),
    (lambda **given: PairwiseStage("id", "e", "data", "out", **given), "random_seed", 0),
    (lambda **given: PairwiseStage("id", "e", "data", "out", **given), "embedding_dim", 1),
    *((make, name, 1) for make in (arxiv, common_crawl, wikipedia) for name in ("url_limit", "record_limit")),
    (arxiv, "log_frequency", 1),
    (wikipedia, "log_frequency", 1),
    (common_crawl, "extractor_max_calls_per_worker", 1),
    (CommonCrawlWARCReader, "max_workers", 1),
    (CommonCrawlWARCReader, "max_retries", 0),
    *(
        (kind, name, 0)
        for kind in (RayClient, SlurmRayClient)
        for name in ("num_cpus", "num_gpus", "object_store_memory")
    ),
    *(
        (kind, name, 0)
        for kind in (RayClient, SlurmRayClient)
        for name in ("ray_port", "ray_dashboard_port", "ray_client_server_port", "ray_metrics_port")
    ),
    (RunSettings, "workers", 1),
    *((config_of(kind), "workers", 1) for kind in (RayActorPoolExecutor, RayDataExecutor, XennaExecutor)),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("make", "name", "least"), INTEGERS, ids=lambda value: value if isinstance(value, str) else "")
def test_whole_numbers_are_whole_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Make, name: str, least: int
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    make(**{name: max(least, 1)})
    for wrong in (1.5, 2.0, True, "50", math.nan, math.inf, least - 1):
        with pytest.raises(UsageError, match=rf"{name}: expected a whole number .*got {re.escape(repr(wrong))}"):
            make(**{name: wrong})


SIZES: list[tuple[Make, str]] = [
    *((reader(kind), "blocksize") for kind in READERS if kind is not ImageReader),
    *(
        (workflow(kind), "input_blocksize")
        for kind in (
            ExactDeduplicationWorkflow,
            FuzzyDeduplicationWorkflow,
            LineDeduplicationWorkflow,
            DocumentJoinWorkflow,
        )
    ),
    (SEMANTIC, "input_blocksize"),
    *((RunSettings, name) for name in ("memory", "gpu_memory", "max_record", "queue", "blocksize")),
    *(
        (config_of(kind), name)
        for kind in (RayActorPoolExecutor, RayDataExecutor, XennaExecutor)
        for name in ("memory", "max_record")
    ),
]


@pytest.mark.parametrize(("make", "name"), SIZES, ids=lambda value: value if isinstance(value, str) else "")
def test_sizes_are_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Make, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    make(**{name: "1GB"})
    make(**{name: 10**9})
    for wrong in (True, "much", math.nan, math.inf, -1, 0, [1]):
        with pytest.raises(UsageError, match=name):
            make(**{name: wrong})


SECONDS: list[tuple[Make, str]] = [
    (RunSettings, "timeout"),
    (CommonCrawlWARCReader, "timeout"),
    (SlurmRayClient, "worker_connect_timeout_s"),
    (RayActorPoolExecutor, "progress_interval"),
    *((config_of(kind), "timeout") for kind in (RayActorPoolExecutor, RayDataExecutor, XennaExecutor)),
    *((config_of(RayActorPoolExecutor), name) for name in ("resource_wait_timeout_s", "resource_wait_interval_s")),
    *((config_of(XennaExecutor), name) for name in ("logging_interval", "autoscale_interval_s")),
]


@pytest.mark.parametrize(("make", "name"), SECONDS, ids=lambda value: value if isinstance(value, str) else "")
def test_seconds_are_seconds(make: Make, name: str) -> None:
    make(**{name: 2.5})
    for wrong in (True, "50", math.nan, math.inf, -1, [1]):
        with pytest.raises(UsageError, match=name):
            make(**{name: wrong})


@pytest.mark.parametrize("kind", [RayActorPoolExecutor, RayDataExecutor, XennaExecutor])
@pytest.mark.parametrize("mode", ["Batch", "stream", 1, None])
def test_a_wrong_mode_is_refused_when_the_executor_is_made(kind: Any, mode: Any) -> None:
    kind({"execution_mode": "batch"})
    with pytest.raises(UsageError, match="execution_mode: expected 'streaming' or 'batch', got"):
        kind({"execution_mode": mode})


@pytest.mark.parametrize("name", ["reserved_cpus", "reserved_gpus"])
@pytest.mark.parametrize("wrong", [True, "2", math.nan, math.inf, -1])
def test_what_is_reserved_is_a_number(name: str, wrong: Any) -> None:
    RayActorPoolExecutor({name: 0.5})
    with pytest.raises(UsageError, match=name):
        RayActorPoolExecutor({name: wrong})


@pytest.mark.parametrize("wrong", [True, "0.01", math.nan, -0.1, 3, [0.01]])
def test_eps_is_a_number(wrong: Any) -> None:
    for make in (lambda eps: SEMANTIC(eps=eps), lambda eps: IdentifyDuplicatesStage("out", eps)):
        make(0.01)
        with pytest.raises(UsageError, match=rf"eps.* got {re.escape(repr(wrong))}"):
            make(wrong)
