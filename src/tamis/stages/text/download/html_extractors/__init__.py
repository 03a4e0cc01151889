"""From HTML to the text of its main part, by one of three libraries. Needs the extra `html`."""

from tamis.stages.text.download.html_extractors.base import HTMLExtractorAlgorithm
from tamis.stages.text.download.html_extractors.justext import JusTextExtractor
from tamis.stages.text.download.html_extractors.resiliparse import ResiliparseExtractor
from tamis.stages.text.download.html_extractors.trafilatura import TrafilaturaExtractor

__all__ = ["HTMLExtractorAlgorithm", "JusTextExtractor", "ResiliparseExtractor", "TrafilaturaExtractor"]
