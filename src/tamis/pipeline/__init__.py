"""Stages in order, and what runs them."""

from __future__ import annotations

from tamis.pipeline.pipeline import Pipeline, Sequential
from tamis.pipeline.workflow import WorkflowBase, WorkflowRunResult

__all__ = ["Pipeline", "Sequential", "WorkflowBase", "WorkflowRunResult"]
