"""Headers of images: format and size from a few hundred bytes, without decoding.

Covers JPEG, PNG and WebP. Refused from the header alone: files that are no image or are truncated, and an image of
more pixels than MAX_PIXELS (a bomb: a few kB can expand to gigabytes).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from tamis.images.faults import ImageFault

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp")
MAX_PIXELS = 100_000_000  # as RGB 300 MB
_HEAD_BYTES = 4096
_TAIL_BYTES = 4096
_STEP_BYTES = 1 << 18
_MAX_SEGMENTS = 1000
_JPEG_SIZES = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}
_STANDALONE = {0x01, *range(0xD0, 0xD8)}

Read = Callable[[int, int], bytes]
"""Called with (offset, n): up to n bytes of the image from there."""


class ImageHeader(NamedTuple):
    """`channels`: of the stored image, alpha among them.

    `work_bytes`: memory for decoding it, in addition to its pixels.
    """

    format: str
    width: int
    height: int
    channels: int
    work_bytes: int

    @property
    def decoded_bytes(self) -> int:
        return self.width * self.height * 3


def read_header(read: Read, length: int) -> ImageHeader:
    """Parse the headers; raise ImageFault if these bytes are no supported image."""
    if length == 0:
        raise ImageFault("zero bytes")
    head = read(0, min(length, _HEAD_BYTES))
    if head[:2] == b"\xff\xd8":
        facts = _jpeg(read, head, length)
    elif head[:8] == b"\x89PNG\r\n\x1a\n":
        facts = _png(read, head, length)
    elif head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        facts = _webp(head, length)
    else:
        raise ImageFault(f"no image: it begins with {head[:8]!r}, which is neither JPEG, PNG nor WebP")
    if facts.width < 1 or facts.height < 1:
        raise ImageFault(f"a {facts.format} of {facts.width} x {facts.height} pixels")
    if facts.width * facts.height > MAX_PIXELS:
        raise ImageFault(
            f"{facts.width} x {facts.height} pixels are more than {MAX_PIXELS:,}: not decoded (a bomb, or far too "
            "large)"
        )
    return facts


def _jpeg(read: Read, head: bytes, length: int) -> ImageHeader:
    position, begins = 2, 0  # `head` holds the bytes from `begins` on
    for _ in range(_MAX_SEGMENTS):
        i = position - begins
        if i + 10 > len(head):
            head, begins, i = read(position, 10), position, 0
        if len(head) < i + 4 or head[i] != 0xFF:
            break
        marker = head[i + 1]
        if marker == 0xFF:  # padding
            position += 1
            continue
        if marker in _STANDALONE:
            position += 2
            continue
        if marker in _JPEG_SIZES and len(head) >= i + 10:
            height, width, channels = head[i + 5] << 8 | head[i + 6], head[i + 7] << 8 | head[i + 8], head[i + 9]
            _check_end(read, length, b"\xff\xd9", "JPEG", partial(_scan_of, read, position, length))
            is_progressive = marker in (0xC2, 0xC6, 0xCA, 0xCE)
            # A progressive image is held whole as coefficients of two bytes; another one takes a few rows.
            work = width * height * channels * 2 if is_progressive else width * channels * 64
            return ImageHeader("jpeg", width, height, channels, work + length)
        if marker in (0xD9, 0xDA):
            break
        position += 2 + (head[i + 2] << 8 | head[i + 3])
    raise ImageFault("a JPEG without a size: damaged or cut off in its header")


def _png(read: Read, head: bytes, length: int) -> ImageHeader:
    if len(head) < 33 or head[12:16] != b"IHDR":
        raise ImageFault("a PNG without a size: damaged or cut off in its header")
    width, height, bits, colour = struct.unpack(">IIBB", head[16:26])
    channels = {0: 1, 2: 3, 3: 3, 4: 2, 6: 4}.get(colour, 4)
    _check_end(read, length, b"IEND", "PNG", lambda: 33)
    return ImageHeader("png", width, height, channels, width * height * channels * max(1, bits // 8) + length)


def _webp(head: bytes, length: int) -> ImageHeader:
    n_bytes = struct.unpack("<I", head[4:8])[0] + 8 if len(head) >= 30 else 0
    if not n_bytes:
        raise ImageFault("a WebP without a size: damaged or cut off in its header")
    if n_bytes - (n_bytes & 1 and 1) > length:
        raise ImageFault(f"a WebP that is cut off: {length:,} of {n_bytes:,} bytes")
    kind, body = head[12:16], head[20:30]
    if kind == b"VP8X":
        width = 1 + int.from_bytes(body[4:7], "little")
        height = 1 + int.from_bytes(body[7:10], "little")
        alpha = bool(body[0] & 0x10)
    elif kind == b"VP8L":
        bits = int.from_bytes(body[1:5], "little")
        width, height, alpha = 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF), bool(bits >> 28 & 1)
    elif kind == b"VP8 ":
        width, height = struct.unpack("<HH", body[6:10])
        width, height, alpha = width & 0x3FFF, height & 0x3FFF, False
    else:
        raise ImageFault(f"a WebP of an unknown kind {kind!r}")
    channels = 4 if alpha else 3
    return ImageHeader("webp", width, height, channels, width * height * 4 + length)


def _scan_of(read: Read, position: int, length: int) -> int:
    """Return where the compressed pixels of a JPEG begin, after the segment at `position`.

    A thumbnail in its header has an end marker of its own.
    """
    for _ in range(_MAX_SEGMENTS):
        head = read(position, 4)
        if len(head) < 4 or head[0] != 0xFF:
            break
        if head[1] == 0xDA:
            return position
        position += 1 if head[1] == 0xFF else 2 if head[1] in _STANDALONE else 2 + (head[2] << 8 | head[3])
    return length


def _check_end(read: Read, length: int, end: bytes, name: str, first: Callable[[], int]) -> None:
    """Raise ImageFault if an image has no end marker because it was cut off.

    Data after the marker is harmless: often a few bytes, sometimes a video (Motion Photos), in which case the
    marker is searched for backwards from the end, in steps, down to the offset that `first` returns.
    """
    n = min(length, _TAIL_BYTES)
    if read(length - n, n).rfind(end) >= 0:
        return
    stop, begin = length - n, first()
    while stop > begin:
        at = max(begin, stop - _STEP_BYTES)
        if read(at, stop - at + len(end) - 1).rfind(end) >= 0:  # with markers across the border of the last step
            return
        stop = at
    raise ImageFault(f"a {name} that is cut off: it has no end")
