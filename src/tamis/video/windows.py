"""Windows of a clip that get a caption each, and which of their frames a model sees: plain arithmetic."""

from __future__ import annotations

import math
from dataclasses import dataclass

MIN_FRAMES = 4
MAX_FRAMES = 768
FACTOR = 2  # models join two frames at a time


@dataclass
class WindowFrameInfo:
    """A window by its frames: the first and the last one."""

    start: int
    end: int


def compute_windows(total_frames: int, window_size: int = 128, remainder_threshold: int = 64) -> list[WindowFrameInfo]:
    """Return windows of `window_size` frames.

    What is left is a window of its own from `remainder_threshold` frames on, else it belongs to the last one. Below
    four frames there is none.

    >>> [(w.start, w.end) for w in compute_windows(300, 128, 64)]
    [(0, 127), (128, 299)]
    """
    if total_frames < MIN_FRAMES:
        return []
    if total_frames <= window_size:
        return [WindowFrameInfo(0, total_frames - 1)]
    starts = list(range(0, total_frames, window_size))
    if total_frames - starts[-1] < remainder_threshold:
        starts.pop()
    return [WindowFrameInfo(a, b - 1) for a, b in zip(starts, [*starts[1:], total_frames], strict=True)]


def round_by_factor(number: float, factor: int) -> int:
    """Return the nearest multiple of `factor`.

    >>> round_by_factor(13, 4), ceil_by_factor(13, 4), floor_by_factor(13, 4)
    (12, 16, 12)
    """
    return round(number / factor) * factor


def ceil_by_factor(number: float, factor: int) -> int:
    return math.ceil(number / factor) * factor


def floor_by_factor(number: float, factor: int) -> int:
    return math.floor(number / factor) * factor


def smart_nframes(fps: float, total_frames: int, video_fps: float) -> int:
    """Return how many frames of a span a model sees: `fps` of them a second.

    At least 4, at most 768, an even number, and no more than there are.

    >>> smart_nframes(2.0, 256, 24.0), smart_nframes(2.0, 5, 24.0)
    (20, 4)
    """
    least = ceil_by_factor(MIN_FRAMES, FACTOR)
    most = floor_by_factor(min(MAX_FRAMES, total_frames), FACTOR)
    n = min(max(total_frames / video_fps * fps, least), most, total_frames)
    return max(FACTOR, floor_by_factor(n, FACTOR))


def fit_sides(height: int, width: int, factor: int, least_pixels: int, most_pixels: int) -> tuple[int, int]:
    """Return sides that are multiples of `factor`, in nearly the same shape, with so many pixels.

    >>> fit_sides(720, 1280, 28, 128 * 784, 768 * 784)
    (560, 1008)
    """
    high, wide = max(factor, round_by_factor(height, factor)), max(factor, round_by_factor(width, factor))
    if high * wide > most_pixels:
        shrink = math.sqrt(height * width / most_pixels)
        high, wide = (max(factor, floor_by_factor(s / shrink, factor)) for s in (height, width))
    elif high * wide < least_pixels:
        grow = math.sqrt(least_pixels / (height * width))
        high, wide = (ceil_by_factor(s * grow, factor) for s in (height, width))
    return high, wide
