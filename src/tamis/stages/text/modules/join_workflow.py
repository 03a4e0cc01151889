"""The public path of DocumentJoinWorkflow; the code is in tamis/dedup/join_segments."""

from tamis.dedup.join_segments.workflow import DocumentJoinWorkflow

__all__ = ["DocumentJoinWorkflow"]
