"""ClipFrameExtractionStage: which frames of a clip later stages use."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from tamis._lazy import np, pa
from tamis.errors import UsageError
from tamis.stages.video.video_stage import VideoStage, own_cpus
from tamis.stores.urls import path_of
from tamis.tasks import DocumentBatch
from tamis.tasks.video import VideoTask
from tamis.video import memory_needed
from tamis.video.decoding import frames_at
from tamis.video.sampling import FrameExtractionPolicy, FramePurpose, rgb, shown_size, signature, times_of

_RATES = {FramePurpose.AESTHETICS: 1.0, FramePurpose.EMBEDDINGS: 2.0}


@dataclass(repr=False)
class ClipFrameExtractionStage(VideoStage):
    """Chooses frames of clips: a column of times in seconds for each policy and rate.

    The column has the name of NeMo Curator's frames (FrameExtractionPolicy.sequence-2000 for two a second).

    Later stages decode the frames at these times themselves, so frames never leave a stage: a second of 4K at two
    frames is 50 MB. By hand, on a VideoTask, the frames are decoded here, into `extracted_frames`, scaled to
    `target_res` (height, width).

    `target_fps`: one rate or several; without it those that `extract_purposes` need (1 for aesthetics, 2 for
    embeddings), or 2.
    """

    extraction_policies: Sequence[FrameExtractionPolicy] = (FrameExtractionPolicy.sequence,)
    extract_purposes: Sequence[FramePurpose] | None = None
    target_res: tuple[int, int] | None = None
    verbose: bool = False
    num_cpus: float = 3
    target_fps: Sequence[float] | float | None = None
    name: str = "clip_frame_extraction"

    def __post_init__(self) -> None:
        purposes = [_member(FramePurpose, p) for p in self.extract_purposes or ()]
        self.extraction_policies = [_member(FrameExtractionPolicy, p) for p in self.extraction_policies]
        target_rates = [self.target_fps] if isinstance(self.target_fps, (int, float)) else self.target_fps
        rates = list(target_rates) if target_rates is not None else sorted({_RATES[p] for p in purposes}) or [2.0]
        if not rates or not all(rate > 0 for rate in rates) or not self.extraction_policies:
            raise UsageError(f"{self.name}: target_fps must be rates above 0, got {self.target_fps!r}")
        self.rates = [float(rate) for rate in rates]
        self.resources = own_cpus(self.num_cpus, 3)

    def outputs(self) -> Any:
        return ["data"], [signature(p, r) for p in self.extraction_policies for r in self.rates]

    @staticmethod
    def lcm_multiple(fps: Sequence[float]) -> float:
        """Return the lowest rate that includes the frames of all these rates.

        >>> ClipFrameExtractionStage.lcm_multiple([2, 3]), ClipFrameExtractionStage.lcm_multiple([0.5, 2])
        (6.0, 2.0)
        """
        parts = [Fraction(rate).limit_denominator(1000) for rate in fps]
        return float(Fraction(math.lcm(*(p.numerator for p in parts)), math.gcd(*(p.denominator for p in parts))))

    def process_rows(self, batch: DocumentBatch) -> DocumentBatch:
        spans = list(zip(batch.values("start_s"), batch.values("end_s"), strict=True))
        for policy in self.extraction_policies:
            for rate in self.rates:
                times = [times_of(policy, rate, start, end) for start, end in spans]
                batch = batch.with_column(signature(policy, rate), pa.array(times, pa.list_(pa.float64())))
        return batch

    def _by_hand(self, task: VideoTask) -> VideoTask:
        task = super()._by_hand(task)
        for clip in task.data.clips:
            for name in self.output_columns():
                clip.extracted_frames[name] = self._frames(clip.source_video, clip.row[name])
        return task

    def _frames(self, path: str, times: Sequence[float]) -> np.ndarray[Any, Any]:
        frames: list[Any] = []
        for _, frame in frames_at(path_of(path), times):
            height, width = self.target_res or shown_size(frame, 1.0)[::-1]
            if not frames:
                memory_needed.reserve_frames(len(times), width, height)
            frames.append(rgb(frame, width, height))
        self._say(f"{len(frames)} frames of {path}")
        return np.stack(frames)


def _member(kind: Any, value: Any) -> Any:
    """Return a member of an enumeration, given itself or by name (the only way to write it in a recipe)."""
    if isinstance(value, kind):
        return value
    member = next((m for m in kind if str(value).rpartition(".")[2].lower() == m.name.lower()), None)
    if member is None:
        raise UsageError(f"expected one of {', '.join(m.name for m in kind)}, got {value!r}")
    return member
