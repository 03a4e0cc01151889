"""Preparing texts for fastText."""

from tamis.stages.text.modifiers.fasttext.label import FastTextLabelModifier

__all__ = ["FastTextLabelModifier"]
