"""Sizes from headers, for every kind of file that Pillow writes; and what is refused without being decoded."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tamis.images import decode
from tamis.images.faults import ImageFault
from tamis.images.headers import MAX_PIXELS, read_header
from tests.support.sample_images import jpeg, pixels, png, stored


def looks(data: bytes) -> Any:
    return read_header(lambda at, n: data[at : at + n], len(data))


def saved(mode: str, kind: str, **how: Any) -> bytes:
    out = io.BytesIO()
    Image.fromarray(pixels(5, 57, 41)).convert(mode).save(out, kind, **how)
    return out.getvalue()


@pytest.mark.parametrize(
    ("mode", "kind", "how"),
    [
        ("RGB", "JPEG", {}),
        ("L", "JPEG", {}),
        ("CMYK", "JPEG", {}),
        ("RGB", "JPEG", {"progressive": True}),
        ("RGB", "JPEG", {"exif": b"Exif\0\0" + bytes(60_000)}),
        ("RGB", "PNG", {}),
        ("RGBA", "PNG", {}),
        ("P", "PNG", {}),
        ("1", "PNG", {}),
        ("LA", "PNG", {}),
        ("RGB", "WEBP", {}),
        ("RGBA", "WEBP", {}),
        ("RGB", "WEBP", {"lossless": True}),
        ("RGBA", "WEBP", {"lossless": True}),
    ],
)
def test_sizes_and_pixels_of_every_kind(mode: str, kind: str, how: dict[str, Any]) -> None:
    data = saved(mode, kind, **how)
    found = looks(data)
    assert (found.format, found.width, found.height) == (kind.lower(), 57, 41)
    if kind == "JPEG" and mode != "CMYK":
        pytest.importorskip("simplejpeg", reason="the extra `image` is not installed")
    got = decode.decode(data)
    assert (got.shape, got.dtype) == ((41, 57, 3), np.uint8)
    assert decode.decode(data, min_side=10).shape[2] == 3


def test_a_jpeg_is_scaled_while_it_is_decoded() -> None:
    pytest.importorskip("simplejpeg", reason="the extra `image` is not installed")
    data = jpeg(1, 1000, 600)
    assert decode.decode(data, min_side=70).shape == (75, 125, 3)
    assert decode.decode(data, min_side=224).shape == (300, 500, 3)


def bomb(width: int, height: int) -> bytes:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "zero bytes"),
        (b"hello", "no image: it begins with"),
        (bomb(50_000, 50_000), f"more than {MAX_PIXELS:,}"),
        (bomb(0, 5), "a png of 0 x 5 pixels"),
        (jpeg(1)[:100], "a JPEG without a size|a JPEG that is cut off"),
        (jpeg(1, 200, 200)[:-200], "a JPEG that is cut off"),
        (png(1, 80, 80)[:-5000], "a PNG that is cut off"),
        (stored(pixels(1), "WEBP", lossless=True)[:-20], "a WebP that is cut off"),
        (b"RIFF\x10\0\0\0WEBP", "a WebP without a size"),
    ],
)
def test_what_is_refused_from_its_header(data: bytes, message: str) -> None:
    with pytest.raises(ImageFault, match=message):
        looks(data)


def test_bytes_after_the_end_of_an_image_do_no_harm() -> None:
    video = b"ftypmp42" * 200_000  # as cameras append it (Motion Photos)
    for data in (jpeg(1, 200, 200), jpeg(1, 200, 200, progressive=True), png(1, 80, 80)):
        assert looks(data + video)[:3] == looks(data)[:3]
        with pytest.raises(ImageFault, match="cut off"):
            looks(data[:-200] + b"video" * 200_000)
    for n in range((1 << 18) + 4090, (1 << 18) + 4100):  # the marker may lie on both sides of a step
        assert looks(jpeg(1, 200, 200) + bytes(n))[:2] == ("jpeg", 200)


def test_the_end_of_a_small_image_in_the_header_is_not_that_of_the_image() -> None:
    inside = b"\xff\xe1" + struct.pack(">H", 2 + len(jpeg(2))) + jpeg(2)
    whole = jpeg(1, 200, 200)
    data = whole[:2] + inside + whole[2:]
    assert looks(data + bytes(10_000))[:3] == ("jpeg", 200, 200)
    with pytest.raises(ImageFault, match="a JPEG that is cut off"):
        looks(data[:-20] + bytes(10_000))


def test_the_transparent_level_of_a_grey_image_of_16_bits_is_white() -> None:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 3, 1, 16, 0, 0, 0, 0))
    levels = chunk(b"IDAT", zlib.compress(b"\0" + struct.pack(">HHH", 0x1234, 0x1235, 0xFF00)))
    data = b"\x89PNG\r\n\x1a\n" + head + chunk(b"tRNS", b"\x12\x34") + levels + chunk(b"IEND", b"")
    assert decode.decode(data)[0, :, 0].tolist() == [255, 0x12, 0xFF]


def test_what_does_not_fit_is_a_lack_of_memory_and_no_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("simplejpeg", reason="the extra `image` is not installed")

    def full(n_bytes: int) -> None:
        raise MemoryError

    monkeypatch.setattr(decode, "reserve", full)
    for data in (jpeg(1), png(1)):
        with pytest.raises(MemoryError):
            decode.decode(data)
