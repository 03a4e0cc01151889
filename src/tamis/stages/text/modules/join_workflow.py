"""The public path of DocumentJoinWorkflow; the code is in tamis/dedup/segments."""

from tamis.dedup.segments.workflow import DocumentJoinWorkflow

__all__ = ["DocumentJoinWorkflow"]
