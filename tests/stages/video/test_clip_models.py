"""Frames of clips, the aesthetic filter and embeddings, with small models that are made here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from tamis import InProcessExecutor, Pipeline
from tamis.errors import UsageError
from tamis.stages.video.clipping.clip_extraction_stages import FixedStrideExtractorStage
from tamis.stages.video.clipping.clip_frame_extraction import ClipFrameExtractionStage
from tamis.stages.video.embedding.cosmos_embed1 import (
    CosmosEmbed1EmbeddingStage,
    CosmosEmbed1FrameCreationStage,
    eight_times,
)
from tamis.stages.video.filtering.clip_aesthetic_filter import ClipAestheticFilterStage
from tamis.stages.video.io.clip_writer import ClipWriterStage
from tamis.stages.video.io.video_reader import VideoReader
from tamis.tasks import Video, VideoTask
from tamis.video.decoding import Frames
from tamis.video.sampling import FrameExtractionPolicy, FramePurpose, rgb, shown_size, square
from tests.support import small_clip
from tests.support.optional import optional
from tests.support.sample_videos import library, make_video

library()
optional("torch")
_PROCESSOR = """
import numpy, torch
class Processor:
    @classmethod
    def from_pretrained(cls, folder, **kwargs):
        assert kwargs["local_files_only"]
        return cls()
    def __call__(self, videos=None, text=None, return_tensors="pt"):
        if text is not None:
            return {"input_ids": torch.tensor([[len(t)] for t in text])}
        assert videos.dtype == numpy.uint8 and videos.shape[1:3] == (8, 3)
        return {"videos": torch.from_numpy(videos).float() / 255}
"""
_MODEL = """
import torch
from types import SimpleNamespace
class Model(torch.nn.Module):
    @classmethod
    def from_pretrained(cls, folder, **kwargs):
        assert kwargs["local_files_only"] and kwargs["dtype"] == torch.float32
        return cls()
    def get_video_embeddings(self, videos):
        means = videos.mean(dim=(1, 2, 3, 4))
        return SimpleNamespace(visual_proj=torch.stack([means, torch.ones(len(videos))], 1).repeat(1, 4))
    def get_text_embeddings(self, input_ids):
        return SimpleNamespace(text_proj=torch.cat([input_ids.float(), torch.ones(len(input_ids), 1)], 1).repeat(1, 4))
"""


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("videos")
    make_video(folder / "a.mp4", 48)
    return folder


@pytest.fixture(scope="module")
def cosmos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a folder like that of the model: code, a configuration with the hub's id, weights."""
    from safetensors.numpy import save_file

    folder = tmp_path_factory.mktemp("models") / "nvidia/Cosmos-Embed1-224p"
    folder.mkdir(parents=True)
    (folder / "stub_processor.py").write_text(_PROCESSOR)
    (folder / "stub_model.py").write_text(_MODEL)
    named = {"AutoModel": "nvidia/Cosmos-Embed1-224p--stub_model.Model"}
    (folder / "config.json").write_text(json.dumps({"model_type": "cosmos", "auto_map": named}))
    (folder / "processor_config.json").write_text(
        json.dumps({"auto_map": {"AutoProcessor": "nvidia/Cosmos-Embed1-224p--stub_processor.Processor"}})
    )
    save_file({"x": np.zeros(1, np.float32)}, folder / "model.safetensors")
    return folder.parents[1]


def clips(video: Path) -> Any:
    return FixedStrideExtractorStage(1.0, 1.0, 0.5, 0).process(VideoTask("d", Video(video)))


def test_frames_are_chosen_and_by_hand_decoded(videos: Path) -> None:
    stage = ClipFrameExtractionStage(target_fps=[2, 4], target_res=(24, 32))
    task = stage.process(clips(videos / "a.mp4"))
    first = task.data.clips[1]
    assert first.row["FrameExtractionPolicy.sequence-2000"] == [1.0, 1.5]
    assert first.extracted_frames["FrameExtractionPolicy.sequence-4000"].shape == (4, 24, 32, 3)
    assert ClipFrameExtractionStage(extract_purposes=[FramePurpose.AESTHETICS, FramePurpose.EMBEDDINGS]).rates == [
        1.0,
        2.0,
    ]
    others = ClipFrameExtractionStage([FrameExtractionPolicy.first, "middle", "last"], target_fps=1.0).process(
        clips(videos / "a.mp4")
    )
    shades = {n: int(f[0, 0, -1, 0]) for n, f in others.data.clips[0].extracted_frames.items()}
    assert (
        shades["FrameExtractionPolicy.first-1000"]
        < shades["FrameExtractionPolicy.middle-1000"]
        < shades["FrameExtractionPolicy.last-1000"]
    )
    with pytest.raises(UsageError, match="expected one of first, middle, last, sequence"):
        ClipFrameExtractionStage(["none"])
    with pytest.raises(UsageError, match="target_fps"):
        ClipFrameExtractionStage(target_fps=0)


def test_frames_are_upright_and_in_their_true_shape(tmp_path: Path) -> None:
    def left_bright(i: int, width: int, height: int) -> np.ndarray[Any, Any]:
        frame = np.zeros((height, width, 3), np.uint8)
        frame[:, : width // 2] = 255
        return frame

    turned = next(iter(Frames(make_video(tmp_path / "t.mp4", 3, rotation=90, draw=left_bright))))[1]
    upright = rgb(turned, *shown_size(turned, 1.0))
    assert upright.shape == (64, 48, 3)  # 64 x 48, turned against the clock: what was left is below
    assert upright[-8:].mean() > 200
    assert upright[:8].mean() < 50
    wide = next(iter(Frames(make_video(tmp_path / "w.mp4", 3, draw=left_bright))))[1]
    assert shown_size(wide, 2.0) == (128, 48)
    assert square(wide, 32, pixel_aspect=2.0).shape == (32, 32, 3)


def test_the_aesthetic_filter_in_a_pipeline(videos: Path, tmp_path: Path) -> None:
    models = small_clip.models(tmp_path / "models")
    measured = ClipAestheticFilterStage(str(models), score_threshold=-1e9).process(clips(videos / "a.mp4"))
    scores = [c.aesthetic_score for c in measured.data.clips]
    assert len(set(scores)) == 2
    middle = sum(scores) / 2
    stages = [
        FixedStrideExtractorStage(1.0, 1.0, 0.5, 0),
        ClipFrameExtractionStage(target_fps=1),
        ClipAestheticFilterStage(str(models), middle),
    ]
    writer = ClipWriterStage(str(tmp_path / "out"), str(videos), True, False, False, False, False)
    result = Pipeline("looks", stages=[VideoReader(str(videos)), *stages, writer]).execute(InProcessExecutor())
    (row,) = [r for p in (tmp_path / "out").glob("*.parquet") for r in pq.read_table(p).to_pylist()]
    assert row["aesthetic_score"] == pytest.approx(max(scores))
    assert {k: v.n for k, v in result.ledger.stages[2].dropped.items()} == {"clip_aesthetic_filter": 1}
    with pytest.raises(UsageError, match="reduction"):
        ClipAestheticFilterStage(reduction="max")
    with pytest.raises(UsageError, match="no folder"):
        ClipAestheticFilterStage(str(tmp_path / "absent")).setup_on_node()


def test_embeddings_by_the_models_own_code_only_where_it_is_allowed(videos: Path, cosmos: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="trust_remote_code=True"):
        CosmosEmbed1EmbeddingStage(str(cosmos), "224p").setup_on_node()
    embed = CosmosEmbed1EmbeddingStage(
        str(cosmos), "224p", texts_to_verify=["a", "a long text"], trust_remote_code=True
    )
    stages = [FixedStrideExtractorStage(1.0, 1.0, 0.5, 0), CosmosEmbed1FrameCreationStage(str(cosmos), "224p"), embed]
    writer = ClipWriterStage(str(tmp_path / "out"), str(videos), True, False, True, False, False)
    Pipeline("vectors", stages=[VideoReader(str(videos)), *stages, writer]).execute(InProcessExecutor())
    rows = [r for p in (tmp_path / "out").glob("*.parquet") for r in pq.read_table(p).to_pylist()]
    assert len(rows) == 2
    for row in rows:
        assert np.linalg.norm(row["cosmos_embed1_embedding"]) == pytest.approx(1.0)
        assert row["cosmos_embed1_text_match"] in ("a", "a long text")
        assert 0 < row["cosmos_embed1_text_score"] <= 1
        assert len(row["cosmos_embed1_times"]) == 8
    (vectors,) = (tmp_path / "out/ce1_embd_parquet").iterdir()
    assert pq.read_table(vectors).column_names == ["id", "embedding"]
    assert sorted(pq.read_table(vectors)["id"].to_pylist()) == sorted(r["id"] for r in rows)
    assert eight_times(0.0, 4.0, 2.0) == [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5]
    with pytest.raises(UsageError, match="variant"):
        CosmosEmbed1FrameCreationStage(variant="1p")
