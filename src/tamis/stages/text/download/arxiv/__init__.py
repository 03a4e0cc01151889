"""arXiv: the sources of its papers, as documents."""

from tamis.stages.text.download.arxiv.download import ArxivDownloader
from tamis.stages.text.download.arxiv.extract import ArxivExtractor
from tamis.stages.text.download.arxiv.iterator import ArxivIterator
from tamis.stages.text.download.arxiv.stage import ArxivDownloadExtractStage
from tamis.stages.text.download.arxiv.url_generation import ArxivUrlGenerator

__all__ = ["ArxivDownloadExtractStage", "ArxivDownloader", "ArxivExtractor", "ArxivIterator", "ArxivUrlGenerator"]
