"""CommonCrawlDownloadExtractStage: documents of the main or the news crawls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tamis.errors import UsageError
from tamis.sizes import check_optional_integer
from tamis.stages.text.download.base.stage import DocumentDownloadExtractStage
from tamis.stages.text.download.common_crawl.download import CommonCrawlWARCDownloader
from tamis.stages.text.download.common_crawl.extract import CommonCrawlHTMLExtractor
from tamis.stages.text.download.common_crawl.url_generation import (
    MainCommonCrawlUrlGenerator,
    NewsCommonCrawlUrlGenerator,
)
from tamis.stages.text.download.common_crawl.warc_iterator import CommonCrawlWarcIterator
from tamis.stages.text.download.html_extractors import HTMLExtractorAlgorithm, JusTextExtractor

_CRAWLS = {"main": MainCommonCrawlUrlGenerator, "news": NewsCommonCrawlUrlGenerator}


class CommonCrawlDownloadExtractStage(DocumentDownloadExtractStage):
    """Documents with url, warc_id, source_id, language and text (and file_name) of all snapshots from start to end.

    Snapshots are YYYY-WW (`crawl_type="main"`) or YYYY-MM ("news"). `html_extraction`: "justext" (default),
    "resiliparse", "trafilatura" or an object. `url_limit` bounds the number of WARC files, `record_limit` the pages of
    each.
    """

    def __init__(
        self,
        start_snapshot: str,
        end_snapshot: str,
        download_dir: str,
        crawl_type: str = "main",
        html_extraction: HTMLExtractorAlgorithm | str | None = None,
        html_extraction_kwargs: Mapping[str, Any] | None = None,
        stop_lists: Mapping[str, frozenset[str]] | None = None,
        use_aws_to_download: bool = False,
        verbose: bool = False,
        url_limit: int | None = None,
        record_limit: int | None = None,
        add_filename_column: bool | str = True,
        extractor_max_calls_per_worker: int | None = None,
        download_limit: int | str | None = None,
        remove_files: bool = False,
    ) -> None:
        if crawl_type not in _CRAWLS:
            raise UsageError(f"crawl_type: expected one of {', '.join(_CRAWLS)}, got {crawl_type!r}")
        self.crawl_type, self.start_snapshot, self.end_snapshot = crawl_type, start_snapshot, end_snapshot
        extractor = CommonCrawlHTMLExtractor(html_extraction, html_extraction_kwargs, stop_lists)
        check_optional_integer(url_limit, "CommonCrawlDownloadExtractStage: url_limit")
        if extractor_max_calls_per_worker is None and isinstance(extractor.algorithm, JusTextExtractor):
            extractor_max_calls_per_worker = 2  # for Ray, which does not watch its workers for leaks; jusText has some
        super().__init__(
            url_generator=_CRAWLS[crawl_type](start_snapshot, end_snapshot, limit=url_limit),
            downloader=CommonCrawlWARCDownloader(download_dir, use_aws_to_download, verbose),
            iterator=CommonCrawlWarcIterator(),
            extractor=extractor,
            url_limit=url_limit,
            record_limit=record_limit,
            add_filename_column=add_filename_column,
            download_limit=download_limit,
            remove_files=remove_files,
            extractor_max_calls_per_worker=extractor_max_calls_per_worker,
        )
        self.name = f"common_crawl_{crawl_type}_pipeline"

    def get_description(self) -> str:
        return f"Common Crawl ({self.crawl_type}) from {self.start_snapshot} to {self.end_snapshot}"
