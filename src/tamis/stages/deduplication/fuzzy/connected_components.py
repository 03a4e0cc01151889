"""The public path of ConnectedComponentsStage; the code is in tamis/dedup."""

from tamis.dedup.fuzzy.step_stages import ConnectedComponentsStage

__all__ = ["ConnectedComponentsStage"]
