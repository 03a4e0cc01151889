"""Common Crawl: its main and its news crawls, as documents."""

from tamis.stages.text.download.common_crawl.download import CommonCrawlWARCDownloader, CommonCrawlWARCReader
from tamis.stages.text.download.common_crawl.extract import CommonCrawlHTMLExtractor
from tamis.stages.text.download.common_crawl.stage import CommonCrawlDownloadExtractStage
from tamis.stages.text.download.common_crawl.url_generation import (
    MainCommonCrawlUrlGenerator,
    NewsCommonCrawlUrlGenerator,
)
from tamis.stages.text.download.common_crawl.warc_iterator import CommonCrawlWarcIterator

__all__ = [
    "CommonCrawlDownloadExtractStage",
    "CommonCrawlHTMLExtractor",
    "CommonCrawlWARCDownloader",
    "CommonCrawlWARCReader",
    "CommonCrawlWarcIterator",
    "MainCommonCrawlUrlGenerator",
    "NewsCommonCrawlUrlGenerator",
]
