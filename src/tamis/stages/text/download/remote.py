"""Objects of S3 for the download stages: whole ones into a resumable part file, and ranges of them."""

from __future__ import annotations

import os
from pathlib import Path

from tamis import files
from tamis.errors import DownloadError, StoreError
from tamis.stores.reading import Changed, Damaged
from tamis.stores.retry import POLICY
from tamis.stores.s3 import AccessDenied, Bucket, S3Source
from tamis.stores.urls import is_bucket, split_s3

_BLOCK_BYTES = 8 << 20
_PAUSE_S = 1.0  # before the second attempt, where their number is given; as over HTTP


def fetch_object(url: str, path: str, requester_pays: bool = False) -> int:
    """Bring an object into the file `path`, going on with what an earlier call left there; returns its bytes."""
    name, key = _place(url)
    bucket, note = Bucket(name, requester_pays), Path(path + ".from")
    try:
        head = bucket.head(key)
    except AccessDenied as exc:
        raise DownloadError(url, f"access is refused: {exc}") from exc
    except OSError as exc:
        raise DownloadError(url, f"no connection: {exc}") from exc
    if head is None:
        raise DownloadError(url, "there is no such object", permanent=True)
    version = f"{url} {head.size} {head.etag}"
    is_part = note.exists() and os.path.exists(path) and os.path.getsize(path) <= head.size
    if not is_part or note.read_text(encoding="utf-8") != version:
        files.remove(path)
        files.write_text(note, version)
    with os.fdopen(files.open_to_append(path), "ab") as file:
        try:
            while (at := file.tell()) < head.size:
                block = bytearray(min(_BLOCK_BYTES, head.size - at))
                bucket.read_into(key, head.etag, at, memoryview(block))
                file.write(block)
        except (StoreError, Changed) as exc:
            raise DownloadError(url, f"it broke off after {at:,} bytes: {exc}; run it again to resume") from exc
        finally:
            file.flush()
            os.fsync(file.fileno())
    files.remove(note)
    _compare(S3Source(bucket, head), path)
    return head.size


def _compare(source: S3Source, path: str) -> None:
    """Compare a file with the checksum of its object: parts of it may have come in earlier runs.

    A damaged one is removed.
    """
    check = source.check()
    if check is None:
        return
    with open(path, "rb") as file:
        offset = 0
        while data := file.read(_BLOCK_BYTES):
            try:
                check(offset, memoryview(data))
            except Damaged as exc:
                files.remove(path)
                raise DownloadError(source.url, f"{exc.strerror}; it was removed, run it again") from None
            offset += len(data)


def fetch_span(
    url: str, offset: int, n_bytes: int, timeout_s: float | None = None, n_attempts: int | None = None
) -> bytes:
    """Fetch bytes of an object from `offset` on, fewer at its end. None: the store's own setting."""
    name, key = _place(url)
    policy = POLICY if n_attempts is None else POLICY._replace(n_tries=n_attempts, first_s=_PAUSE_S)
    try:
        return Bucket(name, timeout_s=timeout_s).read_once(key, offset, n_bytes, policy)
    except OSError as exc:
        raise DownloadError(url, str(exc)) from exc


def _place(url: str) -> tuple[str, str]:
    """Bucket and key."""
    if not is_bucket(url):
        raise DownloadError(url, "expected a URL that begins with s3://", permanent=True)
    return split_s3(url)
