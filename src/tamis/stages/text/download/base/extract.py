"""From raw records to documents."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from tamis.stages.text.download.base.skips import Skips


class DocumentExtractor(Skips, ABC):
    """Turns one record of a file into one document."""

    @abstractmethod
    def extract(self, record: dict[str, Any]) -> dict[str, Any] | None:
        """Return the document, or None if the record contains none."""

    @abstractmethod
    def input_columns(self) -> list[str]:
        """Return the fields of a record that are looked at."""

    @abstractmethod
    def output_columns(self) -> list[str]:
        """Return the fields of a document."""
