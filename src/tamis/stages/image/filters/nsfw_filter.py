"""ImageNSFWFilterStage: images that are safe for work."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, ClassVar

from tamis._dataclasses import dataclass
from tamis.errors import UsageError, first_line, optional
from tamis.stages.image.filters.base import BaseFilterStage
from tamis.stages.image.heads import NsfwHead
from tamis.stages.image.models import NSFW, model_place, read_weights

_FILES = ("model.safetensors", "clip_autokeras_binary_nsfw.safetensors", "clip_autokeras_binary_nsfw.pth")


@dataclass(repr=False)
class ImageNSFWFilterStage(BaseFilterStage):
    """Keeps images whose `nsfw_score`, a probability, is below `score_threshold`.

    `weights_path`: the file of the head (safetensors, or a file of torch, of which only plain weights are read); else
    it is looked for in `model_dir`, itself or below the model's id.
    """

    name: str = "image_nsfw_filter"
    weights_path: str | None = None
    score_field: ClassVar[str] = "nsfw_score"
    keeps_low: ClassVar[bool] = True

    def weights_file(self, fetch: bool) -> Path:
        if self.weights_path is not None:
            path = Path(os.path.expanduser(self.weights_path))
            if not path.is_file():
                raise UsageError(f"{self.name}: weights_path: there is no file {path}")
            return path
        place = Path(model_place(self.model_dir, NSFW))
        candidates = [place / name for name in _FILES if (place / name).is_file()]
        if candidates:
            return candidates[0]
        if self.model_dir is not None:
            raise UsageError(f"{self.name}: {place} has none of {', '.join(_FILES)}; give weights_path")
        return _from_hub(self.name, fetch)

    def load_head(self, path: Path) -> Any:
        return NsfwHead(read_weights(path), str(path))


def _from_hub(stage: str, fetch: bool) -> Path:
    hub = optional("huggingface_hub", stage, "models")
    try:
        return Path(hub.hf_hub_download(NSFW, _FILES[-1], local_files_only=not fetch))
    except Exception as exc:
        raise UsageError(
            f"{stage}: the weights {NSFW}/{_FILES[-1]} are not on this machine and cannot be downloaded "
            f"({first_line(exc, 200)}); give weights_path or model_dir"
        ) from None
