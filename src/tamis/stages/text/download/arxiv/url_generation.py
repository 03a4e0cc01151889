"""The archives with sources that arXiv keeps on S3. Who reads pays: needs the extra `s3` and AWS credentials."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from tamis.errors import DownloadError
from tamis.stages.text.download.base.url_generation import URLGenerator
from tamis.stores.s3 import Bucket
from tamis.stores.urls import split_s3

PREFIX = "s3://arxiv/src"
_ARCHIVE = re.compile(r"arXiv_src_\d{4}_\d{3}\.tar")


@dataclass
class ArxivUrlGenerator(URLGenerator):
    """All archives, oldest first."""

    prefix: ClassVar[str] = PREFIX

    def generate_urls(self) -> list[str]:
        bucket, folder = split_s3(f"{self.prefix}/")
        try:
            names = [entry.key.removeprefix(folder) for entry in Bucket(bucket, requester_pays=True).objects(folder)]
        except OSError as exc:
            raise DownloadError(
                self.prefix, f"cannot be listed: {exc}; it takes AWS credentials, and who reads pays"
            ) from exc
        return [f"{self.prefix}/{name}" for name in sorted(names, key=_by_year) if _ARCHIVE.fullmatch(name)]


def _by_year(name: str) -> tuple[int, str]:
    """Return the sort key of a name with a two-digit year: 91 to 99 come before 00."""
    year = name[10:12]
    return (1900 if year >= "91" else 2000) + int(year) if year.isdecimal() else 0, name
