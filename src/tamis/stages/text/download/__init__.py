"""Documents from the web: Common Crawl, Wikipedia, arXiv, and the base classes of other sources."""

from tamis.stages.text.download.arxiv import ArxivDownloadExtractStage
from tamis.stages.text.download.base import (
    DocumentDownloader,
    DocumentDownloadExtractStage,
    DocumentDownloadStage,
    DocumentExtractor,
    DocumentIterateExtractStage,
    DocumentIterator,
    URLGenerationStage,
    URLGenerator,
)
from tamis.stages.text.download.common_crawl import CommonCrawlDownloadExtractStage
from tamis.stages.text.download.wikipedia import WikipediaDownloadExtractStage

__all__ = [
    "ArxivDownloadExtractStage",
    "CommonCrawlDownloadExtractStage",
    "DocumentDownloadExtractStage",
    "DocumentDownloadStage",
    "DocumentDownloader",
    "DocumentExtractor",
    "DocumentIterateExtractStage",
    "DocumentIterator",
    "URLGenerationStage",
    "URLGenerator",
    "WikipediaDownloadExtractStage",
]
