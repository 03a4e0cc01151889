"""The measures of motion as functions, under the names of NeMo Curator.

`video`: the path of a video.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tamis._lazy import np
from tamis.errors import UsageError
from tamis.video.motion import PATCH, MotionMap, n_examined_frames
from tamis.video.vectors import sampled_vectors


class VideoResolutionTooSmallError(Exception):
    """A side of the frame is below 256: no patch of the second score fits."""


@dataclass
class MotionInfo:
    """The motion scores of a clip."""

    is_small_motion: bool
    per_patch_min_256: Any
    global_mean: Any


@dataclass
class DecodedData:
    """Vectors of some frames, each an array in FFmpeg's layout, and (height, width) of the frames."""

    frames: list[Any]
    frame_size: tuple[int, int]

    def get_major_size(self) -> int:
        return sum(int(f.nbytes) for f in self.frames)


def motion_vectors_to_flowfield(
    mvs: np.ndarray[Any, Any], size: tuple[int, int], flow: np.ndarray[Any, Any] | None = None
) -> np.ndarray[Any, Any]:
    """Return the motion of every pixel, (height, width, 2): dx and dy in pixels, 0 where no block is.

    `flow`: an array to be filled.
    """
    height, width = size
    out = np.zeros((height, width, 2), np.float32) if flow is None else flow
    out[...] = 0
    for v in mvs:
        left, top = int(v["dst_x"]) - int(v["w"]) // 2, int(v["dst_y"]) - int(v["h"]) // 2
        scale = max(1, int(v["motion_scale"]))
        out[max(0, top) : max(0, top + int(v["h"])), max(0, left) : max(0, left + int(v["w"]))] = (
            v["motion_x"] / scale,
            v["motion_y"] / scale,
        )
    return out


def decode_for_motion(
    video: str | os.PathLike[str], thread_count: int = 4, target_fps: float = 2.0, target_duration_ratio: float = 0.5
) -> DecodedData:
    """Decode the motion vectors of a video or clip.

    Videos are decoded in one thread whatever `thread_count` says: vectors do not depend on it.
    """
    from tamis.video.facts import read_facts

    if thread_count < 1:
        raise UsageError(f"decode_for_motion: thread_count must be at least 1, got {thread_count}")
    facts = read_facts(os.fspath(video))
    if min(facts.width, facts.height) < PATCH:
        raise VideoResolutionTooSmallError(
            f"{os.fspath(video)}: {facts.width} x {facts.height}; both sides must be at least {PATCH}"
        )
    n_frames = n_examined_frames(facts.duration_s, target_fps, target_duration_ratio)
    frames, size = [], (facts.height, facts.width)
    for width, height, vectors in sampled_vectors(
        os.fspath(video), facts.codec, facts.fps, 0.0, facts.duration_s, target_fps
    ):
        size = height, width
        if vectors is not None:
            frames.append(vectors)
        if len(frames) == n_frames:
            break
    return DecodedData(frames, size)


def check_if_small_motion(
    mv_list: Sequence[np.ndarray[Any, Any]],
    frame_shape: tuple[int, ...],
    global_mean_threshold: float = 0.00098,
    per_patch_min_256_threshold: float = 1e-06,
    use_gpu: bool = False,
    batch_size: int = 256,
) -> MotionInfo:
    """Determine whether a clip hardly moves.

    The sum runs over one frame at a time, so `batch_size` bounds nothing, and there is nothing for a GPU.
    """
    if use_gpu or batch_size < 1:
        raise UsageError(
            "check_if_small_motion: use_gpu must be False and batch_size at least 1; vectors are summed frame by frame"
        )
    motion_map = MotionMap(frame_shape[1], frame_shape[0])
    for vectors in mv_list:
        motion_map.add(vectors)
    motion = motion_map.motion()
    small = motion.global_mean < global_mean_threshold or motion.per_patch_min_256 < per_patch_min_256_threshold
    return MotionInfo(small, motion.per_patch_min_256, motion.global_mean)
