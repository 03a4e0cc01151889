"""CaptionPreparationStage: windows of clips, the frames of each that a model sees, and the question about them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tamis._lazy import pa
from tamis.errors import UsageError, check_choice
from tamis.stages.video.caption.prompts import CAPTION, prompt_of
from tamis.stages.video.video_stage import SPAN, VideoStage
from tamis.tasks import DocumentBatch
from tamis.video.windows import compute_windows, smart_nframes

WINDOWS, PROMPT = "caption_windows", "caption_prompt"
_TYPES = ("float32", "float16", "bfloat16", "uint8")


@dataclass(repr=False)
class CaptionPreparationStage(VideoStage):
    """Cuts clips into windows of `window_size` frames, each with a caption of its own.

    A remainder is a window of its own from `remainder_threshold` frames on, else part of the last one. `sampling_fps`
    frames a second of each window are chosen, evenly.

    Adds caption_windows (first and last frame, and the times of the chosen frames in seconds) and caption_prompt: the
    text of `prompt_variant` (default, av, av-surveillance), or `prompt_text`.

    The captioning stage decodes the frames and converts them for its model: `model_variant` and `preprocess_dtype` are
    accepted for compatibility with NeMo Curator. So is `generate_previews`, which has no effect: a PreviewStage makes
    one preview of each clip.
    """

    model_variant: str = "qwen2.5"
    prompt_variant: str = "default"
    prompt_text: str | None = None
    verbose: bool = False
    sampling_fps: float = 2.0
    window_size: int = 256
    remainder_threshold: int = 128
    preprocess_dtype: str = "float32"
    generate_previews: bool = True
    name: str = "caption_preparation"
    columns_in = (*SPAN, "fps")
    columns_out = (WINDOWS, PROMPT)

    def __post_init__(self) -> None:
        prompt_of(self.name, self.prompt_variant, self.prompt_text, CAPTION)
        if not self.sampling_fps > 0 or self.window_size < 4 or self.remainder_threshold < 1:
            raise UsageError(
                f"{self.name}: sampling_fps must be above 0, window_size at least 4 and remainder_threshold at least 1"
            )
        check_choice(f"{self.name}: preprocess_dtype", self.preprocess_dtype, _TYPES)

    def process_rows(self, batch: DocumentBatch) -> DocumentBatch:
        windows = [
            self.windows(start, end, fps)
            for start, end, fps in zip(*(batch.values(c) for c in ("start_s", "end_s", "fps")), strict=True)
        ]
        kind = pa.list_(
            pa.struct([("start_frame", pa.int64()), ("end_frame", pa.int64()), ("times_s", pa.list_(pa.float64()))])
        )
        prompt = prompt_of(self.name, self.prompt_variant, self.prompt_text, CAPTION)
        self._say(f"{sum(map(len, windows))} windows of {batch.num_items} clips")
        batch = batch.with_column(WINDOWS, pa.array(windows, kind))
        return batch.with_column(PROMPT, pa.array([prompt] * batch.num_items, pa.large_string()))

    def windows(self, start_s: float, end_s: float, fps: float) -> list[dict[str, Any]]:
        """Return the windows of one clip. Frames are counted from its start."""
        total = round((end_s - start_s) * fps)
        windows = []
        for window in compute_windows(total, self.window_size, self.remainder_threshold):
            n = smart_nframes(self.sampling_fps, window.end - window.start + 1, fps)
            step = (window.end - window.start) / max(1, n - 1)
            frames = [window.start + round(i * step) for i in range(n)]
            windows.append(
                {"start_frame": window.start, "end_frame": window.end, "times_s": [start_s + f / fps for f in frames]}
            )
        return windows
