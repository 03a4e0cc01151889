"""ImageSizeFilterStage: images that are large enough, and not too long, by their headers alone."""

from __future__ import annotations

from typing import ClassVar

from tamis._dataclasses import dataclass
from tamis._lazy import np
from tamis.errors import UsageError
from tamis.stages.base import DropRule, ProcessingStage
from tamis.stages.traits import StageTraits
from tamis.tasks import DocumentBatch


@dataclass(repr=False)
class ImageSizeFilterStage(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Keeps images by the lengths and the ratio of their sides.

    The shorter side has at least `min_side` pixels, the longer side at most `max_side`, and the longer side is at most
    `max_aspect_ratio` times the shorter one. None disables a rule. Nothing is decoded.
    """

    min_side: int | None = 64
    max_side: int | None = None
    max_aspect_ratio: float | None = None
    name: str = "image_size_filter"
    traits: ClassVar[StageTraits] = StageTraits(only_drops=True)
    columns_in = ("width", "height")

    def __post_init__(self) -> None:
        for name in ("min_side", "max_side", "max_aspect_ratio"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0):
                raise UsageError(f"{self.name}: {name} must be a number above 0, or None, got {value!r}")
        if self.max_aspect_ratio is not None and self.max_aspect_ratio < 1:
            raise UsageError(
                f"{self.name}: max_aspect_ratio must be at least 1 (a square), got {self.max_aspect_ratio!r}: it is "
                "the longer side through the shorter"
            )

    def rules(self) -> list[DropRule]:
        limits = [("min_side", "shorter side", "at_least"), ("max_side", "longer side", "at_most"),
                ("max_aspect_ratio", "aspect ratio", "at_most")]  # fmt: skip
        return [
            DropRule(name, score, {name: getattr(self, name)}, **{side: name})  # type: ignore[arg-type]
            for name, score, side in limits
            if getattr(self, name) is not None
        ]

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        width = batch.column("width").to_numpy(zero_copy_only=False).astype(np.float64)
        height = batch.column("height").to_numpy(zero_copy_only=False).astype(np.float64)
        short, long = np.minimum(width, height), np.maximum(width, height)
        measured = {"shorter side": short, "longer side": long, "aspect ratio": long / short}
        pending = np.arange(batch.num_items)
        for rule in self.rules():
            values, limit = measured[rule.score][pending], next(iter(rule.limits.values()))
            self._note_scores(rule.score, values, batch.serial[pending])
            stays = values >= limit if rule.at_least else values <= limit
            self._note_drops(batch.serial[pending[~stays]], rule.name, values[~stays].tolist(), dict(rule.limits))
            pending = pending[stays]
        return batch if len(pending) == batch.num_items else batch.take(pending)
