"""ClipAestheticFilterStage: clips that look good."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tamis.errors import UsageError
from tamis.film.opening import FilmFault
from tamis.film.sampling import FrameExtractionPolicy, signature, squares_at, times_of
from tamis.formats.input_files.names import path_of
from tamis.stages.base import Rule
from tamis.stages.image.models import AESTHETIC, CLIP, image_resources
from tamis.stages.text.models import folder as folders
from tamis.stages.video.film_stage import SPAN, FilmStage, good_rows
from tamis.stages.video.filtering.thresholds import at_least, keep_by
from tamis.stages.video.models.device import model_folder, torch_device, weights_file
from tamis.tasks import DocumentBatch

SCORE = "aesthetic_score"
_REDUCTIONS = ("min", "mean")
_AT_ONCE = 16  # pictures that the network sees together
_FILE = "model.safetensors"


@dataclass(repr=False)
class ClipAestheticFilterStage(FilmStage):
    """Scores clips by CLIP and the aesthetic head, `target_fps` frames a second, and drops those whose least (or mean) score is below
    `score_threshold`. The head was trained on ratings from 1 to 10: 0.5 drops almost nothing.

    Decoding and scoring are one step: sixteen squares of 224 pixels are all that is held. `model_dir`: a folder that holds both models,
    below their ids; the default is taken where it is there, else the hub's cache, or the hub. On a GPU where there is one.
    """

    model_dir: str = "models/clip_aesthetic"
    score_threshold: float = 0.5
    reduction: str = "min"
    target_fps: float = 1.0
    num_gpus_per_worker: float = 0.25
    verbose: bool = False
    name: str = "clip_aesthetic_filter"
    _network: Any = field(default=None, init=False)
    _head: Any = field(default=None, init=False)

    def __post_init__(self) -> None:
        if self.reduction not in _REDUCTIONS:
            raise UsageError(f"{self.name}: reduction must be one of {', '.join(_REDUCTIONS)}, got {self.reduction!r}")
        if not self.target_fps > 0:
            raise UsageError(f"{self.name}: target_fps must be more than 0, got {self.target_fps!r}")
        self.resources = image_resources(self.num_gpus_per_worker)

    def inputs(self) -> Any:
        return ["data"], [*SPAN, "pixel_aspect"]

    def outputs(self) -> Any:
        return ["data"], [SCORE]

    def rules(self) -> list[Rule]:
        return [at_least(self.name, SCORE, "score_threshold", self.score_threshold)]

    # -- life cycle -------------------------------------------------------------------------------------------------------
    def setup_on_node(self, node_info: Any = None, worker_metadata: Any = None) -> None:
        """Both models are fetched; without a GPU they are loaded once, and workers share their pages."""
        folders.open_folder(model_folder(self.model_dir, CLIP, _DEFAULT_DIR))
        weights_file(_given(self.model_dir), AESTHETIC, (_FILE,))
        if not self.resources.requires_gpu:
            self.setup()

    def setup(self, worker_metadata: Any = None) -> None:
        if self._network is None:
            from tamis.stages.image.embedders.clip_vision import ClipVision
            from tamis.stages.image.heads import AestheticHead
            from tamis.stages.image.models import read_weights

            device = torch_device(self.name, self.resources)
            path = weights_file(_given(self.model_dir), AESTHETIC, (_FILE,))
            self._head = AestheticHead(read_weights(path), str(path))
            clip = folders.open_folder(model_folder(self.model_dir, CLIP, _DEFAULT_DIR))
            self._network = ClipVision(clip, device, _AT_ONCE)

    def teardown(self) -> None:
        self._network = self._head = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_network": None, "_head": None}

    # -- work ---------------------------------------------------------------------------------------------------------------
    def process_rows(self, batch: DocumentBatch) -> DocumentBatch:
        import pyarrow as pa

        self.setup()
        chosen = signature(FrameExtractionPolicy.sequence, self.target_fps)
        known = batch.values(chosen) if chosen in batch.get_columns() else [None] * batch.num_items
        found: list[float | FilmFault] = []
        columns = (batch.values(c) for c in (*SPAN, "pixel_aspect"))
        for path, start, end, aspect, times in zip(*columns, known, strict=True):
            try:
                at = times or times_of(FrameExtractionPolicy.sequence, self.target_fps, start, end)
                found.append(self._score(path_of(path), at, aspect or 1.0))
            except FilmFault as exc:
                found.append(exc)
        batch, scores = good_rows(self, batch, found)
        return keep_by(self, batch.with_column(SCORE, pa.array(scores, pa.float64())), self.rules())

    def _score(self, path: str, times: Sequence[float], aspect: float) -> float:
        import numpy as np

        scores: list[float] = []
        waiting: list[Any] = []

        def ask() -> None:
            scores.extend(self._head(self._network(waiting)).tolist())
            waiting.clear()

        for picture in squares_at(path, times, self._network.side, aspect):
            waiting.append(picture)
            if len(waiting) == _AT_ONCE:
                ask()
        if waiting:
            ask()
        return float(min(scores) if self.reduction == "min" else np.mean(scores))


_DEFAULT_DIR = "models/clip_aesthetic"


def _given(model_dir: str) -> str | None:
    """The folder that was given; None where the default was left as it is, and is not there."""
    from pathlib import Path

    return None if model_dir == _DEFAULT_DIR and not Path(model_dir).is_dir() else model_dir
