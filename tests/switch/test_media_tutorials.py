"""Images curated and deduplicated, videos split, as the tutorials do it; small models of the real architectures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tamis import InProcessExecutor
from tamis.pipeline import Pipeline
from tamis.stages.deduplication.semantic import SemanticDeduplicationWorkflow
from tamis.stages.file_partitioning import FilePartitioningStage
from tamis.stages.image.deduplication.removal import ImageDuplicatesRemovalStage
from tamis.stages.image.embedders.clip_embedder import ImageEmbeddingStage
from tamis.stages.image.filters.aesthetic_filter import ImageAestheticFilterStage
from tamis.stages.image.filters.nsfw_filter import ImageNSFWFilterStage
from tamis.stages.image.io.convert import ConvertImageBatchToDocumentBatchStage
from tamis.stages.image.io.image_reader import ImageReaderStage
from tamis.stages.image.io.image_writer import ImageWriterStage
from tamis.stages.text.io.writer.parquet import ParquetWriter
from tamis.stages.video.clipping.clip_extraction_stages import ClipTranscodingStage, FixedStrideExtractorStage
from tamis.stages.video.clipping.clip_frame_extraction import ClipFrameExtractionStage
from tamis.stages.video.filtering.clip_aesthetic_filter import ClipAestheticFilterStage
from tamis.stages.video.filtering.motion_filter import MotionFilterStage, MotionVectorDecodeStage
from tamis.stages.video.io.clip_writer import ClipWriterStage
from tamis.stages.video.io.video_reader import VideoReader
from tamis.utils.decoder_utils import FrameExtractionPolicy, FramePurpose
from tests.support import small_clip
from tests.support.optional import optional
from tests.support.sample_images import jpeg, members_of, tar
from tests.support.sample_videos import library, make_video

optional("torch", reason="the extra `models` is not installed")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(small_clip.models(tmp_path_factory.mktemp("models")))


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two tar files; the second has two images of the first again."""
    folder = tmp_path_factory.mktemp("webdataset")
    tar(folder / "00000.tar", {f"{i:06d}.jpg": jpeg(i, 64, 48) for i in range(5)})
    tar(folder / "00001.tar", {f"{i:06d}.jpg": jpeg(i - 6 if i >= 8 else i, 64, 48) for i in range(5, 10)})
    return folder


def images(archives: Path) -> list[Any]:
    return [
        FilePartitioningStage(file_paths=str(archives), files_per_partition=1, file_extensions=[".tar"]),
        ImageReaderStage(dali_batch_size=4, verbose=False, num_threads=16, num_gpus_per_worker=0.25),
    ]


def written(output: Path) -> list[str]:
    return sorted(name for path in output.rglob("*.tar") for name in members_of(path) if name.endswith(".jpg"))


def test_images_are_curated(archives: Path, models: str, tmp_path: Path) -> None:
    pipeline = Pipeline(name="image_curation", description="Curate images with embeddings and quality scoring")
    shared = {"model_dir": models, "num_gpus_per_worker": 0.25, "verbose": False}
    stages = [
        *images(archives),
        ImageEmbeddingStage(model_inference_batch_size=32, remove_image_data=False, **shared),
        ImageAestheticFilterStage(model_inference_batch_size=32, score_threshold=-100.0, **shared),
        ImageNSFWFilterStage(model_inference_batch_size=32, score_threshold=1.1, **shared),
        ImageWriterStage(str(tmp_path / "out"), images_per_tar=4, remove_image_data=True, verbose=False),
    ]
    for stage in stages:
        pipeline.add_stage(stage)
    assert "image_curation" in pipeline.describe()
    pipeline.run(InProcessExecutor(), progress=False)
    assert len(written(tmp_path / "out")) == 10
    rows = [row for path in sorted((tmp_path / "out").rglob("*.parquet")) for row in pq.read_table(path).to_pylist()]
    assert len({round(row["aesthetic_score"], 5) for row in rows}) == 8
    assert all(0 <= row["nsfw_score"] <= 1 for row in rows)


def test_images_are_deduplicated(archives: Path, models: str, tmp_path: Path) -> None:
    embeddings, removal, output = (str(tmp_path / name) for name in ("embeddings", "removal", "out"))
    embed = [
        *images(archives),
        ImageEmbeddingStage(model_dir=models, num_gpus_per_worker=0.25, model_inference_batch_size=32, verbose=False),
        ConvertImageBatchToDocumentBatchStage(fields=["image_id", "embedding"]),
        ParquetWriter(path=embeddings),
    ]
    Pipeline("image_curation", stages=embed).run(InProcessExecutor(), progress=False)
    workflow = SemanticDeduplicationWorkflow(
        input_path=embeddings,
        output_path=removal,
        id_field="image_id",
        embedding_field="embedding",
        n_clusters=2,
        eps=1e-6,
        read_kwargs={"storage_options": {}},
        write_kwargs={"storage_options": {}},
        verbose=False,
    )
    assert workflow.run(InProcessExecutor()).get_metadata("num_duplicates") == 2
    remove = ImageDuplicatesRemovalStage(removal + "/duplicates", duplicate_id_field="id", verbose=False)
    writer = ImageWriterStage(output_dir=output, remove_image_data=True, verbose=False)
    stages = [*images(archives), remove, writer]
    Pipeline("image_deduplication", stages=stages).run(InProcessExecutor(), progress=False)
    assert len(written(Path(output))) == 8


def test_videos_are_split_into_clips(models: str, tmp_path: Path) -> None:
    library()
    videos, output = tmp_path / "videos", tmp_path / "out"
    videos.mkdir()
    make_video(videos / "a.mp4", 72, size=(320, 256))
    make_video(videos / "b.mp4", 48, size=(320, 256))
    pipeline = Pipeline(name="video_splitting", description="Split videos into clips")
    for stage in (
        VideoReader(input_video_path=str(videos), video_limit=None, verbose=False),
        FixedStrideExtractorStage(clip_len_s=1.0, clip_stride_s=1.0, min_clip_length_s=0.5, limit_clips=0),
        ClipTranscodingStage(
            num_cpus_per_worker=1.0, encoder="libx264", encoder_threads=1, encode_batch_size=16, use_hwaccel=False,
            use_input_bit_rate=False, num_clips_per_chunk=32, verbose=False,
        ),
        MotionVectorDecodeStage(target_fps=2.0, target_duration_ratio=0.5, num_cpus_per_worker=1.0),
        MotionFilterStage(
            score_only=True, global_mean_threshold=0.00098, per_patch_min_256_threshold=0.000001,
            num_gpus_per_worker=0, motion_filter_batch_size=64, verbose=False,
        ),
        ClipFrameExtractionStage(
            extraction_policies=(FrameExtractionPolicy.sequence,), extract_purposes=[FramePurpose.AESTHETICS],
            target_res=(-1, -1), verbose=False,
        ),
        ClipAestheticFilterStage(
            model_dir=models, score_threshold=-1e9, reduction="min", num_gpus_per_worker=0.25, verbose=False
        ),
        ClipWriterStage(
            output_path=str(output), input_path=str(videos), upload_clips=True, dry_run=False,
            generate_embeddings=False, generate_previews=False, generate_captions=False, verbose=False,
        ),
    ):  # fmt: skip
        pipeline.add_stage(stage)
    pipeline.run(InProcessExecutor(), progress=False)
    assert len(list((output / "clips").rglob("*.mp4"))) == 5
    metas = [json.loads(path.read_text()) for path in (output / "metas").rglob("*.json")]
    spans = sorted((Path(meta["path"]).name, meta["start_s"], meta["end_s"]) for meta in metas)
    assert spans == [("a.mp4", i, i + 1) for i in range(3)] + [("b.mp4", i, i + 1) for i in range(2)]
    assert all(meta["motion_score_global_mean"] >= 0 and "aesthetic_score" in meta for meta in metas)
