"""CaptionEnhancementStage: captions written anew by a language model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tamis._lazy import pa
from tamis.errors import UsageError
from tamis.stages.video.caption.caption_generation import CAPTIONS
from tamis.stages.video.caption.chat_model_stage import DEFAULT_DIR, ChatModelStage
from tamis.stages.video.caption.prompts import ENHANCE, prompt_of
from tamis.stages.video.models.vllm_chat import VllmWriter
from tamis.stages.video.models.writer import TextWriter
from tamis.tasks import DocumentBatch

ENHANCED = "enhanced_captions"
MODELS = {"qwen2.5": "Qwen/Qwen2.5-14B-Instruct", "qwen3": "Qwen/Qwen3-14B"}


@dataclass(repr=False)
class CaptionEnhancementStage(ChatModelStage):
    """Adds enhanced_captions: each caption rewritten by a language model (qwen2.5, qwen3, or a hub id or folder).

    `prompt_variant` (default, av-surveillance) or `prompt_text` is the instruction. `captioning_model_variant` is
    accepted for compatibility with NeMo Curator: captions are found by their column. Other parameters as in
    CaptionGenerationStage.
    """

    known_models = MODELS
    in_vllm, in_transformers = VllmWriter, TextWriter

    model_dir: str = DEFAULT_DIR
    model_variant: str = "qwen2.5"
    captioning_model_variant: str = "qwen2.5"
    prompt_variant: str = "default"
    prompt_text: str | None = None
    model_batch_size: int = 128
    fp8: bool = False
    vllm_kwargs: Mapping[str, Any] = field(default_factory=dict)
    max_output_tokens: int = 512
    verbose: bool = False
    name: str = "caption_enhancement"
    _model: Any = field(default=None, init=False)
    columns_in = (CAPTIONS,)
    columns_out = (ENHANCED,)

    def __post_init__(self) -> None:
        prompt_of(self.name, self.prompt_variant, self.prompt_text, ENHANCE)
        if self.model_batch_size < 1 or self.max_output_tokens < 1:
            raise UsageError(f"{self.name}: model_batch_size and max_output_tokens must be at least 1")
        self._prepare()

    def process_rows(self, batch: DocumentBatch) -> DocumentBatch:
        self.setup()
        instruction = prompt_of(self.name, self.prompt_variant, self.prompt_text, ENHANCE)
        captions = [list(of or ()) for of in batch.values(CAPTIONS)]
        chats = [[{"role": "user", "content": f"{instruction}\n\n{text}"}] for of in captions for text in of]
        answers: list[str] = []
        for i in range(0, len(chats), self.model_batch_size):
            answers += self._model.answers(chats[i : i + self.model_batch_size])
        remaining = iter(answers)
        enhanced = [[next(remaining) for _ in of] for of in captions]
        self._say(f"{len(answers)} captions of {batch.num_items} clips")
        return batch.with_column(ENHANCED, pa.array(enhanced, pa.list_(pa.large_string())))
