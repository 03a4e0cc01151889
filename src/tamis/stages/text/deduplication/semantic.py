"""The public path of TextSemanticDeduplicationWorkflow; the code is in tamis/dedup/semantic."""

from tamis.dedup.semantic.text_workflow import TextSemanticDeduplicationWorkflow

__all__ = ["TextSemanticDeduplicationWorkflow"]
