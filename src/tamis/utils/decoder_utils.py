"""Decoding videos, under the names that users of the original import.

`data` and `video`: the path of a video, or its bytes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO, NamedTuple

from tamis._lazy import np
from tamis.errors import UsageError
from tamis.video import memory_needed
from tamis.video.decoding import Frames
from tamis.video.facts import read_facts
from tamis.video.opening import library, opened, video_stream
from tamis.video.sampling import FrameExtractionPolicy, FramePurpose, rgb, signature

__all__ = [
    "FrameExtractionPolicy", "FrameExtractionSignature", "FramePurpose", "Resolution", "SoftwareCodecMissingError",
    "VideoMetadata", "decode_video_cpu", "decode_video_cpu_frame_ids", "extract_frames", "extract_video_metadata",
    "find_closest_indices", "get_avg_frame_rate", "get_frame_count", "get_video_timestamps", "sample_closest",
    "save_stream_position",
]  # fmt: skip


class SoftwareCodecMissingError(Exception):
    """A codec that cannot be decoded here."""

    def __init__(self, message: str, codec: str | None = None) -> None:
        super().__init__(message)
        self.codec = codec


class Resolution(NamedTuple):
    """Sides of a frame."""

    height: int = 0
    width: int = 0


@dataclass
class VideoMetadata:
    """The metadata of a video."""

    height: int | None = None
    width: int | None = None
    fps: float | None = None
    num_frames: int | None = None
    video_codec: str | None = None
    pixel_format: str | None = None
    video_duration: float | None = None
    audio_codec: str | None = None
    bit_rate_k: int | None = None


@dataclass(frozen=True)
class FrameExtractionSignature:
    """A choice of frames."""

    extraction_policy: FrameExtractionPolicy
    target_fps: float

    def to_str(self) -> str:
        return signature(self.extraction_policy, self.target_fps)


def _source(data: Any) -> str | bytes:
    if isinstance(data, (bytes, bytearray, memoryview)):
        return bytes(data)
    if hasattr(data, "read"):
        with save_stream_position(data):
            return bytes(data.read())
    return str(os.fspath(data))


def _only_first(stream_idx: int, video_format: str | None, num_threads: int) -> None:
    if stream_idx or video_format is not None or num_threads < 1:
        raise UsageError(
            "decoding: the first video stream of any container is read; leave stream_idx and video_format out"
        )


@contextmanager
def save_stream_position(stream: BinaryIO) -> Iterator[BinaryIO]:
    """Restore the position of the stream at the end of the block, whatever is read inside."""
    at = stream.tell()
    try:
        yield stream
    finally:
        stream.seek(at)


def extract_video_metadata(video: Any) -> VideoMetadata:
    """Parse the metadata; raise VideoFault (a FormatError) for anything but a video."""
    facts = read_facts(_source(video))
    return VideoMetadata(
        facts.height,
        facts.width,
        facts.fps,
        facts.n_frames,
        facts.codec,
        facts.pixel_format,
        facts.duration_s,
        facts.audio_codec,
        facts.bit_rate_k,
    )


def get_video_timestamps(data: Any, stream_idx: int = 0, video_format: str | None = None) -> np.ndarray[Any, Any]:
    """Return the presentation time of each frame, in seconds, in order. Nothing is decoded."""
    _only_first(stream_idx, video_format, 1)
    with opened(_source(data)) as container:
        stream = video_stream(container)
        times = [p.pts for p in container.demux(stream) if p.pts is not None and p.size and not p.is_discard]
        return np.sort(np.array(times, np.float64)) * float(stream.time_base)


def get_frame_count(data: Any, stream_idx: int = 0, video_format: str | None = None) -> int:
    return len(get_video_timestamps(data, stream_idx, video_format))


def get_avg_frame_rate(data: Any, stream_idx: int = 0, video_format: str | None = None) -> float:
    _only_first(stream_idx, video_format, 1)
    return read_facts(_source(data)).fps


def find_closest_indices(src: np.ndarray[Any, Any], dst: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return for each value of `dst` the index of the nearest of `src` (ascending).

    If two are equally near, the earlier one is returned.

    >>> import numpy as np
    >>> find_closest_indices(np.array([0.0, 1.0, 2.0]), np.array([0.4, 1.5, 9.0])).tolist()
    [0, 1, 2]
    """
    right = np.clip(np.searchsorted(src, dst), 1, max(1, len(src) - 1))
    if len(src) == 1:
        return np.zeros(len(dst), np.int64)
    return np.where(np.abs(dst - src[right - 1]) <= np.abs(src[right] - dst), right - 1, right)


def sample_closest(
    src: np.ndarray[Any, Any],
    sample_rate: float,
    start: float | None = None,
    stop: float | None = None,
    endpoint: bool = True,
    dedup: bool = True,
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Sample the nearest of `src`, `sample_rate` times a second.

    Return indices into `src`, the number of repetitions of each, and the sample times.

    >>> import numpy as np
    >>> [a.tolist() for a in sample_closest(np.arange(5) / 4, 2.0)[:2]]
    [[0, 2, 4], [1, 1, 1]]
    """
    first, last = float(src[0] if start is None else start), float(src[-1] if stop is None else stop)
    times = np.arange(first, last + (1e-9 if endpoint else -1e-9), 1.0 / sample_rate)
    at = find_closest_indices(src, times)
    if not dedup:
        return at, np.ones(len(at), np.int64), times
    unique, counts = np.unique(at, return_counts=True)
    return unique, counts, times


def decode_video_cpu_frame_ids(
    data: Any,
    frame_ids: Sequence[int] | np.ndarray[Any, Any],
    counts: Sequence[int] | np.ndarray[Any, Any] | None = None,
    stream_idx: int = 0,
    video_format: str | None = None,
    num_threads: int = 1,
) -> np.ndarray[Any, Any]:
    """Decode the frames of these numbers (ascending), each repeated by `counts`: uint8 [n, height, width, 3].

    Memory is reserved first.
    """
    _only_first(stream_idx, video_format, num_threads)
    source = _source(data)
    facts = read_facts(source)
    times = np.ones(len(frame_ids), np.int64) if counts is None else np.asarray(counts)
    memory_needed.reserve_frames(int(times.sum()), facts.width, facts.height)
    ids = {int(f) for f in frame_ids}
    frames = {}
    for i, (_, frame) in enumerate(Frames(source)):
        if i in ids:
            frames[i] = rgb(frame, facts.width, facts.height)
        if i >= max(ids, default=-1):
            break
    missing = sorted(ids - frames.keys())
    if missing:
        raise UsageError(f"there is no frame {missing[0]}: {facts.n_frames} frames can be decoded")
    return np.stack([frames[int(f)] for f, n in zip(frame_ids, times, strict=True) for _ in range(int(n))])


def decode_video_cpu(
    data: Any,
    sample_rate_fps: float,
    timestamps: np.ndarray[Any, Any] | None = None,
    start: float | None = None,
    stop: float | None = None,
    endpoint: bool = True,
    stream_idx: int = 0,
    video_format: str | None = None,
    num_threads: int = 1,
) -> np.ndarray[Any, Any]:
    """Decode `sample_rate_fps` frames a second, the nearest each."""
    source = _source(data)
    times = get_video_timestamps(source, stream_idx, video_format) if timestamps is None else timestamps
    at, counts, _ = sample_closest(times, sample_rate_fps, start, stop, endpoint)
    return decode_video_cpu_frame_ids(source, at, counts, stream_idx, video_format, num_threads)


def extract_frames(
    video: Any,
    extraction_policy: FrameExtractionPolicy,
    sample_rate_fps: float = 1.0,
    target_res: tuple[int, int] = (-1, -1),
    num_threads: int = 1,
    stream_idx: int = 0,
    video_format: str | None = None,
) -> np.ndarray[Any, Any]:
    """Extract frames by a policy, scaled to (height, width) if `target_res` is given."""
    source = _source(video)
    n = get_frame_count(source, stream_idx, video_format)
    indices = {FrameExtractionPolicy.first: 0, FrameExtractionPolicy.middle: n // 2, FrameExtractionPolicy.last: n - 1}
    if extraction_policy in indices:
        frames = decode_video_cpu_frame_ids(source, [indices[extraction_policy]], num_threads=num_threads)
    else:
        frames = decode_video_cpu(source, sample_rate_fps, num_threads=num_threads)
    if min(target_res) < 1:
        return frames
    height, width = target_res
    shown = (library().VideoFrame.from_ndarray(f, format="rgb24") for f in frames)
    return np.stack([f.reformat(width=width, height=height, interpolation="BICUBIC").to_ndarray() for f in shown])
