"""Small animated previews (animated WebP) and thumbnails (JPEG) of a span, encoded by FFmpeg."""

from __future__ import annotations

import io
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from tamis.video.decoding import first_keyframe, frames_at
from tamis.video.opening import faults, library
from tamis.video.sampling import FrameExtractionPolicy, rgb, shown_size, times_of


def _upright_size(frame: Any, pixel_aspect: float, height: int | None, longest: int | None) -> tuple[int, int]:
    """Return the even size to decode a frame at, before rotation, so that upright it fits `height` or `longest`."""
    wide, high = shown_size(frame, pixel_aspect)
    is_turned = round(frame.rotation / 90.0) % 2 == 1
    scale = min(1.0, longest / max(wide, high) if longest else (height or high) / (wide if is_turned else high))
    return max(2, round(wide * scale / 2) * 2), max(2, round(high * scale / 2) * 2)


def thumbnail(path: str, at_s: float, longest: int = 160, pixel_aspect: float = 1.0, quick: bool = False) -> bytes:
    """Return the frame at a time, as JPEG. Raise VideoFault if it cannot be decoded.

    `quick`: the keyframe before it, which depends on no other frame.
    """
    av = library()
    frame = first_keyframe(path, at_s) if quick else next(iter(frames_at(path, [at_s])))[1]
    pixels = rgb(frame, *_upright_size(frame, pixel_aspect, None, longest))
    with faults(av, "a thumbnail cannot be made"):
        encoder = av.CodecContext.create("mjpeg", "w")
        encoder.width, encoder.height, encoder.pix_fmt = pixels.shape[1], pixels.shape[0], "yuvj420p"
        encoder.time_base = Fraction(1, 25)
        shown = av.VideoFrame.from_ndarray(pixels, format="rgb24").reformat(format="yuvj420p")
        shown.pts = 0
        return b"".join(bytes(p) for p in (*encoder.encode(shown), *encoder.encode(None)))


def preview(
    path: str,
    start_s: float,
    end_s: float,
    fps: float = 1.0,
    height: int = 240,
    quality: int = 50,
    effort: int = 6,
    pixel_aspect: float = 1.0,
    times_s: Sequence[float] | None = None,
) -> bytes:
    """Return a span as an animated WebP with `fps` frames a second, holding one in memory at a time.

    Raise VideoFault if nothing can be decoded.
    """
    av = library()
    times = list(times_s or times_of(FrameExtractionPolicy.sequence, fps, start_s, end_s))
    out = io.BytesIO()
    with faults(av, "a preview cannot be made"), av.open(out, "w", format="webp") as container:
        stream: Any = None
        for i, (_, frame) in enumerate(frames_at(path, times)):
            pixels = rgb(frame, *_upright_size(frame, pixel_aspect, height, None))
            if stream is None:
                stream = container.add_stream("libwebp_anim", rate=Fraction(fps).limit_denominator(1000))
                stream.width, stream.height, stream.pix_fmt = pixels.shape[1], pixels.shape[0], "yuv420p"
                stream.options = {"quality": str(quality), "compression_level": str(effort)}
            shown = av.VideoFrame.from_ndarray(pixels, format="rgb24").reformat(format="yuv420p")
            shown.pts, shown.time_base = i, 1 / Fraction(fps).limit_denominator(1000)
            container.mux(stream.encode(shown))
        container.mux(stream.encode(None))
    return out.getvalue()
