"""Files on S3 and other stores that fsspec knows, fetched in blocks. Only the schemes named here are opened."""

from __future__ import annotations

import os
from typing import Any, BinaryIO
from urllib.parse import urlsplit

from tamis import files
from tamis.errors import DownloadError, MissingExtra

SCHEMES = ("s3",)
_BLOCK_BYTES = 8 << 20


def filesystem(url: str, storage_options: dict[str, Any] | None = None) -> tuple[Any, str]:
    """(file system, path in it) for a URL whose scheme is allowed."""
    scheme = urlsplit(url).scheme.lower()
    if scheme not in SCHEMES:
        raise DownloadError(url, f"expected a URL that begins with {' or '.join(s + '://' for s in SCHEMES)}", True)
    import fsspec

    try:
        return fsspec.core.url_to_fs(url, **(storage_options or {}))  # type: ignore[no-any-return]
    except ImportError:
        raise MissingExtra(f"reading {scheme}://", "s3") from None


def open_remote(url: str, storage_options: dict[str, Any] | None = None) -> BinaryIO:
    """A remote file, read in blocks; nothing is kept of those that were read."""
    fs, path = filesystem(url, storage_options)
    return fs.open(path, "rb", block_size=_BLOCK_BYTES, cache_type="readahead")  # type: ignore[no-any-return]


def fetch_object(url: str, path: str, storage_options: dict[str, Any] | None = None) -> int:
    """Bring an object into the file `path`, going on with what an earlier call left there; returns its bytes."""
    fs, key = filesystem(url, storage_options)
    note = path + ".from"
    try:
        info = fs.info(key)
    except FileNotFoundError as exc:
        raise DownloadError(url, "there is no such object", permanent=True) from exc
    except PermissionError as exc:
        raise DownloadError(url, f"access is refused: {exc}", permanent=True) from exc
    except OSError as exc:
        raise DownloadError(url, f"no connection: {exc}") from exc
    length = int(info["size"])
    version = f"{url} {length} {info.get('ETag') or info.get('LastModified') or info.get('created') or ''}"
    if not (os.path.exists(note) and os.path.exists(path) and _text(note) == version):
        files.remove(path)
        files.write_text(note, version)
    with os.fdopen(files.open_to_append(path), "ab") as file:
        at = file.tell()
        try:
            while at < length:
                block = _block(fs, key, url, at, min(at + _BLOCK_BYTES, length))
                file.write(block)
                at += len(block)
        finally:
            file.flush()
            os.fsync(file.fileno())
    if at != length:
        files.remove(path)
        raise DownloadError(url, f"{at:,} bytes came where {length:,} were told; it is fetched anew the next time")
    files.remove(note)
    return length


def _block(fs: Any, key: str, url: str, start: int, end: int) -> bytes:
    try:
        block = bytes(fs.cat_file(key, start=start, end=end))
    except OSError as exc:
        raise DownloadError(url, f"it broke off after {start:,} bytes: {exc}; run it again to go on from here") from exc
    if len(block) != end - start:
        raise DownloadError(url, f"{len(block):,} bytes came where {end - start:,} were asked for")
    return block


def _text(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()
