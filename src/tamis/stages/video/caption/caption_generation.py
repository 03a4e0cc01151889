"""CaptionGenerationStage: clips in words, by any vision-language chat model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tamis._lazy import np, pa
from tamis.errors import UsageError
from tamis.stages.video.caption.caption_preparation import PROMPT, WINDOWS
from tamis.stages.video.caption.chat_model_stage import DEFAULT_DIR, ChatModelStage
from tamis.stages.video.models.captioner import MODELS, Captioner, Question
from tamis.stages.video.models.vllm_chat import VllmCaptioner
from tamis.stages.video.video_stage import SPAN, good_rows
from tamis.stores.urls import path_of
from tamis.tasks import DocumentBatch
from tamis.video import memory_needed
from tamis.video.decoding import frames_at
from tamis.video.opening import VideoFault
from tamis.video.sampling import rgb, shown_size

CAPTIONS = "captions"
_AT_ONCE_BYTES = 128 << 20  # decoded frames of the windows of one request
_STAGE2 = "Improve and refine the following description of this video, keeping to what can be seen:\n"


@dataclass(repr=False)
class CaptionGenerationStage(ChatModelStage):
    """Adds captions, one for each window that CaptionPreparationStage made.

    `model_variant`: qwen2.5 (Qwen2.5-VL-7B), qwen3 (Qwen3-VL-8B), or any vision-language chat model, by hub id or
    folder. `model_dir`: folder of the known ones, below their ids; the default is taken where it is there, else the
    hub's cache, or the hub. Runs in vLLM where that is installed and there is a GPU, else in transformers, also on the
    CPU. Answers are the likeliest, not drawn: the same clip has the same caption.

    `caption_batch_size` windows are one request, as long as their frames are below 128 MB.
    `generate_stage2_caption`: the answer is given back with `stage2_prompt_text` to be refined. `fp8`,
    `disable_mmcache` and `vllm_kwargs` are for vLLM, and refused without it.
    """

    known_models = MODELS
    in_vllm, in_transformers = VllmCaptioner, Captioner

    model_dir: str = DEFAULT_DIR
    model_variant: str = "qwen2.5"
    caption_batch_size: int = 16
    fp8: bool = False
    max_output_tokens: int = 512
    disable_mmcache: bool = False
    vllm_kwargs: Mapping[str, Any] = field(default_factory=dict)
    verbose: bool = False
    generate_stage2_caption: bool = False
    stage2_prompt_text: str | None = None
    name: str = "caption_generation"
    _model: Any = field(default=None, init=False)
    columns_in = (*SPAN, WINDOWS, PROMPT, "pixel_aspect")
    columns_out = (CAPTIONS,)

    def __post_init__(self) -> None:
        if self.caption_batch_size < 1 or self.max_output_tokens < 1:
            raise UsageError(f"{self.name}: caption_batch_size and max_output_tokens must be at least 1")
        self._prepare()

    def process_rows(self, batch: DocumentBatch) -> DocumentBatch:
        self.setup()
        rows = list(zip(*(batch.values(c) for c in ("path", WINDOWS, PROMPT, "pixel_aspect")), strict=True))
        texts: list[Any] = [[""] * len(windows or ()) for _, windows, _, _ in rows]
        for group in self._together(rows, texts):
            answers = self._model.answers([q for _, _, q in group])
            if self.generate_stage2_caption:
                first = self.stage2_prompt_text or _STAGE2
                again = [
                    Question(q.frames, first + a, q.seconds_per_frame)
                    for (_, _, q), a in zip(group, answers, strict=True)
                ]
                answers = self._model.answers(again)
            for (i, k, _), answer in zip(group, answers, strict=True):
                if not isinstance(texts[i], VideoFault):
                    texts[i][k] = answer
        batch, captions = good_rows(self, batch, texts)
        self._say(f"{sum(map(len, captions))} captions of {batch.num_items} clips")
        return batch.with_column(CAPTIONS, pa.array(captions, pa.list_(pa.large_string())))

    def _together(self, rows: list[Any], captions: list[Any]) -> Iterator[list[tuple[int, int, Question]]]:
        """Yield windows for one call of the model: (clip, window, question).

        A clip that cannot be decoded is noted in `texts`.
        """
        waiting: list[tuple[int, int, Question]] = []
        for i, (path, windows, prompt, aspect) in enumerate(rows):
            for k, window in enumerate(windows or ()):
                try:
                    waiting.append((i, k, self._question(path_of(path), window, prompt, aspect or 1.0)))
                except VideoFault as exc:
                    captions[i] = exc
                    break
                waiting_bytes = sum(q.frames.nbytes for _, _, q in waiting)
                if len(waiting) == self.caption_batch_size or waiting_bytes >= _AT_ONCE_BYTES:
                    yield waiting
                    waiting = []
        if waiting:
            yield waiting

    def _question(self, path: str, window: Mapping[str, Any], prompt: str, aspect: float) -> Question:
        times = window["times_s"]
        frames: list[Any] = []
        sides = (0, 0)
        for _, frame in frames_at(path, times):
            if not frames:
                width, height = shown_size(frame, aspect)
                is_turned = round(frame.rotation / 90.0) % 2 == 1
                upright = (width, height) if is_turned else (height, width)
                sides = self._model.sides(*upright, len(times))
                memory_needed.reserve_frames(len(times), sides[1], sides[0])
                stored = sides if is_turned else sides[::-1]
            frames.append(rgb(frame, *stored))
        apart = (times[-1] - times[0]) / max(1, len(times) - 1)
        return Question(np.stack(frames), prompt, apart or 1.0)
