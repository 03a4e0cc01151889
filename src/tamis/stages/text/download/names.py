"""File names made from URLs. A URL is what somebody else wrote; a name stays one name in one folder."""

from __future__ import annotations

import hashlib
import re
from urllib.parse import urlsplit

from tamis.errors import UsageError

_LONGEST_BYTES = 200  # most file systems take 255; `.part.from` and the like come behind it


def name_of_url(url: str) -> str:
    """The path of a URL as one file name: slashes become dashes, what else is special becomes `_`, with a hash before it.

    >>> name_of_url("https://host/crawl-data/CC-MAIN-2024-10/warc/a-00001.warc.gz")
    'crawl-data-CC-MAIN-2024-10-warc-a-00001.warc.gz'
    >>> name_of_url("https://host/../a b?x=1")
    'afb1ac3b-_.-a_b_x=1'
    """
    parts = urlsplit(url)
    wanted = parts.path.lstrip("/").replace("/", "-") + (f"?{parts.query}" if parts.query else "")
    plain = re.sub(r"[^A-Za-z0-9._+=@~-]", "_", wanted)
    plain = re.sub(r"^\.", "_", plain)
    if plain == wanted and 0 < len(plain) <= _LONGEST_BYTES:
        return plain
    mark = hashlib.blake2b(url.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
    return f"{mark}-{plain[9 - _LONGEST_BYTES :]}"


def check_name(name: str, whose: str) -> str:
    """A name that a downloader chose: refused where it would lead out of the folder."""
    if not name or name in (".", "..") or "/" in name or "\\" in name or "\0" in name:
        raise UsageError(f"{whose}._get_output_filename: expected a plain file name, got {name!r}")
    return name
