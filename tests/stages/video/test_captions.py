"""Captions, enhanced captions and previews, with small models that are made here."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from tamis import InProcessExecutor, Pipeline
from tamis.cli.jobs.jobs import Consent
from tamis.cli.media.video_job import VideoJob, VideoOptions
from tamis.errors import BudgetError, UsageError
from tamis.stages.text.models import folder as folders
from tamis.stages.video.caption.caption_enhancement import CaptionEnhancementStage
from tamis.stages.video.caption.caption_generation import CaptionGenerationStage
from tamis.stages.video.caption.caption_preparation import CaptionPreparationStage
from tamis.stages.video.clipping.clip_extraction_stages import FixedStrideExtractorStage
from tamis.stages.video.io.clip_writer import ClipWriterStage
from tamis.stages.video.io.video_reader import VideoReader
from tamis.stages.video.models.captioner import patches_of
from tamis.stages.video.preview.preview import PreviewStage
from tamis.tasks import Video, VideoTask
from tamis.video.previews import thumbnail
from tamis.video.windows import compute_windows, smart_nframes
from tests.support import small_chat
from tests.support.optional import optional
from tests.support.sample_videos import library, make_video

library()
optional("transformers", reason="the extra `models` is not installed")


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("videos")
    make_video(folder / "a.mp4", 48)
    make_video(folder / "turned.mp4", 24, rotation=90)
    return folder


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch", reason="the extra `models` is not installed")
    folder = tmp_path_factory.mktemp("models")
    small_chat.qwen25_vl(folder / "qwen")
    small_chat.llava(folder / "llava")
    small_chat.llama(folder / "llama")
    return folder


def test_from_videos_to_captions(videos: Path, models: Path, tmp_path: Path) -> None:
    stages = [
        FixedStrideExtractorStage(1.0, 1.0, 0.5, 0),
        CaptionPreparationStage(prompt_text="what is here", sampling_fps=4.0, window_size=12, remainder_threshold=6),
        CaptionGenerationStage(model_variant=str(models / "qwen"), max_output_tokens=6, caption_batch_size=3),
        CaptionEnhancementStage(model_variant=str(models / "llama"), prompt_text="a video", max_output_tokens=4),
        PreviewStage(target_fps=4.0, target_height=24),
    ]
    writer = ClipWriterStage(
        str(tmp_path / "out"), str(videos), True, False, False, True, True, caption_models=["qwen"]
    )
    result = Pipeline("words", stages=[VideoReader(str(videos)), *stages, writer]).execute(InProcessExecutor())
    assert (result.status, result.ledger.written.n) == ("finished", 3)
    rows = [r for p in sorted((tmp_path / "out").glob("*.parquet")) for r in pq.read_table(p).to_pylist()]
    for row in rows:
        assert [(w["start_frame"], w["end_frame"]) for w in row["caption_windows"]] == [(0, 11), (12, 23)]
        assert len(row["captions"]) == len(row["enhanced_captions"]) == 2
        assert all(isinstance(text, str) and text for text in row["captions"])
        assert "preview" not in row
        meta = json.loads((tmp_path / "out/metas/v0" / f"{row['id']}.json").read_text())
        assert [w["qwen_caption"] for w in meta["windows"]] == row["captions"]
        (webp,) = (tmp_path / "out/previews" / row["id"]).iterdir()
        assert webp.read_bytes()[8:12] == b"WEBP"


def test_a_model_that_sees_frames_and_a_second_look(videos: Path, models: Path) -> None:
    task: Any = VideoTask("d", Video(videos / "turned.mp4"))
    for stage in (
        FixedStrideExtractorStage(1.0, 1.0, 0.5, 0),
        CaptionPreparationStage(prompt_variant="av"),
        CaptionGenerationStage(model_variant=str(models / "llava"), max_output_tokens=5, generate_stage2_caption=True),
    ):
        task = stage.process(task)
    (clip,) = task.data.clips
    assert len(clip.row["captions"]) == 1
    assert clip.row["captions"][0]


def test_patches_are_those_of_the_library() -> None:
    from PIL import Image
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    frame = np.random.default_rng(0).integers(0, 255, (56, 84, 3), np.uint8)
    looks = Qwen2VLImageProcessorPil(min_pixels=1, max_pixels=10**9)
    told = looks(Image.fromarray(frame), return_tensors="np", do_resize=False)
    made, grid = patches_of(frame[None], 14, 2, 2, looks.image_mean, looks.image_std)
    assert grid == tuple(told["image_grid_thw"][0])
    np.testing.assert_allclose(made, told["pixel_values"], atol=1e-5)


def test_windows_and_frames() -> None:
    assert [(w.start, w.end) for w in compute_windows(600, 256, 128)] == [(0, 255), (256, 599)]
    assert [(w.start, w.end) for w in compute_windows(640, 256, 128)] == [(0, 255), (256, 511), (512, 639)]
    assert compute_windows(3) == []
    assert smart_nframes(2.0, 6000, 24.0) == 500
    assert smart_nframes(30.0, 4000, 24.0) == 768
    (window,) = CaptionPreparationStage().windows(10.0, 12.0, 24.0)
    assert window["times_s"] == pytest.approx([10.0, 10 + 16 / 24, 10 + 31 / 24, 10 + 47 / 24], abs=0.05)


def test_a_thumbnail(videos: Path) -> None:
    from PIL import Image

    assert Image.open(io.BytesIO(thumbnail(str(videos / "turned.mp4"), 0.5, longest=32))).size == (24, 32)


def test_mistakes_are_reported(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="prompt_variant must be one of default, av, av-surveillance"):
        CaptionPreparationStage(prompt_variant="x")
    with pytest.raises(UsageError, match="settings of vLLM, which is not installed"):
        CaptionGenerationStage(fp8=True)
    with pytest.raises(UsageError, match="there is no such folder"):
        CaptionGenerationStage(model_variant=str(tmp_path / "absent")).setup_on_node()
    with pytest.raises(UsageError, match="quality"):
        PreviewStage(quality=101)


def test_a_model_that_only_reads_is_refused(models: Path) -> None:
    with pytest.raises(UsageError, match="no model that answers about images"):
        CaptionGenerationStage(model_variant=str(models / "llama")).setup()


def test_the_stages_of_the_command(videos: Path, models: Path, tmp_path: Path) -> None:
    options = VideoOptions(
        preset="split+caption",
        splitting="transnetv2",
        min_motion=0.001,
        min_aesthetic=4.0,
        previews=True,
        caption_model=str(models / "qwen"),
    )
    recipe = VideoJob(str(videos), str(tmp_path / "out"), options).load(Consent())
    assert [type(stage).__name__ for stage in recipe.stages] == [
        "VideoReader",
        "VideoFrameExtractionStage",
        "TransNetV2ClipExtractionStage",
        "ClipTranscodingStage",
        "MotionVectorDecodeStage",
        "MotionFilterStage",
        "ClipAestheticFilterStage",
        "CaptionPreparationStage",
        "CaptionGenerationStage",
        "PreviewStage",
        "ClipWriterStage",
    ]


@pytest.mark.parametrize(
    ("kind", "model"), [(CaptionGenerationStage, "qwen"), (CaptionEnhancementStage, "llama")], ids=["new", "anew"]
)
def test_a_budget_below_the_weights_is_refused_before_the_run(
    videos: Path, models: Path, tmp_path: Path, kind: Any, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nothing is downloaded to find out: what is not on this machine yet is not known."""
    stage = kind(model_variant=str(models / model))
    weights = sum(p.stat().st_size for p in (models / model).glob("*.safetensors"))
    assert stage.least_bytes() == weights > 0
    monkeypatch.setattr(folders, "fetch", lambda *_, **__: pytest.fail("the hub was asked"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    assert stage.least_bytes() == weights
    assert kind(model_dir=str(tmp_path / "none")).least_bytes() == 0
    monkeypatch.setattr(folders.ModelFolder, "n_bytes", 14_000_000_000)
    writer = ClipWriterStage(str(tmp_path / "out"), str(videos), True, False, False, False, True)
    stages = [VideoReader(str(videos)), stage, writer]
    with pytest.raises(BudgetError, match=rf"loading stage '{stage.name}' alone takes 14"):
        Pipeline("words", stages=stages).execute(InProcessExecutor(), memory="2GB")


def test_the_recipe_that_ships(videos: Path, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From videos to captions by name, with small models.

    The network that finds cuts sees none, and small frames cannot be judged.
    """
    from tamis.recipe.load import load_recipe
    from tamis.recipe.step_names import PRESETS
    from tamis.stages.video.filtering import motion_filter
    from tamis.stages.video.models import transnetv2

    torch = pytest.importorskip("torch")
    made = transnetv2.network().state_dict()
    torch.save({**made, "cls_layer1.bias": torch.tensor([-50.0])}, tmp_path / transnetv2.WEIGHTS)
    monkeypatch.setattr(motion_filter.MotionFilterStage, "process_rows", lambda stage, batch: batch)
    changes = {
        "input": str(videos / "a.mp4"),
        "output": str(tmp_path / "out"),
        "model_folder": str(tmp_path),
        "min_clip_seconds": "0.5",
        "caption_model": str(models / "qwen"),
        "caption_tokens": "4",
    }
    stages: Any = load_recipe(PRESETS / "video-caption.yaml", overrides=changes).stages
    result = Pipeline("words", stages=stages).execute(InProcessExecutor())
    assert (result.status, result.ledger.written.n) == ("finished", 1)
    (row,) = [r for p in (tmp_path / "out").glob("*.parquet") for r in pq.read_table(p).to_pylist()]
    assert (row["start_s"], row["end_s"], len(row["captions"])) == (0.5, 1.5, 1)
