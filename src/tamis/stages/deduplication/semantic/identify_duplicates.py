"""The public path of IdentifyDuplicatesStage; the code is in tamis/dedup/semantic."""

from tamis.dedup.semantic.stages import IdentifyDuplicatesStage

__all__ = ["IdentifyDuplicatesStage"]
