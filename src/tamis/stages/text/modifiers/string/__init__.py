"""Modifiers of plain strings."""

from tamis.stages.text.modifiers.string.c4 import BoilerPlateStringModifier, C4LineCleaner
from tamis.stages.text.modifiers.string.line_remover import LineRemover
from tamis.stages.text.modifiers.string.markdown_remover import MarkdownRemover
from tamis.stages.text.modifiers.string.newline_normalizer import NewlineNormalizer
from tamis.stages.text.modifiers.string.quotation_remover import QuotationRemover
from tamis.stages.text.modifiers.string.slicer import Slicer
from tamis.stages.text.modifiers.string.url_remover import UrlRemover
from tamis.stages.text.modifiers.string.whitespace_normalizer import WhitespaceNormalizer

__all__ = [
    "BoilerPlateStringModifier",
    "C4LineCleaner",
    "LineRemover",
    "MarkdownRemover",
    "NewlineNormalizer",
    "QuotationRemover",
    "Slicer",
    "UrlRemover",
    "WhitespaceNormalizer",
]
