"""Near duplicates: documents whose sets of shingles overlap."""

from tamis.dedup.fuzzy.step_stages import (
    BucketsToEdgesStage,
    ConnectedComponentsStage,
    IdentifyDuplicatesStage,
    LSHStage,
    MinHashStage,
)
from tamis.stages.deduplication.fuzzy.workflow import FuzzyDeduplicationWorkflow

__all__ = [
    "BucketsToEdgesStage",
    "ConnectedComponentsStage",
    "FuzzyDeduplicationWorkflow",
    "IdentifyDuplicatesStage",
    "LSHStage",
    "MinHashStage",
]
