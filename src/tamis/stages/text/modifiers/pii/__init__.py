"""Personal data: finding and redacting it."""

from tamis.stages.text.modifiers.pii.redactor import KINDS, PiiRedactor

__all__ = ["KINDS", "PiiRedactor"]
