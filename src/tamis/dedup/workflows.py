"""Loading the workflow of a kind of deduplication. Apart from kinds.py, which the workflows themselves import."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from tamis.dedup.kinds import DedupKind


def load_workflow(kind: DedupKind) -> type[Any]:
    """Import the workflow of a kind, with the parameters that commands and curations have."""
    workflow: type[Any] = getattr(import_module(f"tamis.dedup.{kind.name}.workflow"), kind.workflow)
    return workflow
