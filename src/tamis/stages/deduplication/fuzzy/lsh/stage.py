"""The public path of LSHStage; the code is in tamis/dedup."""

from tamis.dedup.fuzzy.step_stages import LSHStage

__all__ = ["LSHStage"]
