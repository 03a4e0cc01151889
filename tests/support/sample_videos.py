"""Small videos for tests: moving bars in colours that change at known frames, made with PyAV."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

DrawFrame = Callable[[int, int, int], "np.ndarray[Any, Any]"]


def library() -> Any:
    return pytest.importorskip("av", reason="the extra `video` is not installed")


def bars(i: int, width: int, height: int) -> np.ndarray[Any, Any]:
    """Draw a bar that moves two pixels per frame, over a shade that encodes the number of the frame."""
    frame = np.full((height, width, 3), 40 + i % 128, np.uint8)
    at = 2 * i % width
    frame[:, at : at + 8] = 255
    return frame


def scenes(cuts: Sequence[int]) -> DrawFrame:
    """Still frames that differ much, one after another: a new one at each of these frames."""

    def frame(i: int, width: int, height: int) -> np.ndarray[Any, Any]:
        rng = np.random.default_rng(sum(i >= cut for cut in cuts))
        return rng.integers(0, 255, (height, width, 3), np.uint8)

    return frame


def make_video(
    path: Path | str,
    n_frames: int = 96,
    codec: str = "libx264",
    size: tuple[int, int] = (64, 48),
    fps: int = 24,
    draw: DrawFrame = bars,
    audio: bool = False,
    rotation: int = 0,
    aspect: Fraction | None = None,
    times: Callable[[int], int] | None = None,
    pixels: str = "yuv420p",
    keyframe_every: int = 12,
) -> str:
    """Write a video and return its path. `times`: of frame i, in 1/1000 s, for a rate that varies."""
    av = library()
    with av.open(str(path), "w") as made:
        stream = made.add_stream(codec, rate=fps)
        stream.width, stream.height, stream.pix_fmt = *size, pixels
        stream.codec_context.gop_size = keyframe_every
        if times is not None:
            stream.codec_context.time_base = Fraction(1, 1000)
        if codec == "libx264":
            stream.options = {"preset": "ultrafast", "bf": "2"}
        if aspect is not None:
            stream.codec_context.sample_aspect_ratio = aspect
        if rotation:
            stream.set_display_rotation(rotation)
        sound = made.add_stream("aac", rate=16000, layout="mono") if audio else None
        for i in range(n_frames):
            frame = av.VideoFrame.from_ndarray(draw(i, *size), format="rgb24")
            frame.pts = i if times is None else times(i)
            frame.time_base = Fraction(1, fps) if times is None else Fraction(1, 1000)
            made.mux(stream.encode(frame))
        made.mux(stream.encode(None))
        if sound is not None:
            _hum(av, made, sound, n_frames / fps)
    return str(path)


def _hum(av: Any, made: Any, sound: Any, seconds: float) -> None:
    n = int(seconds * 16000)
    wave = (np.sin(np.arange(n) / 8) * 8000).astype(np.int16)
    for at in range(0, n - 1023, 1024):
        frame = av.AudioFrame.from_ndarray(wave[None, at : at + 1024], format="s16", layout="mono")
        frame.sample_rate, frame.pts, frame.time_base = 16000, at, Fraction(1, 16000)
        made.mux(sound.encode(frame))
    made.mux(sound.encode(None))


def truncated(path: Path | str, target: Path | str, share: float = 0.5) -> str:
    data = Path(path).read_bytes()
    Path(target).write_bytes(data[: int(len(data) * share)])
    return str(target)
