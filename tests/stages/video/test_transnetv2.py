"""Splitting at cuts: the network's weights, its windows, and scenes from end to end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from tamis import InProcessExecutor, Pipeline
from tamis.errors import UsageError
from tamis.stages.video.clipping.transnetv2_extraction import TransNetV2ClipExtractionStage
from tamis.stages.video.clipping.video_frame_extraction import VideoFrameExtractionStage, get_frames_from_ffmpeg
from tamis.stages.video.io.clip_writer import ClipWriterStage
from tamis.stages.video.io.video_reader import VideoReader
from tamis.stages.video.models import transnetv2
from tamis.tasks import Video, VideoTask
from tests.support.optional import optional
from tests.support.sample_videos import library, make_video, scenes

library()
torch = optional("torch")


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random weights in a file like the public one."""
    folder = tmp_path_factory.mktemp("models")
    torch.manual_seed(0)
    place = folder / "Sn4kehead/TransNetV2"
    place.mkdir(parents=True)
    torch.save(transnetv2.network().state_dict(), place / transnetv2.WEIGHTS)
    return folder


@pytest.fixture(scope="module")
def video(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cuts")
    make_video(folder / "a.mp4", 130, draw=scenes([40, 100]))
    return folder


class SeesCuts:
    """In the place of the network: a transition where a frame differs much from the one before it."""

    def __call__(self, frames: Any) -> Any:
        pixels = frames.float()
        change = (pixels[:, 1:] - pixels[:, :-1]).abs().mean(dim=(2, 3, 4)) > 10
        return torch.nn.functional.pad(change.float(), (1, 0))

    def to(self, kind: str) -> SeesCuts:
        return self


def test_names_and_shapes_are_those_of_the_public_file() -> None:
    made = transnetv2.network().state_dict()
    shapes = {name: tuple(value.shape) for name, value in made.items()}
    assert len(shapes) == 90
    assert sum(int(np.prod(s)) for s in shapes.values()) == 7_618_056
    assert shapes["SDDCNN.0.DDCNN.0.Conv3D_8.layers.0.weight"] == (32, 3, 1, 3, 3)
    assert shapes["SDDCNN.2.DDCNN.1.Conv3D_1.layers.1.weight"] == (64, 128, 3, 1, 1)
    assert shapes["SDDCNN.1.DDCNN.0.bn.running_var"] == (128,)
    assert (shapes["frame_sim_layer.projection.weight"], shapes["frame_sim_layer.fc.weight"]) == (
        (128, 448),
        (128, 101),
    )
    assert (shapes["color_hist_layer.fc.weight"], shapes["fc1.weight"]) == ((128, 101), (1024, 4864))
    assert shapes["cls_layer1.weight"] == shapes["cls_layer2.weight"] == (1, 1024)


def test_weights_are_loaded_strictly_and_run_nothing(weights: Path, tmp_path: Path) -> None:
    made = transnetv2.load_weights(weights / "Sn4kehead/TransNetV2" / transnetv2.WEIGHTS)
    frames = torch.from_numpy(np.random.default_rng(0).integers(0, 255, (1, 20, 27, 48, 3), np.uint8))
    with torch.inference_mode():
        told = made(frames)
    assert told.shape == (1, 20)
    assert ((told > 0) & (told < 1)).all()
    few = made.state_dict()
    del few["fc1.bias"]
    torch.save(few, tmp_path / "few.pth")
    with pytest.raises(UsageError, match="no weights of TransNetV2"):
        transnetv2.load_weights(tmp_path / "few.pth")
    torch.save({"x": print}, tmp_path / "code.pth")
    with pytest.raises(UsageError, match="holds no plain weights"):
        transnetv2.load_weights(tmp_path / "code.pth")
    with pytest.raises(UsageError, match="there is neither"):
        TransNetV2ClipExtractionStage(str(tmp_path)).setup_on_node()


@pytest.mark.parametrize("n", [1, 25, 50, 51, 75, 76, 100, 149, 150, 151, 230])
def test_windows_give_every_frame_once_with_its_neighbours(n: int) -> None:
    frames = [np.array([i]) for i in range(n)]
    seen = []
    for window, count in transnetv2.windows(iter(frames)):
        assert len(window) == 100
        for k in range(count):
            at = len(seen)
            around = [min(max(at + d, 0), n - 1) for d in range(-25, 25)]
            assert window[k : k + 50, 0].tolist() == around
            seen.append(int(window[25 + k, 0]))
    assert seen == list(range(n))


def test_cuts_become_clips(video: Path, weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transnetv2, "load_weights", lambda path: SeesCuts())
    split = TransNetV2ClipExtractionStage(str(weights), min_length_s=0.5, max_length_s=1.5, crop_s=None)
    writer = ClipWriterStage(str(tmp_path / "out"), str(video), True, False, False, False, False)
    made = Pipeline("cuts", stages=[VideoReader(str(video)), VideoFrameExtractionStage(), split, writer])
    made.execute(InProcessExecutor())
    rows = [r for p in (tmp_path / "out").glob("*.parquet") for r in pq.read_table(p).to_pylist()]
    spans = sorted((round(r["first_frame"]), round(r["end_frame"])) for r in rows)
    assert spans == [
        (0, 36),
        (41, 77),
        (77, 100),
        (101, 130),
    ]  # 40 and 100 are transitions; pieces of 1.5 s; 4 frames are too short


def test_by_hand_and_modes(video: Path, weights: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transnetv2, "load_weights", lambda path: SeesCuts())
    task: Any = VideoFrameExtractionStage().process(VideoTask("d", Video(video / "a.mp4")))
    assert task.data.frame_array.shape == (130, 27, 48, 3)
    made = TransNetV2ClipExtractionStage(
        str(weights), min_length_s=0.5, max_length_s=1.0, max_length_mode="truncate", crop_s=0.1, limit_clips=2
    )
    task = made.process(task)
    assert [tuple(round(s, 2) for s in c.span) for c in task.data.clips] == [(0.1, 0.9), (1.81, 2.61)]
    assert get_frames_from_ffmpeg(video / "a.mp4", 20, 10).shape == (130, 10, 20, 3)


def test_a_video_without_cuts(tmp_path: Path, weights: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transnetv2, "load_weights", lambda path: SeesCuts())
    video = make_video(tmp_path / "a.mp4", 60, draw=scenes([]))
    whole = TransNetV2ClipExtractionStage(str(weights), crop_s=None).process(VideoTask("d", Video(video)))
    assert [c.span for c in whole.data.clips] == [(0.0, 2.5)]
    none = TransNetV2ClipExtractionStage(str(weights), entire_scene_as_clip=False).process(VideoTask("d", Video(video)))
    assert none.data.clips == []
    assert list(none.data.errors) == ["transnetv2_clip_extraction"]


def test_mistakes_are_reported() -> None:
    for wrong in ({"max_length_mode": "x"}, {"threshold": 1.5}, {"max_length_s": 1.0}):
        with pytest.raises(UsageError, match="transnetv2_clip_extraction"):
            TransNetV2ClipExtractionStage(**wrong)
    with pytest.raises(UsageError, match="decoder_mode"):
        VideoFrameExtractionStage(decoder_mode="x")
