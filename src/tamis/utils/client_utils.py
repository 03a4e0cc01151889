"""Paths on file systems that fsspec knows."""

from __future__ import annotations

from typing import Any


class FSPath:
    """A path together with the file system it belongs to."""

    def __init__(self, fs: Any, path: str) -> None:
        self._fs, self._path = fs, path

    def open(self, mode: str = "rb", **kwargs: Any) -> Any:
        return self._fs.open(self._path, mode, **kwargs)

    def as_posix(self) -> str:
        """Return the path with its protocol; without one for local files."""
        protocol = self._fs.protocol if isinstance(self._fs.protocol, str) else self._fs.protocol[0]
        return self._path if protocol in ("file", "local") else f"{protocol}://{self._path.lstrip('/')}"

    def get_bytes_cat_ranges(self, *, part_size: int = 10 * 1024**2) -> bytes:
        """Return the whole file, fetched in concurrent parts."""
        size = self._fs.size(self._path) or 0
        starts = list(range(0, size, part_size))
        ends = [min(start + part_size, size) for start in starts]
        parts = self._fs.cat_ranges([self._path] * len(starts), starts, ends, on_error="raise") if starts else []
        data = b"".join(parts)
        if len(data) != size:
            raise OSError(f"{self._path}: {len(data):,} of {size:,} bytes came")
        return data

    def __str__(self) -> str:
        return self._path

    def __repr__(self) -> str:
        return f"FSPath({self._path!r})"


def is_remote_url(url: str) -> bool:
    """Return True if a path names a file system other than the local one.

    >>> is_remote_url("s3://bucket/a"), is_remote_url("/a/b"), is_remote_url("file:///a")
    (True, False, False)
    """
    protocol, mark, _ = str(url).partition("://")
    return bool(mark) and protocol not in ("file", "local")
