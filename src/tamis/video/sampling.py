"""Select frames of a clip, and decode them upright, in their true shape and scaled."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from typing import Any

from tamis._lazy import np
from tamis.video.decoding import frames_at


class FrameExtractionPolicy(enum.Enum):
    """Selection of frames of a clip."""

    first = 0
    middle = 1
    last = 2
    sequence = 3


class FramePurpose(enum.Enum):
    """Purpose of extracted frames."""

    AESTHETICS = 1
    EMBEDDINGS = 2


def signature(policy: FrameExtractionPolicy, fps: float) -> str:
    """Return the name of a frame selection.

    >>> signature(FrameExtractionPolicy.sequence, 0.5)
    'FrameExtractionPolicy.sequence-500'
    """
    return f"{policy}-{int(fps * 1000)}"


def times_of(policy: FrameExtractionPolicy, fps: float, start_s: float, end_s: float) -> list[float]:
    """Return the seconds at which frames are taken from a span: at least one.

    >>> times_of(FrameExtractionPolicy.sequence, 2.0, 1.0, 2.2), times_of(FrameExtractionPolicy.middle, 2.0, 1.0, 2.0)
    ([1.0, 1.5, 2.0], [1.5])
    """
    if policy is FrameExtractionPolicy.middle:
        return [(start_s + end_s) / 2]
    if policy is FrameExtractionPolicy.last:
        return [max(start_s, end_s - 1e-3)]
    if policy is FrameExtractionPolicy.first:
        return [start_s]
    n = 1
    while start_s + n / fps < end_s - 1e-6:
        n += 1
    return [start_s + i / fps for i in range(n)]


def shown_size(frame: Any, pixel_aspect: float) -> tuple[int, int]:
    """Return width and height in square pixels, before the frame is turned."""
    return (
        (max(1, round(frame.width * pixel_aspect)), frame.height)
        if pixel_aspect >= 1
        else (
            frame.width,
            max(1, round(frame.height / pixel_aspect)),
        )
    )


def rgb(frame: Any, width: int, height: int) -> np.ndarray[Any, Any]:
    """Return a frame as uint8 [height, width, 3], scaled to that size before it is rotated upright.

    `width` and `height` are sides of the stored frame.
    """
    image = frame.reformat(width=width, height=height, format="rgb24", interpolation="BICUBIC").to_ndarray()
    turns: int = round(frame.rotation / 90.0) % 4
    return np.ascontiguousarray(np.rot90(image, turns)) if turns else image


def square(frame: Any, side: int, pixel_aspect: float = 1.0) -> np.ndarray[Any, Any]:
    """Return the center of a frame, its shorter side scaled to `side`: uint8 [side, side, 3]."""
    width, height = shown_size(frame, pixel_aspect)
    scale = side / min(width, height)
    image = rgb(frame, max(side, round(width * scale)), max(side, round(height * scale)))
    top, left = (image.shape[0] - side) // 2, (image.shape[1] - side) // 2
    return image[top : top + side, left : left + side]


def squares_at(
    path: str, times_s: Sequence[float], side: int, pixel_aspect: float = 1.0
) -> Iterator[np.ndarray[Any, Any]]:
    """Yield the squares of the frames nearest to these times, one at a time.

    Raise VideoFault if none can be decoded.
    """
    for _, frame in frames_at(path, times_s):
        yield square(frame, side, pixel_aspect)
