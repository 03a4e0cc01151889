"""Windows of videos and the frames of each, under the names that users of the original import.

Videos are given by their path.
"""

from __future__ import annotations

import os
from typing import Any

from tamis._lazy import np
from tamis.errors import check_choice
from tamis.video import memory_needed
from tamis.video.decoding import Frames
from tamis.video.facts import read_facts
from tamis.video.sampling import rgb
from tamis.video.windows import (
    WindowFrameInfo,
    ceil_by_factor,
    compute_windows,
    fit_sides,
    floor_by_factor,
    round_by_factor,
    smart_nframes,
)

__all__ = [
    "WindowFrameInfo",
    "ceil_by_factor",
    "compute_windows",
    "fetch_video",
    "floor_by_factor",
    "read_video_cpu",
    "round_by_factor",
    "smart_nframes",
]
_FACTOR = 28
_LEAST, _MOST, _TOTAL = 128 * _FACTOR**2, 768 * _FACTOR**2, 24_576 * _FACTOR**2
_TYPES = ("float32", "float16", "uint8")


def read_video_cpu(
    video_path: str | os.PathLike[str], fps: float, num_frames_to_use: int, window_range: list[WindowFrameInfo]
) -> tuple[np.ndarray[Any, Any], list[int]]:
    """Read `fps` evenly spaced frames a second of each window.

    Return the frames, uint8 [n, 3, height, width], and the number of them in each window. Only the first
    `num_frames_to_use` frames of the video are used; 0 means all.
    """
    path = os.fspath(video_path)
    facts = read_facts(path)
    total = min(facts.n_frames, num_frames_to_use) if num_frames_to_use > 0 else facts.n_frames
    windows: list[list[int]] = []
    for window in window_range:
        end = min(window.end, total - 1)
        n = smart_nframes(fps, max(2, end - window.start + 1), facts.fps)
        windows.append([round(f) for f in np.linspace(window.start, end, n)])
    memory_needed.reserve_frames(sum(map(len, windows)), facts.width, facts.height)
    indices = {f for of in windows for f in of}
    decoded = {i: rgb(frame, facts.width, facts.height) for i, (_, frame) in enumerate(Frames(path)) if i in indices}
    last = decoded[max(decoded)]
    frames = np.stack([decoded.get(f, last) for of in windows for f in of])
    return np.ascontiguousarray(frames.transpose(0, 3, 1, 2)), [len(of) for of in windows]


def fetch_video(
    video_path: str | os.PathLike[str],
    sampling_fps: float = 2.0,
    window_range: list[WindowFrameInfo] | None = None,
    preprocess_dtype: str = "float32",
    num_frames_to_use: int = 0,
    flip_input: bool = False,
) -> tuple[np.ndarray[Any, Any], list[int]]:
    """Read frames as `read_video_cpu` does, scaled for Qwen's vision models; `flip_input`: turned upside down."""
    check_choice("fetch_video: preprocess_dtype", preprocess_dtype, _TYPES)
    facts = read_facts(os.fspath(video_path))
    windows = window_range if window_range is not None else compute_windows(facts.n_frames, facts.n_frames)
    frames, counts = read_video_cpu(video_path, sampling_fps, num_frames_to_use, windows)
    most = int(max(min(_MOST, _TOTAL / max(1, len(frames)) * 2), _LEAST * 1.05))
    high, wide = fit_sides(frames.shape[2], frames.shape[3], _FACTOR, _LEAST, most)
    scaled = np.stack([_scaled(f, wide, high) for f in frames])
    if flip_input:
        scaled = scaled[:, :, ::-1, ::-1]
    return scaled.astype(preprocess_dtype), counts


def _scaled(frame: np.ndarray[Any, Any], width: int, height: int) -> np.ndarray[Any, Any]:
    from tamis.video.opening import library

    shown = library().VideoFrame.from_ndarray(np.ascontiguousarray(frame.transpose(1, 2, 0)), format="rgb24")
    scaled = shown.reformat(width=width, height=height, interpolation="BICUBIC").to_ndarray()
    turned: np.ndarray[Any, Any] = scaled.transpose(2, 0, 1)
    return turned
