"""File names made from URLs. URLs are untrusted: a name is always one file name in one folder."""

from __future__ import annotations

import hashlib
import re
from urllib.parse import urlsplit

from tamis.errors import UsageError

_LONGEST_BYTES = 200  # most file systems take 255; `.part.from` and the like are appended


def name_of_url(url: str) -> str:
    """Return the path of a URL as one file name, prefixed with a hash if that alters it.

    Slashes become dashes (without a hash); other special characters become `_`, with a hash. A name that would
    be empty or too long gets the hash, too.

    For sources with one host and paths that remain distinct this way: a/b and a-b, or the same path on two
    hosts, get the same name.

    >>> name_of_url("https://host/crawl-data/CC-MAIN-2024-10/warc/a-00001.warc.gz")
    'crawl-data-CC-MAIN-2024-10-warc-a-00001.warc.gz'
    >>> name_of_url("https://host/../a b?x=1")
    'afb1ac3b-_.-a_b_x=1'
    """
    plain, is_exact = _plain(url)
    return plain if is_exact and 0 < len(plain) <= _LONGEST_BYTES else _marked(url, plain)


def own_name_of_url(url: str) -> str:
    """Return a name as `name_of_url` does, but always prefixed with a hash of the whole URL.

    Two URLs do not share a name.

    >>> own_name_of_url("https://host/a/b.gz"), own_name_of_url("https://host/a-b.gz"), own_name_of_url("https://other/a/b.gz")
    ('e7ff2da3-a-b.gz', '7fa69491-a-b.gz', '0a808922-a-b.gz')
    """
    return _marked(url, _plain(url)[0])


def _plain(url: str) -> tuple[str, bool]:
    """Return the path and the query as a name, and True if nothing but slashes was replaced."""
    parts = urlsplit(url)
    name = parts.path.lstrip("/").replace("/", "-") + (f"?{parts.query}" if parts.query else "")
    plain = re.sub(r"[^A-Za-z0-9._+=@~-]", "_", name)
    plain = re.sub(r"^\.", "_", plain)
    return plain, plain == name


def _marked(url: str, plain: str) -> str:
    mark = hashlib.blake2b(url.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
    return f"{mark}-{plain[9 - _LONGEST_BYTES :]}"


def check_name(name: str, whose: str) -> str:
    """Return a file name that a downloader chose; refuse one that would lead out of the folder."""
    if not name or name in (".", "..") or "/" in name or "\\" in name or "\0" in name:
        raise UsageError(f"{whose}._get_output_filename: expected a plain file name, got {name!r}")
    return name
