"""Another path of DocumentFilter, which users of NeMo Curator know."""

from tamis.stages.text.filters.base import DocumentFilter

__all__ = ["DocumentFilter"]
