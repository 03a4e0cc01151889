"""Names of columns."""

from tamis.stages.text.download.base.iterator import resolve_filename_column

__all__ = ["resolve_filename_column"]
