"""Stages in order, and what runs them."""

from __future__ import annotations

from tamis.pipeline.pipeline import Pipeline, Sequential

__all__ = ["Pipeline", "Sequential"]
