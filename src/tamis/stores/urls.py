"""Paths and URLs: remote or local, bucket and key. Pure, and cheap enough to ask for every path."""

from __future__ import annotations

import os
from urllib.parse import quote, unquote, unquote_to_bytes, urlsplit

from tamis.errors import UsageError

READ = ("s3://", "https://", "http://")
WRITTEN = ("s3://",)
_FILE_SCHEME = "file://"


def is_remote(path: str | os.PathLike[str]) -> bool:
    """Return True if `path` is a URL of an object store or a web server.

    >>> is_remote("s3://bucket/a.jsonl"), is_remote("https://host/a.jsonl"), is_remote("/data/a.jsonl")
    (True, True, False)
    """
    return isinstance(path, str) and path.startswith(READ)


def is_bucket(path: str | os.PathLike[str]) -> bool:
    """Return True if `path` is in an object store, which is also written to."""
    return isinstance(path, str) and path.startswith(WRITTEN)


def split_s3(url: str) -> tuple[str, str]:
    """Bucket and key (or prefix). UsageError where there is no bucket, or where the URL carries a name and a password.

    >>> split_s3("s3://corpus/web/a.jsonl"), split_s3("s3://corpus")
    (('corpus', 'web/a.jsonl'), ('corpus', ''))
    """
    bucket, _, key = url.removeprefix("s3://").partition("/")
    if "@" in bucket or ":" in bucket:
        raise UsageError(
            "an s3:// URL names a bucket and a key and nothing else; credentials come from the environment "
            "(AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or the machine's role)"
        )
    if not bucket:
        raise UsageError(f"{url}: no bucket; expected s3://bucket/path")
    return bucket, key


def output_url(url: str) -> str:
    """Return an output in normal form: no trailing slash, no way out of it.

    Raises UsageError for a URL that cannot be written to.

    >>> output_url("s3://corpus/clean/")
    's3://corpus/clean'
    """
    if not is_bucket(url):
        raise UsageError(f"{url}: this is only read; an output is a folder, or s3://bucket/path")
    bucket, key = split_s3(url)
    parts = [p for p in key.split("/") if p]
    if not parts:
        raise UsageError(f"{url}: give a path inside the bucket as output, such as {url.rstrip('/')}/clean")
    if any(p in (".", "..") for p in parts):
        raise UsageError(f"{url}: . and .. mean nothing in a bucket; write the path out")
    return f"s3://{bucket}/{'/'.join(parts)}"


def scratch_url(url: str) -> str:
    """Return a scratch location in normal form; raise UsageError if it cannot be written to."""
    if not is_bucket(url):
        raise UsageError(f"scratch: {url}: this is only read; give a folder of this machine, or s3://bucket/path")
    return output_url(url)


def absolute(path: str | os.PathLike[str]) -> str:
    """Return a local path as an absolute one; a remote one unchanged."""
    return str(path) if is_remote(path) else os.path.abspath(os.path.expanduser(os.fspath(path)))


def name_in(url: str) -> str:
    """Return the path inside its host or bucket, by which the format is determined.

    Without the `?signature=...` of a web address.

    >>> name_in("https://host/data/a%20b.jsonl.gz?token=x")
    'data/a b.jsonl.gz'
    """
    return split_s3(url)[1] if is_bucket(url) else unquote(urlsplit(url).path).lstrip("/")


def path_text(path: str) -> str:
    r"""Return a path as text for a column or a recipe; `path_of` is the inverse.

    The result is the path itself or, if its bytes are not UTF-8, a file: URI.

    >>> path_text("/a/b.jsonl"), path_text("/a/\udcff %.jsonl")
    ('/a/b.jsonl', 'file:///a/%FF%20%25.jsonl')
    """
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:
        return _FILE_SCHEME + quote(os.fsencode(path))
    return path


def path_of(text: str) -> str:
    r"""Return the path that `path_text` turned into text.

    >>> path_of("/a/b.jsonl"), path_of("file:///a/%FF%20%25.jsonl") == "/a/\udcff %.jsonl"
    ('/a/b.jsonl', True)
    """
    is_uri = text.startswith(_FILE_SCHEME + "/")
    return os.fsdecode(unquote_to_bytes(text.removeprefix(_FILE_SCHEME))) if is_uri else text
