"""The stages of the demo: ordinary ProcessingStages, each dropping one kind of document. No Python loop over documents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tamis.stages.base import ProcessingStage
from tamis.tasks import MISSING, NULL, TEXT, DocumentBatch


@dataclass(repr=False)
class _TextStage(ProcessingStage[DocumentBatch, DocumentBatch]):
    text_field: str = "text"

    def inputs(self) -> Any:
        return [], [self.text_field]

    def process(self, task: DocumentBatch) -> DocumentBatch:
        return task.filter(self.keep(task))

    def keep(self, task: DocumentBatch) -> Any:
        """A mask: which documents stay."""
        raise NotImplementedError


@dataclass(repr=False)
class DropMissing(_TextStage):
    """Documents that have no such field."""

    name: str = "text is missing"

    def keep(self, task: DocumentBatch) -> Any:
        return task.kinds(self.text_field) != MISSING


@dataclass(repr=False)
class DropNull(_TextStage):
    """Documents whose text is null."""

    name: str = "text is null"

    def keep(self, task: DocumentBatch) -> Any:
        return task.kinds(self.text_field) != NULL


@dataclass(repr=False)
class DropNonString(_TextStage):
    """Documents whose text is a number, a list or an object."""

    name: str = "text is no string"

    def keep(self, task: DocumentBatch) -> Any:
        return task.kinds(self.text_field) == TEXT


@dataclass(repr=False)
class DropJunk(_TextStage):
    """Documents without a single letter or digit."""

    name: str = "text is junk"

    def keep(self, task: DocumentBatch) -> Any:
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        text = task.column(self.text_field)
        if pa.types.is_null(text.type):
            return np.zeros(task.num_items, bool)
        return np.asarray(pc.fill_null(pc.match_substring_regex(text, r"[\pL\pN]"), False))
