"""Positions of clips in a video: plain arithmetic over seconds and frames.

A span is (start, end) in seconds, its end not included.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence

Span = tuple[float, float]


def fixed_spans(duration_s: float, length_s: float, stride_s: float, min_s: float, limit: int = 0) -> list[Span]:
    """Return windows of one length, one stride apart; the last ends with the video, and is left out below `min_s`.

    `limit`: the first so many, 0 for all.

    >>> fixed_spans(25.0, 10.0, 10.0, 5.0), fixed_spans(22.0, 10.0, 10.0, 5.0)
    ([(0.0, 10.0), (10.0, 20.0), (20.0, 25.0)], [(0.0, 10.0), (10.0, 20.0)])
    """
    spans: list[Span] = []
    n = 0
    while (start := n * stride_s) < duration_s and not (limit > 0 and len(spans) == limit):
        end = min(start + length_s, duration_s)
        if end - start >= min_s:
            spans.append((start, end))
        n += 1
    return spans


def frame_range(span: Span, fps: float, n_frames: int) -> tuple[int, int]:
    """Return the frames of a span: the number of the first and the one after the last.

    >>> frame_range((1.0, 2.5), 24.0, 1000)
    (24, 60)
    """
    return min(n_frames, round(span[0] * fps)), min(n_frames, round(span[1] * fps))


def clip_id(path: str, frames: tuple[int, int]) -> str:
    """Return the name of a clip, the same in every run for the same video at the same path.

    >>> clip_id("/videos/a.mp4", (0, 240))
    '10f1e012-b43f-526d-88af-481d1749a411'
    """
    return _named(f"{path}_{frames[0]}_{frames[1]}")


def clip_ids(path: str, spans: Sequence[Span], frames: Sequence[tuple[int, int]]) -> list[str]:
    """Return unique names for all clips of a video.

    Spans with the same frames (of a video with few frames a second) are distinguished by their times, because
    files are named after clips.

    >>> a, b, c = clip_ids("/videos/a.mp4", [(0.0, 1.0), (1.0, 2.0), (2.0, 60.0)], [(0, 0), (0, 0), (0, 2)])
    >>> a == clip_id("/videos/a.mp4", (0, 0)), b == a, c == clip_id("/videos/a.mp4", (0, 2))
    (True, False, True)
    """
    seen: set[tuple[int, int]] = set()
    ids = []
    for span, own in zip(spans, frames, strict=True):
        ids.append(_named(f"{path}_{own[0]}_{own[1]}_{span[0]!r}_{span[1]!r}") if own in seen else clip_id(path, own))
        seen.add(own)
    return ids


def _named(text: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_URL, text))


def scene_spans(
    scenes: Sequence[Span], min_s: float, max_s: float | None, mode: str = "stride", crop_s: float | None = None
) -> list[Span]:
    """Return the clips of scenes.

    A scene longer than `max_s` is cut into pieces ("stride": the last one is dropped if below `min_s`) or ends at
    `max_s` ("truncate"); `crop_s` is removed from both ends of each; results below `min_s` are dropped.

    >>> scene_spans([(0.0, 25.0), (25.0, 26.0)], 2.0, 10.0)
    [(0.0, 10.0), (10.0, 20.0), (20.0, 25.0)]
    >>> scene_spans([(0.0, 25.0)], 2.0, 10.0, "truncate", 0.5)
    [(0.5, 9.5)]
    """
    clips: list[Span] = []
    for start, end in scenes:
        pieces = [(start, end)]
        if max_s is not None and end - start > max_s:
            pieces = [(start, start + max_s)] if mode == "truncate" else fixed_pieces(start, end, max_s, min_s)
        if crop_s:
            pieces = [(a + crop_s, b - crop_s) for a, b in pieces]
        clips += [(a, b) for a, b in pieces if b - a >= min_s and b > a]
    return clips


def fixed_pieces(start: float, end: float, length_s: float, min_s: float) -> list[Span]:
    return [(start + a, start + b) for a, b in fixed_spans(end - start, length_s, length_s, min_s)]
