"""Captions through vLLM: a fake module with the signatures of vLLM's LLM and SamplingParams, which records calls."""

from __future__ import annotations

import importlib.machinery
import os
import sys
import types
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from tamis.memory import device_limits
from tamis.stages.text.models.folder import open_folder
from tamis.stages.video.caption import caption_enhancement, caption_generation, chat_model_stage
from tamis.stages.video.models import vllm_chat
from tamis.stages.video.models.captioner import Question
from tamis.tasks import Video, VideoTask
from tests.support.sample_videos import library, make_video

library()
pytest.importorskip("PIL")

_KNOWN_PARTS = {"text": "text", "image_pil": "image_pil"}  # of vLLM's content parts, those that are used: type and key


class SamplingParams:
    def __init__(
        self, *, temperature: float = 1.0, repetition_penalty: float = 1.0, max_tokens: int | None = 16
    ) -> None:
        self.told = (temperature, repetition_penalty, max_tokens)


class LLM:
    made: list[LLM] = []

    def __init__(
        self,
        model: str,
        *,
        quantization: str | None = None,
        gpu_memory_utilization: float = 0.9,
        limit_mm_per_prompt: dict[str, int] | None = None,
        mm_processor_cache_gb: float = 4.0,
        max_model_len: int | None = None,
    ) -> None:
        self.settings = {k: v for k, v in locals().items() if k != "self"}
        self.asked: list[Any] = []
        self.in_process = os.environ.get("VLLM_ENABLE_V1_MULTIPROCESSING")
        LLM.made.append(self)

    def chat(self, messages: Any, sampling_params: Any = None, use_tqdm: bool = True, **more: Any) -> list[Any]:
        assert not more
        assert isinstance(sampling_params, SamplingParams)
        self.asked += [messages]
        out = []
        for conversation in messages:
            (turn,) = conversation
            assert turn["role"] == "user"
            content = turn["content"]
            if isinstance(content, list):
                for part in content:
                    assert set(part) == {"type", _KNOWN_PARTS[part["type"]]}
                told = (
                    f"{sum(p['type'] == 'image_pil' for p in content)} frames of {content[0]['image_pil'].size}; "
                    f"{content[-1]['text']} "
                )
            else:
                told = f"better: {content.splitlines()[-1]}"
            out.append(SimpleNamespace(outputs=[SimpleNamespace(text=f" {told}")]))
        return out


@pytest.fixture
def vllm(monkeypatch: pytest.MonkeyPatch) -> type[LLM]:
    module = types.ModuleType("vllm")
    module.__spec__ = importlib.machinery.ModuleSpec("vllm", None)
    module.LLM, module.SamplingParams = LLM, SamplingParams  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vllm", module)
    monkeypatch.delenv("VLLM_ENABLE_V1_MULTIPROCESSING", raising=False)
    monkeypatch.setattr(chat_model_stage, "count_gpus", lambda: 1)
    LLM.made = []
    return LLM


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text('{"model_type": "any_vl"}')
    save_file({"a": np.zeros(1, np.float32)}, tmp_path / "model" / "model.safetensors")
    return tmp_path / "model"


def test_captions_and_better_ones(vllm: type[LLM], folder: Path, tmp_path: Path) -> None:
    from tamis.stages.video.caption.caption_preparation import CaptionPreparationStage
    from tamis.stages.video.clipping.clip_extraction_stages import FixedStrideExtractorStage

    make_video(tmp_path / "a.mp4", 48)
    task: Any = VideoTask("d", Video(tmp_path / "a.mp4"))
    for stage in (
        FixedStrideExtractorStage(2.0, 2.0, 0.5, 0),
        CaptionPreparationStage(prompt_text="what is here", sampling_fps=4.0, window_size=24, remainder_threshold=6),
        caption_generation.CaptionGenerationStage(
            model_variant=str(folder),
            max_output_tokens=7,
            fp8=True,
            disable_mmcache=True,
            vllm_kwargs={"max_model_len": 4096},
        ),
        caption_enhancement.CaptionEnhancementStage(model_variant=str(folder), prompt_text="be exact"),
    ):
        task = stage.process(task)
    (clip,) = task.data.clips
    assert clip.row["captions"] == ["4 frames of (64, 48); what is here"] * 2
    assert clip.row["enhanced_captions"] == ["better: 4 frames of (64, 48); what is here"] * 2
    sees, writes = vllm.made
    assert sees.settings == {
        "model": str(folder),
        "quantization": "fp8",
        "gpu_memory_utilization": 0.9,
        "limit_mm_per_prompt": {"image": 64},
        "mm_processor_cache_gb": 0,
        "max_model_len": 4096,
    }
    assert (sees.in_process, writes.settings["limit_mm_per_prompt"]) == ("0", None)
    assert [len(asked) for asked in sees.asked] == [2]


def test_a_worker_takes_its_share_and_no_more_frames_than_may_be(
    vllm: type[LLM], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setenv("TAMIS_GPU_SHARE", "0.5")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(total_memory=80 * 10**9))
    assert device_limits.assigned_limit().is_limited
    model = vllm_chat.VllmCaptioner(open_folder(folder), 5, {})
    answers = model.answers([Question(np.zeros((130, 8, 10, 3), np.uint8), "what", 0.5)])
    assert answers == ["44 frames of (10, 8); what"]  # every third of 130: at most 64 go with one question
    (made,) = vllm.made
    assert made.settings["gpu_memory_utilization"] == 0.5
