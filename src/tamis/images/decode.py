"""Pixels of an image: an array of height x width x 3 bytes (RGB), for every storage format.

JPEG by simplejpeg (Pillow for CMYK), PNG and WebP by Pillow. Transparent pixels are blended with white; 16-bit images
keep their upper eight bits. Memory: the size of an image is known from its header and reserved before it is decoded, so
that an image that does not fit under the cap of a worker is a MemoryError and never taken for a damaged one.
"""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tamis._lazy import np
from tamis.errors import first_line, optional
from tamis.images.faults import ImageFault
from tamis.images.headers import ImageHeader, read_header
from tamis.stores.spool import open_bytes
from tamis.stores.urls import is_remote

if TYPE_CHECKING:
    Bytes = np.ndarray[Any, np.dtype[np.uint8]]
    Pixels = np.ndarray[Any, np.dtype[np.uint8]]

MAX_BUFFER_BYTES = 4 << 20  # larger buffers are not reused
_SPARE_BYTES = 1 << 20


class ThreadBuffers(threading.local):
    """Buffers by name that a thread reuses from image to image; each request overwrites the previous contents.

    The kernel would otherwise provide new memory of this size each time, page by page (workers return everything above
    128 kB at once, so that the budget holds): for an image of 500 x 375 pixels that took half as long as decoding it.
    """

    def __init__(self) -> None:
        self._buffers: dict[str, Bytes] = {}

    def bytes(self, name: str, n: int) -> Bytes:
        """Return `n` bytes with arbitrary contents; raise MemoryError if they cannot be allocated."""
        buffer = self._buffers.get(name)
        if buffer is None or len(buffer) < n:
            buffer = np.empty(n if n > MAX_BUFFER_BYTES else 1 << max(16, (n - 1).bit_length()), np.uint8)
            if n <= MAX_BUFFER_BYTES:
                self._buffers[name] = buffer
        return buffer[:n]


_BUFFERS = ThreadBuffers()


def read_span(path: str, offset: int, length: int) -> bytes:
    """Read the stored bytes of an image: a whole file, or a span of a tar, local or remote."""
    if is_remote(path):
        with open_bytes(path) as file:
            return _whole(file.pread, offset, length)
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = os.pread(fd, length, offset)
        return data if len(data) == length else _whole(lambda n, at: os.pread(fd, n, at), offset, length)
    finally:
        os.close(fd)


def _whole(pread: Callable[[int, int], bytes], position: int, length: int) -> bytes:
    """Read `length` bytes from a source that may return fewer at a time."""
    parts = []
    while length > 0 and (data := pread(length, position)):
        parts.append(data)
        position, length = position + len(data), length - len(data)
    if length:
        raise ImageFault(f"{length:,} bytes are missing: the file is shorter than it was")
    return b"".join(parts)


def check_libraries() -> None:
    """Raise MissingExtra if images cannot be decoded on this machine.

    Stages call it before the first image, which would otherwise be reported as damaged.
    """
    optional("simplejpeg", "reading images", "image")
    _pillow()


def header_of(data: bytes) -> ImageHeader:
    return read_header(lambda at, n: data[at : at + n], len(data))


def decode(data: bytes, header: ImageHeader | None = None, min_side: int = 0, passing: bool = False) -> Pixels:
    """Decode an image into its pixels.

    `min_side`: a JPEG may be decoded smaller (a half, a quarter, an eighth), as long as its shorter side has
    this many pixels: the decoder then computes only these, several times as fast. `passing`: the pixels may be
    stored in a buffer that the next image of this thread reuses.
    """
    header = header or header_of(data)
    if header.format == "jpeg" and header.channels != 4:
        return _jpeg(data, header, min_side, passing)
    return _by_pillow(data, header, min_side)


def fitted(pixels: Pixels, side: int) -> Pixels:
    """Return the center square, scaled (bicubic, antialiased) as CLIP expects images: uint8 [side, side, 3]."""
    from tamis.kernels.pixels.scaling import scaled_square

    return scaled_square(pixels, side, _BUFFERS.bytes)


def reserve(n_bytes: int) -> None:
    """Raise MemoryError if `n_bytes` cannot be allocated.

    Call it before libraries in C, each of which fails in its own way.
    """
    np.empty(n_bytes + _SPARE_BYTES, np.uint8)


def scale_of(header: ImageHeader, min_side: int) -> int:
    """Return the factor by which a JPEG decoder may shrink the image: 8, 4, 2 or 1.

    >>> scale_of(ImageHeader("jpeg", 4000, 3000, 3, 0), 224), scale_of(ImageHeader("jpeg", 300, 400, 3, 0), 224)
    (8, 1)
    """
    short = min(header.width, header.height)
    return next((n for n in (8, 4, 2) if min_side and -(-short // n) >= min_side), 1)


def _jpeg(data: bytes, header: ImageHeader, min_side: int, passing: bool) -> Pixels:
    simplejpeg = optional("simplejpeg", "reading images", "image")
    n = scale_of(header, min_side)
    height, width = -(-header.height // n), -(-header.width // n)
    room = _BUFFERS.bytes("pixels", height * width * 3) if passing else None
    reserve((0 if passing else height * width * 3) + header.work_bytes)
    try:
        # Not min_height and min_width: simplejpeg takes factors in between, too, which are slower than the next power
        # of two.
        pixels: Pixels = simplejpeg.decode_jpeg(
            data, "RGB", min_height=height, min_width=width, min_factor=1, buffer=room
        )
    except ValueError as exc:
        raise ImageFault(f"a damaged JPEG: {first_line(exc, 200)}") from None
    return pixels


def _by_pillow(data: bytes, header: ImageHeader, min_side: int) -> Pixels:
    image = _pillow()
    reserve(2 * header.decoded_bytes + header.work_bytes)
    try:
        with image.open(io.BytesIO(data), formats=("JPEG", "PNG", "WEBP")) as opened:
            if header.format == "jpeg" and min_side:
                n = scale_of(header, min_side)
                opened.draft(None, (-(-header.width // n), -(-header.height // n)))
            pixels = _as_rgb(opened, image)
    except MemoryError:
        raise
    except Exception as exc:  # decoders raise anything for untrusted bytes
        raise ImageFault(f"a damaged {header.format.upper()}: {first_line(exc, 200)}") from None
    return np.asarray(pixels)


def _as_rgb(opened: Any, image: Any) -> Any:
    opened.load()
    if opened.mode.startswith("I;16") or opened.mode == "I":
        levels = np.asarray(opened)
        grey = (levels.astype(np.uint32) >> 8).astype(np.uint8)
        clear = opened.info.get("transparency")
        if isinstance(clear, int):  # the level of transparent pixels, in all its bits
            grey[levels == clear] = 255
        return image.fromarray(grey).convert("RGB")
    if opened.mode in ("RGBA", "LA", "PA") or "transparency" in opened.info:
        above = opened.convert("RGBA")
        white = image.new("RGBA", above.size, (255, 255, 255, 255))
        return image.alpha_composite(white, above).convert("RGB")
    return opened.convert("RGB")


def _pillow() -> Any:
    image = optional("PIL.Image", "reading images", "image")
    image.MAX_IMAGE_PIXELS = None  # refused from the header already (headers.MAX_PIXELS)
    return image
