"""The public path of LineDeduplicationWorkflow; the code is in tamis/dedup/lines."""

from tamis.dedup.lines.workflow import LineDeduplicationWorkflow

__all__ = ["LineDeduplicationWorkflow"]
