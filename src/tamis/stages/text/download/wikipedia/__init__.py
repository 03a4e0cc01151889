"""Wikipedia: the articles of a dump, as documents."""

from tamis.stages.text.download.wikipedia.download import WikipediaDownloader
from tamis.stages.text.download.wikipedia.extract import WikipediaExtractor
from tamis.stages.text.download.wikipedia.iterator import WikipediaIterator
from tamis.stages.text.download.wikipedia.stage import WikipediaDownloadExtractStage
from tamis.stages.text.download.wikipedia.url_generation import WikipediaUrlGenerator

__all__ = [
    "WikipediaDownloadExtractStage",
    "WikipediaDownloader",
    "WikipediaExtractor",
    "WikipediaIterator",
    "WikipediaUrlGenerator",
]
