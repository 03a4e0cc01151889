"""Memory that decoding and encoding take, known from the size of the frame, and asked for before anything is decoded.

FFmpeg's codecs allocate deep inside libraries that do not all survive a refusal. So a worker under a cap asks first:
`reserve` raises the MemoryError, with the number, that the engine answers with a larger cap, or with a refusal that
names the budget.
"""

from __future__ import annotations

from typing import Any

from tamis.memory import meter

# (frames, other bytes) of private memory, measured from 720p to 4K with one thread and the options of
# encoding.py.
_DECODER = (9, 11 * 10**6)  # references, reordering, and the frame that is looked at
_ENCODERS = {
    "libx264": (37, 36 * 10**6),
    "libx265": (114, 66 * 10**6),
    "libvpx-vp9": (67, 30 * 10**6),
    "libsvtav1": (113, 46 * 10**6),
    "libaom-av1": (113, 66 * 10**6),  # not measured: the most that another takes
    "mpeg4": (5, 3 * 10**6),
    "h264_nvenc": (5, 200 * 10**6),  # not measured; frames are on the device
}


def frame_bytes(width: int, height: int, pixel_format: str = "") -> int:
    """Return the size of one decoded frame in bytes.

    4:2:0 takes 1.5 samples a pixel, of one byte or two; other layouts up to 3.

    >>> frame_bytes(1920, 1080), frame_bytes(1920, 1080, "yuv420p10le")
    (3110400, 6220800)
    """
    samples = 3 if "444" in pixel_format or "rgb" in pixel_format or "gbr" in pixel_format else 1.5
    deep = any(mark in pixel_format for mark in ("10", "12", "16"))
    return int(width * height * samples * (2 if deep else 1))


def decoding_bytes(width: int, height: int, pixel_format: str = "") -> int:
    n_frames, n_other_bytes = _DECODER
    return n_other_bytes + n_frames * frame_bytes(width, height, pixel_format)


def encoding_bytes(encoder: str, width: int, height: int) -> int:
    """Return the bytes that an encoder needs in addition to decoding."""
    n_frames, n_other_bytes = _ENCODERS[encoder]
    return n_other_bytes + n_frames * frame_bytes(width, height)


def reserve_decoder(context: Any, what: str) -> None:
    """Check with `reserve` that memory suffices for decoding with an FFmpeg context."""
    reserve(decoding_bytes(context.width, context.height, context.pix_fmt or ""), what)


def reserve_frames(n: int, width: int, height: int) -> None:
    """Check with `reserve` that memory suffices for `n` frames of three bytes a pixel."""
    reserve(n * width * height * 3, f"{n} frames of {width} x {height}")


def reserve(n_bytes: int, what: str) -> None:
    """Raise MemoryError if this process may not allocate so much; nothing is allocated."""
    limit = meter.data_limit()
    if limit is None:
        return
    free = limit - (meter.data_bytes() or 0)
    if n_bytes > free:
        raise MemoryError(
            f"malloc of size {n_bytes} would fail: {what} takes that much, and {max(0, free)} bytes are free"
        )
