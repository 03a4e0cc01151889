"""The public path of KMeansReadFitWriteStage; the code is in tamis/dedup/semantic."""

from tamis.dedup.semantic.stages import KMeansReadFitWriteStage, KMeansStage

__all__ = ["KMeansReadFitWriteStage", "KMeansStage"]
