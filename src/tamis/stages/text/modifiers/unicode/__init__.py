"""Modifiers that know Unicode."""

from tamis.stages.text.modifiers.unicode.normalizer import UnicodeNormalizer
from tamis.stages.text.modifiers.unicode.reformatter import UnicodeReformatter

__all__ = ["UnicodeNormalizer", "UnicodeReformatter"]
