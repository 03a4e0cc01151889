"""The public path of BucketsToEdgesStage; the code is in tamis/dedup."""

from tamis.dedup.fuzzy.step_stages import BucketsToEdgesStage

__all__ = ["BucketsToEdgesStage"]
