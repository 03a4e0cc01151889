"""List the WARC files of a span of crawls, from the lists that Common Crawl publishes."""

from __future__ import annotations

import io
import json
import re
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from tamis.errors import DownloadError, FormatError, UsageError
from tamis.sizes import check_optional_integer
from tamis.stages.text.download.base.url_generation import URLGenerator
from tamis.stages.text.download.fetch import fetch_bytes
from tamis.stages.text.download.streams import Decoded

_LIST_BYTES = 64 << 20
_LINE_BYTES = 1000
_PLAIN_PATH = re.compile(r"(?!.*\.\.)[A-Za-z0-9][A-Za-z0-9._=+/-]*\.warc\.gz")


@dataclass
class BaseCommonCrawlUrlGenerator(URLGenerator):
    """`start_snapshot_str` to `end_snapshot_str`, both included, oldest first; of their files the first `limit`."""

    start_snapshot_str: str
    end_snapshot_str: str
    data_prefix: str = "https://data.commoncrawl.org"
    limit: int | None = None
    unit: ClassVar[str] = ""
    most: ClassVar[int] = 0

    def __post_init__(self) -> None:
        self._start = self._parse(self.start_snapshot_str)
        self._end = self._parse(self.end_snapshot_str)
        if self._start > self._end:
            raise UsageError(f"Common Crawl: {self.start_snapshot_str} comes after {self.end_snapshot_str}; swap them")
        check_optional_integer(self.limit, "Common Crawl: limit")

    def generate_urls(self) -> list[str]:
        """Return the URLs of the WARC files."""
        return self.generate_data_urls(self.generate_path_urls())

    @abstractmethod
    def generate_path_urls(self) -> list[str]:
        """Return the URLs of the lists of WARC files, one for each snapshot."""

    def generate_data_urls(self, path_urls: str | list[str] | None = None) -> list[str]:
        """Return the WARC files in these lists, or all. Reads no more lists than `limit` requires."""
        urls: list[str] = []
        if path_urls is None:
            path_urls = self.generate_path_urls()
        for path_url in [path_urls] if isinstance(path_urls, str) else path_urls:
            urls += self._listed(path_url)
            if self.limit is not None and len(urls) >= self.limit:
                return urls[: self.limit]
        return urls

    def _listed(self, path_url: str) -> list[str]:
        stream = Decoded(io.BytesIO(fetch_bytes(path_url, _LIST_BYTES)), "gz" if path_url.endswith(".gz") else None)
        urls = []
        try:
            while line := stream.readline(_LINE_BYTES):
                path = line.decode("ascii", "replace").strip()
                if path and not _PLAIN_PATH.fullmatch(path):
                    raise DownloadError(path_url, f"expected a list of paths of WARC files, got {path[:80]!r}", True)
                if path:
                    urls.append(f"{self.data_prefix.rstrip('/')}/{path}")
        except FormatError as exc:
            raise DownloadError(path_url, str(exc)) from exc
        return urls

    def _parse(self, snapshot: str) -> tuple[int, int]:
        match = re.fullmatch(r"(\d{4})-(\d{1,2})", str(snapshot))
        if match is None or not 1 <= int(match[2]) <= self.most:
            raise UsageError(
                f"Common Crawl: expected a snapshot as YYYY-{self.unit}, e.g. 2024-10, with 1 to {self.most} behind "
                f"the dash; got {snapshot!r}"
            )
        return int(match[1]), int(match[2])


@dataclass
class MainCommonCrawlUrlGenerator(BaseCommonCrawlUrlGenerator):
    """The main crawls; a snapshot is a year and a week, `2024-10`."""

    index_prefix: str = "https://index.commoncrawl.org"
    unit: ClassVar[str] = "WW"
    most: ClassVar[int] = 53

    def generate_path_urls(self) -> list[str]:
        available = self._snapshots()
        selected = sorted(s for s in available if self._start <= s <= self._end)
        if not selected:
            near = ", ".join(f"{year}-{week:02d}" for year, week in sorted(available)[-5:])
            raise UsageError(
                f"Common Crawl has no main crawl from {self.start_snapshot_str} to {self.end_snapshot_str}; the "
                f"latest are {near}"
            )
        return [f"{self.data_prefix.rstrip('/')}/crawl-data/CC-MAIN-{y}-{w:02d}/warc.paths.gz" for y, w in selected]

    def _snapshots(self) -> set[tuple[int, int]]:
        url = f"{self.index_prefix.rstrip('/')}/collinfo.json"
        try:
            names = [str(entry["id"]) for entry in json.loads(fetch_bytes(url, _LIST_BYTES))]
        except (ValueError, TypeError, KeyError, RecursionError) as exc:
            raise DownloadError(url, f"expected a list of crawls with their ids: {type(exc).__name__}: {exc}") from exc
        matches = (re.fullmatch(r"CC-MAIN-(\d{4})-(\d{2})", name) for name in names)
        return {(int(match[1]), int(match[2])) for match in matches if match is not None}


@dataclass
class NewsCommonCrawlUrlGenerator(BaseCommonCrawlUrlGenerator):
    """The news crawls; a snapshot is a year and a month, `2024-03`."""

    unit: ClassVar[str] = "MM"
    most: ClassVar[int] = 12

    def generate_path_urls(self) -> list[str]:
        first, last = (year * 12 + month - 1 for year, month in (self._start, self._end))
        months = [divmod(n, 12) for n in range(first, last + 1)]
        return [
            f"{self.data_prefix.rstrip('/')}/crawl-data/CC-NEWS/{year}/{month + 1:02d}/warc.paths.gz"
            for year, month in months
        ]
