"""The public path of MinHashStage; the code is in tamis/dedup."""

from tamis.dedup.fuzzy.step_stages import MinHashStage

__all__ = ["MinHashStage"]
