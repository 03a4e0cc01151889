"""ClipAestheticFilterStage: clips that look good."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from tamis._lazy import np, pa
from tamis.errors import UsageError, check_choice
from tamis.stages.base import DropRule
from tamis.stages.image.models import AESTHETIC, CLIP, image_resources, read_weights
from tamis.stages.text import pretrained
from tamis.stages.text.models import folder as folders
from tamis.stages.video.filtering.thresholds import at_least, keep_by
from tamis.stages.video.models.device import model_folder, torch_device, weights_file
from tamis.stages.video.video_stage import SPAN, NetworkStage
from tamis.stores.urls import path_of
from tamis.tasks import DocumentBatch
from tamis.video.sampling import FrameExtractionPolicy, signature, squares_at, times_of

SCORE = "aesthetic_score"
_DEFAULT_DIR = "models/clip_aesthetic"
_REDUCTIONS = ("min", "mean")
_AT_ONCE = 16  # frames that the network sees together
_FILE = "model.safetensors"


@dataclass(repr=False)
class ClipAestheticFilterStage(NetworkStage):
    """Scores clips by CLIP and the aesthetic head, and drops those below `score_threshold`.

    `target_fps` frames a second are scored; the minimum (or mean) counts. The head was trained on ratings from 1 to 10:
    0.5 drops almost nothing.

    Decoding and scoring are one step: sixteen squares of 224 pixels are all that is held. `model_dir`: a folder that
    holds both models, below their ids; the default is taken where it is there, else the hub's cache, or the hub. On a
    GPU where there is one.
    """

    model_dir: str = _DEFAULT_DIR
    score_threshold: float = 0.5
    reduction: str = "min"
    target_fps: float = 1.0
    num_gpus_per_worker: float = 0.25
    verbose: bool = False
    name: str = "clip_aesthetic_filter"
    _network: Any = field(default=None, init=False)
    _head: Any = field(default=None, init=False)
    loaded: ClassVar[tuple[str, ...]] = ("_network", "_head")
    columns_in = (*SPAN, "pixel_aspect")
    columns_out = (SCORE,)

    def __post_init__(self) -> None:
        check_choice(f"{self.name}: reduction", self.reduction, _REDUCTIONS)
        if not self.target_fps > 0:
            raise UsageError(f"{self.name}: target_fps must be more than 0, got {self.target_fps!r}")
        self.resources = image_resources(self.num_gpus_per_worker)

    def rules(self) -> list[DropRule]:
        return [at_least(self.name, SCORE, "score_threshold", self.score_threshold)]

    # -- life cycle ---------------------------------------------------------------------------------------------------
    def _fetch(self) -> tuple[folders.ModelFolder, Path]:
        """Download both models: CLIP, and the weights of the head."""
        clip = folders.open_folder(model_folder(self.model_dir, CLIP, _DEFAULT_DIR))
        model_dir = None if self.model_dir == _DEFAULT_DIR and not Path(self.model_dir).is_dir() else self.model_dir
        return clip, weights_file(model_dir, AESTHETIC, (_FILE,))

    def _weight_bytes(self) -> int:
        return folders.weight_bytes(model_folder(self.model_dir, CLIP, _DEFAULT_DIR, find=pretrained.local))

    def _load(self) -> None:
        from tamis.stages.image.embedders.clip_vision import ClipVision
        from tamis.stages.image.heads import AestheticHead

        device = torch_device(self.name, self.resources)
        clip, path = self._fetch()
        self._head = AestheticHead(read_weights(path), str(path))
        self._network = ClipVision(clip, device, _AT_ONCE)

    # -- work ---------------------------------------------------------------------------------------------------------
    def process_rows(self, batch: DocumentBatch) -> DocumentBatch:
        self.setup()
        chosen = signature(FrameExtractionPolicy.sequence, self.target_fps)
        stored_scores = batch.values(chosen) if chosen in batch.get_columns() else [None] * batch.num_items
        columns = (*(batch.values(c) for c in (*SPAN, "pixel_aspect")), stored_scores)
        batch, scores = self._of_each(batch, columns, self._score)
        return keep_by(self, batch.with_column(SCORE, pa.array(scores, pa.float64())), self.rules())

    def _score(self, path: str, start: float, end: float, aspect: float | None, times: Sequence[float] | None) -> float:
        at = times or times_of(FrameExtractionPolicy.sequence, self.target_fps, start, end)
        scores: list[float] = []
        waiting: list[Any] = []

        def ask() -> None:
            scores.extend(self._head(self._network(waiting)).tolist())
            waiting.clear()

        for frame in squares_at(path_of(path), at, self._network.side, aspect or 1.0):
            waiting.append(frame)
            if len(waiting) == _AT_ONCE:
                ask()
        if waiting:
            ask()
        return float(min(scores) if self.reduction == "min" else np.mean(scores))
