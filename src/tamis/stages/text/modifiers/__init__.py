"""Modifiers change texts; `Modify` is the stage that applies them."""

from tamis.stages.text.modifiers.doc_modifier import DocumentModifier
from tamis.stages.text.modifiers.fasttext import FastTextLabelModifier
from tamis.stages.text.modifiers.modifier import Modify
from tamis.stages.text.modifiers.pii import PiiRedactor
from tamis.stages.text.modifiers.string import (
    BoilerPlateStringModifier,
    C4LineCleaner,
    LineRemover,
    MarkdownRemover,
    NewlineNormalizer,
    QuotationRemover,
    Slicer,
    UrlRemover,
    WhitespaceNormalizer,
)
from tamis.stages.text.modifiers.unicode import UnicodeNormalizer, UnicodeReformatter

__all__ = [
    "BoilerPlateStringModifier",
    "C4LineCleaner",
    "DocumentModifier",
    "FastTextLabelModifier",
    "LineRemover",
    "MarkdownRemover",
    "Modify",
    "NewlineNormalizer",
    "PiiRedactor",
    "QuotationRemover",
    "Slicer",
    "UnicodeNormalizer",
    "UnicodeReformatter",
    "UrlRemover",
    "WhitespaceNormalizer",
]
