"""The public path of semantic deduplication; the code is in tamis/dedup/semantic."""

from tamis.dedup.semantic.ranking import RankingStrategy
from tamis.dedup.semantic.stages import IdentifyDuplicatesStage, KMeansStage, PairwiseStage
from tamis.dedup.semantic.workflow import SemanticDeduplicationWorkflow

__all__ = [
    "IdentifyDuplicatesStage",
    "KMeansStage",
    "PairwiseStage",
    "RankingStrategy",
    "SemanticDeduplicationWorkflow",
]
