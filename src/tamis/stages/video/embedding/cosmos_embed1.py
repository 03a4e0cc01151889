"""Embeddings of clips by Cosmos-Embed1: one stage chooses eight frames, another embeds them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from tamis._lazy import np, pa
from tamis.errors import UsageError, check_choice
from tamis.stages.text import pretrained
from tamis.stages.video.models.cosmos_embed1 import N_FRAMES, VARIANTS, CosmosEmbed1, checked_folder, repository
from tamis.stages.video.models.device import gpu_memory, model_folder, torch_device
from tamis.stages.video.video_stage import SPAN, NetworkStage, VideoStage, own_cpus
from tamis.stores.urls import path_of
from tamis.tasks import DocumentBatch
from tamis.video.sampling import FrameExtractionPolicy, rgb, times_of

TIMES = "cosmos_embed1_times"
EMBEDDING = "cosmos_embed1_embedding"
MATCH, MATCH_SCORE = "cosmos_embed1_text_match", "cosmos_embed1_text_score"
_DEFAULT_DIR = "models/cosmos_embed1"
_MOST_FPS = 20.0


@dataclass(repr=False)
class CosmosEmbed1FrameCreationStage(VideoStage):
    """Chooses the eight frames of each clip, evenly among those at `target_fps` a second.

    Of a clip with fewer than eight at that rate it is doubled, up to 20. Adds cosmos_embed1_times, in seconds; the
    frames are decoded by the stage that embeds them.
    """

    model_dir: str = _DEFAULT_DIR
    variant: str = "336p"
    target_fps: float = 2.0
    verbose: bool = False
    num_cpus: float = 3
    name: str = "cosmos_embed1"
    columns_out = (TIMES,)

    def __post_init__(self) -> None:
        check_choice(f"{self.name}: variant", self.variant, VARIANTS)
        if not self.target_fps > 0:
            raise UsageError(f"{self.name}: target_fps must be more than 0, got {self.target_fps!r}")
        self.resources = own_cpus(self.num_cpus, 3)

    def process_rows(self, batch: DocumentBatch) -> DocumentBatch:
        times = [
            eight_times(a, b, self.target_fps)
            for a, b in zip(batch.values("start_s"), batch.values("end_s"), strict=True)
        ]
        return batch.with_column(TIMES, pa.array(times, pa.list_(pa.float64())))


def eight_times(start_s: float, end_s: float, fps: float) -> list[float]:
    """Return eight times, spread over all that a rate gives, with the last one.

    >>> eight_times(0.0, 10.0, 2.0)[:2], eight_times(0.0, 10.0, 2.0)[-1], len(eight_times(0.0, 0.3, 2.0))
    ([0.0, 1.5], 9.5, 8)
    """
    at = times_of(FrameExtractionPolicy.sequence, fps, start_s, end_s)
    while len(at) < N_FRAMES and fps < _MOST_FPS:
        fps = min(_MOST_FPS, fps * 2)
        at = times_of(FrameExtractionPolicy.sequence, fps, start_s, end_s)
    return [at[round(i * (len(at) - 1) / (N_FRAMES - 1))] for i in range(N_FRAMES)]


@dataclass(repr=False)
class CosmosEmbed1EmbeddingStage(NetworkStage):
    """Adds cosmos_embed1_embedding: 256 numbers (224p) or 768, of length 1.

    With `texts_to_verify` also the text that fits best (cosmos_embed1_text_match) and its probability among them.

    The model's code is stored with its weights; it runs only with `trust_remote_code=True`. `model_dir`: a folder
    that holds it, itself or below nvidia/Cosmos-Embed1-336p; the default is taken where it is there, else the hub's
    cache, or the hub. bfloat16 on a GPU.
    """

    model_dir: str = _DEFAULT_DIR
    variant: str = "336p"
    texts_to_verify: Sequence[str] | None = None
    gpu_memory_gb: float = 20
    verbose: bool = False
    name: str = "cosmos_embed1_embedding"
    trust_remote_code: bool = field(default=False, kw_only=True)
    _model: Any = field(default=None, init=False)
    _texts: Any = field(default=None, init=False)
    loaded: ClassVar[tuple[str, ...]] = ("_model", "_texts")

    def __post_init__(self) -> None:
        check_choice(f"{self.name}: variant", self.variant, VARIANTS)
        if isinstance(self.texts_to_verify, str):
            raise UsageError(f"{self.name}: texts_to_verify must be a list of texts")
        self.resources = gpu_memory(self.gpu_memory_gb, 20)

    def outputs(self) -> Any:
        return ["data"], [EMBEDDING, *([MATCH, MATCH_SCORE] if self.texts_to_verify else [])]

    def _load(self) -> None:
        self._model = CosmosEmbed1(self._fetch(), torch_device(self.name, self.resources))
        self._texts = self._model.texts(list(self.texts_to_verify)) if self.texts_to_verify else None

    def _fetch(self) -> Any:
        if not self.trust_remote_code:  # reported before anything is fetched
            checked_folder(Path(self.model_dir), False, self.name)
        path = model_folder(self.model_dir, repository(self.variant), _DEFAULT_DIR, with_code=True)
        return checked_folder(path, True, self.name)

    def _weight_bytes(self) -> int:
        path = model_folder(
            self.model_dir, repository(self.variant), _DEFAULT_DIR, with_code=True, find=pretrained.local
        )
        return checked_folder(path, self.trust_remote_code, self.name).n_bytes

    # -- work ---------------------------------------------------------------------------------------------------------
    def process_rows(self, batch: DocumentBatch) -> DocumentBatch:
        from tamis.stages.image.embedders.clip_embedder import as_column

        self.setup()
        times = batch.values(TIMES) if TIMES in batch.get_columns() else [None] * batch.num_items
        columns = (*(batch.values(c) for c in SPAN), times)
        batch, vectors = self._of_each(batch, columns, self._vector)
        batch = batch.with_column(EMBEDDING, as_column(vectors))
        if self._texts is None:
            return batch
        alike = np.stack(vectors) @ self._texts.T * 100.0 if vectors else np.zeros((0, len(self._texts)))
        shares = np.exp(alike - alike.max(axis=1, keepdims=True, initial=0.0))
        shares /= shares.sum(axis=1, keepdims=True)
        best = shares.argmax(axis=1) if len(shares) else np.zeros(0, np.int64)
        texts = list(self.texts_to_verify or ())
        batch = batch.with_column(MATCH, pa.array([texts[i] for i in best], pa.large_string()))
        return batch.with_column(MATCH_SCORE, pa.array([float(shares[i, k]) for i, k in enumerate(best)], pa.float64()))

    def _vector(self, path: str, start: float, end: float, times: Sequence[float] | None) -> Any:
        from tamis.video.decoding import frames_at

        side = VARIANTS[self.variant][0]
        frames = [
            rgb(frame, side, side) for _, frame in frames_at(path_of(path), times or eight_times(start, end, 2.0))
        ]
        return self._model.videos(np.stack(frames)[None])[0]
