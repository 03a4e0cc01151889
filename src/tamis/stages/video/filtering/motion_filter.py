"""Clips that hardly move go: MotionVectorDecodeStage measures, MotionFilterStage drops."""

from __future__ import annotations

from dataclasses import dataclass

from tamis._lazy import pa
from tamis.errors import UsageError
from tamis.stages.base import DropRule
from tamis.stages.video.filtering.thresholds import at_least, keep_by
from tamis.stages.video.video_stage import SPAN, VideoStage, own_cpus
from tamis.stores.urls import path_of
from tamis.tasks import DocumentBatch
from tamis.video.motion import Motion
from tamis.video.vectors import measure_motion

SCORES = ("motion_score_global_mean", "motion_score_per_patch_min_256")
ERROR = "motion_error"
_DECODING_CPUS = 2.0


@dataclass(repr=False)
class MotionVectorDecodeStage(VideoStage):
    """Measures the motion of clips from the motion vectors of the codec.

    If the codec exposes none, those of a small MPEG-4 copy are used.

    Adds motion_score_global_mean and motion_score_per_patch_min_256 (video/motion.py says what they are). `target_fps`
    frames a second are looked at, for `target_duration_ratio` of the clip. Decoding and scoring are one step: only the
    scores leave this stage. Both are -1 where there is nothing to measure, and motion_error says why
    (resolution_too_small: a side below 256).
    """

    num_cpus_per_worker: float = 6.0
    verbose: bool = False
    target_fps: float = 2.0
    target_duration_ratio: float = 0.5
    name: str = "motion_vector_decoding"
    columns_in = (*SPAN, "codec", "fps")
    columns_out = (*SCORES, ERROR)

    def __post_init__(self) -> None:
        if not self.target_fps > 0 or not 0 < self.target_duration_ratio <= 1:
            raise UsageError(f"{self.name}: target_fps must be more than 0, and target_duration_ratio in (0, 1]")
        self.resources = own_cpus(self.num_cpus_per_worker, 6.0, _DECODING_CPUS)

    def process_rows(self, batch: DocumentBatch) -> DocumentBatch:
        def measured(path: str, codec: str, fps: float, start: float, end: float) -> Motion:
            return measure_motion(path_of(path), codec, fps, start, end, self.target_fps, self.target_duration_ratio)

        columns = (batch.values(c) for c in ("path", "codec", "fps", "start_s", "end_s"))
        batch, motions = self._of_each(batch, columns, measured)
        self._say(f"{len(motions)} clips measured")
        batch = batch.with_column(SCORES[0], pa.array([m.global_mean for m in motions], pa.float64()))
        batch = batch.with_column(SCORES[1], pa.array([m.per_patch_min_256 for m in motions], pa.float64()))
        return batch.with_column(ERROR, pa.array([m.error for m in motions], pa.large_string()))


@dataclass(repr=False)
class MotionFilterStage(VideoStage):
    """Drops clips whose motion is below a threshold: on average, or in the patch that moves least.

    `score_only`: drops none.

    Scores are two numbers a clip by now, so there is nothing for a GPU, and no batch to bound.
    """

    score_only: bool = False
    global_mean_threshold: float = 0.00098
    per_patch_min_256_threshold: float = 1e-06
    num_gpus_per_worker: float = 0
    motion_filter_batch_size: int = 256
    verbose: bool = False
    name: str = "motion_filter"
    columns_in = SCORES

    def __post_init__(self) -> None:
        if self.num_gpus_per_worker or self.motion_filter_batch_size < 1:
            raise UsageError(
                f"{self.name}: num_gpus_per_worker must be 0 and motion_filter_batch_size at least 1: it compares two "
                "numbers a clip"
            )

    def rules(self) -> list[DropRule]:
        if self.score_only:
            return []
        return [
            at_least(f"{self.name}: global mean", SCORES[0], "global_mean_threshold", self.global_mean_threshold),
            at_least(
                f"{self.name}: stillest patch",
                SCORES[1],
                "per_patch_min_256_threshold",
                self.per_patch_min_256_threshold,
            ),
        ]

    def process_rows(self, batch: DocumentBatch) -> DocumentBatch:
        survivors = keep_by(self, batch, self.rules())
        self._say(f"{survivors.num_items} of {batch.num_items} clips move enough")
        return survivors
