"""The public path of SemanticDeduplicationWorkflow; the code is in tamis/dedup/semantic."""

from tamis.dedup.semantic.workflow import SemanticDeduplicationWorkflow

__all__ = ["SemanticDeduplicationWorkflow"]
