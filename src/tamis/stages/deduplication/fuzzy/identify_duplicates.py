"""The public path of IdentifyDuplicatesStage; the code is in tamis/dedup."""

from tamis.dedup.fuzzy.step_stages import DUPLICATE_IDS_SUBDIR, IdentifyDuplicatesStage

__all__ = ["DUPLICATE_IDS_SUBDIR", "IdentifyDuplicatesStage"]
