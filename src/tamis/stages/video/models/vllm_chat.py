"""Chat models in vLLM, with the interface of Captioner and TextWriter; imported only if vLLM is installed.

vLLM's engine runs inside the worker and not in a process of its own, so that it counts against the worker's budget,
ends with it, and puts batches together the same way each time. Of the GPU it takes what the worker was given.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tamis._lazy import torch
from tamis.errors import UsageError
from tamis.memory import device_limits

if TYPE_CHECKING:
    from tamis.stages.text.models.folder import ModelFolder
    from tamis.stages.video.models.captioner import Question

_LONGEST = 448
_MOST_IMAGES = 64  # of one question


def has_vllm() -> bool:
    return importlib.util.find_spec("vllm") is not None


def vllm_settings(stage: str, fp8: bool, disable_mmcache: bool, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings for vLLM's engine; raise UsageError for any if it is not installed, so that none is ignored."""
    settings = {
        **({"quantization": "fp8"} if fp8 else {}),
        **({"mm_processor_cache_gb": 0} if disable_mmcache else {}),
        **given,
    }
    if settings and not has_vllm():
        raise UsageError(
            f"{stage}: {', '.join(sorted(settings))} are settings of vLLM, which is not installed; leave them out, or "
            "pip install vllm"
        )
    return settings


def make_engine(folder: ModelFolder, settings: Mapping[str, Any]) -> Any:
    """Create vLLM's LLM for the model's folder; settings of the user take precedence."""
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")  # read when it is imported
    import vllm  # type: ignore[import-not-found,unused-ignore]

    limit, own = device_limits.assigned_limit(), {}
    if limit.is_limited:
        total = int(torch.cuda.get_device_properties(0).total_memory)
        own["gpu_memory_utilization"] = round(limit.fraction_of(total), 4)
    return vllm.LLM(model=str(folder.path), **{**own, **settings})


def _sampling(max_tokens: int) -> Any:
    """Return sampling parameters for the likeliest answer, as in transformers."""
    import vllm

    return vllm.SamplingParams(temperature=0.0, repetition_penalty=1.05, max_tokens=max_tokens)


class VllmCaptioner:
    """Like Captioner: images in the order of time, then the question."""

    def __init__(self, folder: ModelFolder, max_tokens: int, settings: Mapping[str, Any]) -> None:
        self._model = make_engine(folder, {"limit_mm_per_prompt": {"image": _MOST_IMAGES}, **settings})
        self._sampling = _sampling(max_tokens)

    def sides(self, height: int, width: int, n_frames: int) -> tuple[int, int]:
        scale = min(1.0, _LONGEST / max(height, width))
        return max(2, round(height * scale)), max(2, round(width * scale))

    def answers(self, questions: Sequence[Question]) -> list[str]:
        from PIL import Image

        chats = []
        for q in questions:
            step = -(-len(q.frames) // _MOST_IMAGES)
            shown = [{"type": "image_pil", "image_pil": Image.fromarray(f)} for f in q.frames[::step]]
            chats.append([{"role": "user", "content": [*shown, {"type": "text", "text": q.prompt}]}])
        return [output.outputs[0].text.strip() for output in self._model.chat(chats, self._sampling, use_tqdm=False)]


class VllmWriter:
    """A text model: prompts in, answers out."""

    def __init__(self, folder: ModelFolder, max_tokens: int, settings: Mapping[str, Any]) -> None:
        self._model, self._sampling = make_engine(folder, settings), _sampling(max_tokens)

    def answers(self, chats: Sequence[list[dict[str, str]]]) -> list[str]:
        return [
            output.outputs[0].text.strip() for output in self._model.chat(list(chats), self._sampling, use_tqdm=False)
        ]
