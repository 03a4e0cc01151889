"""VideoFrameExtractionStage: small frames of whole videos, for finding cuts."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from tamis._lazy import np
from tamis.errors import UsageError, check_choice
from tamis.stages.video.video_stage import VideoStage, only_default
from tamis.stores.urls import path_of
from tamis.tasks import DocumentBatch
from tamis.tasks.video import VideoTask
from tamis.video import memory_needed
from tamis.video.decoding import Frames, check_shows
from tamis.video.facts import read_facts

_DECODERS = ("pynvc", "ffmpeg_cpu", "ffmpeg_gpu")


def get_frames_from_ffmpeg(
    video_file: str | os.PathLike[str], width: int, height: int, use_gpu: bool = False
) -> np.ndarray[Any, Any]:
    """Decode all frames of a video, scaled: uint8 [frames, height, width, 3].

    Memory for them is reserved before any frame is decoded.
    """
    if use_gpu:
        raise UsageError("get_frames_from_ffmpeg: videos are decoded on the CPU; leave use_gpu out")
    path = os.fspath(video_file)
    n = read_facts(path).n_frames
    memory_needed.reserve_frames(n, width, height)
    out = np.empty((n, height, width, 3), np.uint8)
    at = 0
    for _, frame in Frames(path):
        if at == n:
            break
        out[at] = frame.reformat(width=width, height=height, format="rgb24", interpolation="BICUBIC").to_ndarray()
        at += 1
    return out[:at]


@dataclass(repr=False)
class VideoFrameExtractionStage(VideoStage):
    """Before TransNetV2: videos of which nothing can be decoded go to quarantine here.

    Frames of a video are not handed from stage to stage (an hour is 420 MB of them): the stage that finds cuts decodes
    them as it goes. By hand, on a VideoTask, they are put into `frame_array`, as `output_hw` (height, width) says.
    Videos are decoded on the CPU whatever `decoder_mode` names.
    """

    output_hw: tuple[int, int] = (27, 48)
    pyncv_batch_size: int = 64
    decoder_mode: str = "pynvc"
    verbose: bool = False
    name: str = "video_frame_extraction"
    ray_data_num_cpus: float | None = None
    columns_in = ("path",)

    def __post_init__(self) -> None:
        only_default(
            self.name, pyncv_batch_size=(self.pyncv_batch_size, 64), ray_data_num_cpus=(self.ray_data_num_cpus, None)
        )
        check_choice(f"{self.name}: decoder_mode", self.decoder_mode, _DECODERS)
        if len(self.output_hw) != 2 or min(self.output_hw) < 1:
            raise UsageError(f"{self.name}: output_hw must be (height, width), got {self.output_hw!r}")

    def process_rows(self, batch: DocumentBatch) -> DocumentBatch:
        return self._of_each(batch, [map(path_of, batch.values("path"))], check_shows)[0]

    def _by_hand(self, task: VideoTask) -> VideoTask:
        height, width = self.output_hw
        task = super()._by_hand(task)
        task.data.frame_array = get_frames_from_ffmpeg(task.data.input_path, width, height)
        self._say(f"{len(task.data.frame_array)} frames of {task.data.input_path}")
        return task
