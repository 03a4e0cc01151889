"""The public path of SubstringDeduplicationWorkflow; the code is in tamis/dedup/substrings."""

from tamis.dedup.substrings.workflow import SubstringDeduplicationWorkflow

__all__ = ["SubstringDeduplicationWorkflow"]
