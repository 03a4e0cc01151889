"""ImageAestheticFilterStage: images that please."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from tamis._dataclasses import dataclass
from tamis.errors import UsageError
from tamis.stages.image.filters.base import BaseFilterStage
from tamis.stages.image.heads import AestheticHead
from tamis.stages.image.models import AESTHETIC, model_place, read_weights
from tamis.stages.text import pretrained
from tamis.stages.text.models import folder as folders

_FILE = "model.safetensors"


@dataclass(repr=False)
class ImageAestheticFilterStage(BaseFilterStage):
    """Keeps images whose `aesthetic_score` is at least `score_threshold`.

    The head was trained on ratings from 1 to 10: 0.5 drops almost nothing, 5 about half of the web. `model_dir`: a
    folder with its model.safetensors, itself or below the model's id.
    """

    name: str = "image_aesthetic_filter"
    score_field: ClassVar[str] = "aesthetic_score"

    def weights_file(self, fetch: bool) -> Path:
        place = model_place(self.model_dir, AESTHETIC)
        try:
            folder = folders.fetch(place) if fetch else pretrained.local(place)
        except FileNotFoundError as exc:
            raise UsageError(f"{self.name}: {exc}") from None
        if not (folder / _FILE).is_file():
            raise UsageError(f"{self.name}: {folder} has no {_FILE}; give a model_dir that holds the head {AESTHETIC}")
        return folder / _FILE

    def load_head(self, path: Path) -> Any:
        return AestheticHead(read_weights(path), str(path))
