"""The public path of TextSemanticDeduplicationWorkflow; the code is in tamis/dedup/semantic."""

from tamis.dedup.semantic.text_steps import TextSemanticDeduplicationWorkflow

__all__ = ["TextSemanticDeduplicationWorkflow"]
