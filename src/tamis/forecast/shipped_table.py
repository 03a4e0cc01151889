"""The shipped table: what is assumed about a pipeline that has never run here, and what published guides recommend.

`RATES` are for one core of an ordinary server, by the beginning of a class's full name; the longest match counts.
Copying, the Gopher set, language id and deduplication are those of docs/explanation/benchmarks-*.md, the
others guesses from these.
The other tables are the sizing guidelines of the system that Tamis reimplements: nodes, GPUs and memory by dataset
size, batch sizes of classifiers. They are a starting point, shown as such next to what was computed. Knows classes by
their names only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tamis.formats.compression.codecs import CODECS

MB, GB, TB = 10**6, 10**9, 10**12

# Decoded MB per second of one core.
RATES: dict[str, float] = {
    "tamis.stages.file_partitioning.": 1e9,
    "tamis.stages.io.": 700.0,
    "tamis.stages.text.io.reader.": 700.0,
    "tamis.stages.text.io.writer.": 640.0,
    "tamis.stages.text.io.writer.parquet.": 200.0,
    "tamis.stages.text.filters.": 3000.0,  # one of many: filters of a segment share their statistics
    "tamis.stages.text.filters.heuristic.repetition.": 400.0,
    "tamis.stages.text.filters.gopher.GopherRepetition": 80.0,
    "tamis.stages.text.filters.gopher.": 400.0,
    "tamis.stages.text.filters.fineweb.": 150.0,
    "tamis.stages.text.filters.fasttext.": 57.0,
    "tamis.stages.text.langid.": 140.0,
    "tamis.stages.text.modifiers.": 100.0,
    "tamis.stages.text.modules.": 300.0,
    "tamis.dedup.exact.": 500.0,
    "tamis.dedup.fuzzy.": 120.0,
    "tamis.dedup.substrings.": 110.0,
    "tamis.dedup.": 300.0,
    "tamis.demo.": 300.0,
}
UNKNOWN_RATE = 20.0  # a stage of the user's own

# Decoded bytes of one stored byte.
PACKED = {codec.suffix: codec.text_ratio for codec in CODECS.values()} | {".parquet": 2.0}
DOCUMENT_BYTES = 4000  # where nothing is known about the documents

# Where there is neither a probe nor a profile: a run of the shipped stages, measured.
FIXED_BYTES = 105 * MB
WORKER_BYTES = 11 * MB


class Sizing(NamedTuple):
    """Published guidance by dataset size. `below_bytes`: for datasets smaller than this."""

    below_bytes: float
    size: str
    nodes: str
    gpus: str
    memory: str
    notes: str


class ClassifierFigures(NamedTuple):
    batch_size: int
    gpu_memory_bytes: int
    documents_per_s: float


class VideoSizing(NamedTuple):
    """Published guidance by the number of videos. `below`: for fewer."""

    below: float
    size: str
    nodes: str
    gpus: str
    notes: str


class StageFigures(NamedTuple):
    """GPU memory and rate of a stage with a model. None: not known."""

    batch_size: int | None
    gpu_memory: str
    throughput: str = ""


TEXT_SIZES = (
    Sizing(10 * GB, "below 10 GB", "1", "1", "32 GB", "single machine"),
    Sizing(100 * GB, "10 to 100 GB", "1", "4", "64 GB", "node with several GPUs"),
    Sizing(500 * GB, "100 to 500 GB", "2 to 4", "8 to 16", "128 GB or more", "small cluster"),
    Sizing(1 * TB, "500 GB to 1 TB", "4 to 8", "16 to 32", "256 GB or more", "medium cluster"),
    Sizing(float("inf"), "above 1 TB", "8 or more", "32 or more", "512 GB or more", "large cluster"),
)
VIDEO_SIZES = (
    VideoSizing(1000, "below 1,000 videos", "1", "1 to 2", "single machine"),
    VideoSizing(10_000, "1,000 to 10,000 videos", "1 to 2", "4 to 8", "captioning is the bottleneck"),
    VideoSizing(100_000, "10,000 to 100,000 videos", "4 to 8", "16 to 32", "distributed"),
    VideoSizing(float("inf"), "above 100,000 videos", "8 or more", "32 or more", "large cluster"),
)
MEDIA_STAGES = {
    "TransNetV2ClipExtractionStage": StageFigures(1, "8 GB used, 16 GB requested", "2 clips/s"),
    "CaptionGenerationStage": StageFigures(1, "24 GB used, the whole GPU requested", "0.5 clips/s"),
    "CosmosEmbed1EmbeddingStage": StageFigures(4, "12 GB used, 16 GB requested", "4 clips/s"),
    "ImageEmbeddingStage": StageFigures(None, "a quarter of a GPU requested"),
}
CLASSIFIERS = {
    "QualityClassifier": ClassifierFigures(64, 8 * GB, 1000.0),
    "FineWebEduClassifier": ClassifierFigures(32, 12 * GB, 500.0),
    "AegisClassifier": ClassifierFigures(16, 16 * GB, 200.0),
}


def seconds_per_byte(stages: Iterable[str]) -> float:
    """Return seconds of one core for one decoded byte, for stages given by the full names of their classes.

    >>> classes = ["tamis.stages.text.io.reader.JsonlReader", "tamis.stages.text.io.writer.JsonlWriter"]
    >>> round(1e-6 / seconds_per_byte(classes))
    334
    """
    return sum(1 / (_rate(name) * MB) for name in stages)


def _rate(name: str) -> float:
    prefixes = [prefix for prefix in RATES if name.startswith(prefix)]
    return RATES[max(prefixes, key=len)] if prefixes else UNKNOWN_RATE


def gpu_seconds_per_document(stages: Iterable[str]) -> float:
    """Return the GPU seconds per document of the stages that are classifiers of the table.

    >>> gpu_seconds_per_document(["tamis.stages.text.classifiers.QualityClassifier", "x.Other"])
    0.001
    """
    return sum(1 / CLASSIFIERS[n].documents_per_s for n in (s.rpartition(".")[2] for s in stages) if n in CLASSIFIERS)


def text_sizing(dataset_bytes: float) -> Sizing:
    """Return the hardware that is recommended for texts of this size.

    >>> text_sizing(50e9).memory, text_sizing(8e12).nodes
    ('64 GB', '8 or more')
    """
    return next(row for row in TEXT_SIZES if dataset_bytes < row.below_bytes)


def video_sizing(n_videos: int) -> VideoSizing:
    """Return the hardware that is recommended for this many videos.

    >>> video_sizing(5000).gpus, video_sizing(10**6).nodes
    ('4 to 8', '8 or more')
    """
    return next(row for row in VIDEO_SIZES if n_videos < row.below)


def stage_lines(stages: Iterable[str]) -> list[str]:
    """Return what the guide says of the stages with a model, given by the full names of their classes.

    >>> stage_lines(["tamis.stages.text.classifiers.quality.QualityClassifier", "x.Other"])
    ['QualityClassifier: batch size 64, GPU memory 8 GB, about 1,000 documents/s']
    """
    lines = []
    for name in dict.fromkeys(full.rpartition(".")[2] for full in stages):
        if name in CLASSIFIERS:
            row = CLASSIFIERS[name]
            figures = StageFigures(
                row.batch_size, f"{row.gpu_memory_bytes // GB} GB", f"{row.documents_per_s:,.0f} documents/s"
            )
        elif name in MEDIA_STAGES:
            figures = MEDIA_STAGES[name]
        else:
            continue
        batch = f"batch size {figures.batch_size}, " if figures.batch_size is not None else ""
        rate = f", about {figures.throughput}" if figures.throughput else ""
        lines.append(f"{name}: {batch}GPU memory {figures.gpu_memory}{rate}")
    return lines


def decoded_bytes(paths: Sequence[str], sizes: Sequence[int]) -> int:
    """Estimate the decoded bytes of files by their names and sizes.

    >>> decoded_bytes(["a.jsonl", "b.jsonl.gz"], [100, 100])
    400
    """
    return int(
        sum(
            max(size, 0) * next((r for end, r in PACKED.items() if path.lower().endswith(end)), 1.0)
            for path, size in zip(paths, sizes, strict=True)
        )
    )
