"""ChatModelStage: the base of the stages that ask a chat model (CaptionGenerationStage, CaptionEnhancementStage)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from tamis.memory.gpu import count_gpus
from tamis.stages.resources import Resources
from tamis.stages.text import pretrained
from tamis.stages.text.models import folder as folders
from tamis.stages.video.models.captioner import find_model
from tamis.stages.video.models.device import torch_device
from tamis.stages.video.models.vllm_chat import has_vllm, vllm_settings
from tamis.stages.video.video_stage import NetworkStage

DEFAULT_DIR = "models/qwen"


class ChatModelStage(NetworkStage):
    """Base of stages with a chat model, loaded in vLLM if it is installed and there is a GPU, else in transformers.

    Subclasses are dataclasses with the fields below, and say which names they know and which two classes ask the model.
    """

    known_models: ClassVar[dict[str, str]]  # short name -> hub id
    in_vllm: ClassVar[Any]  # called with (folder, max_output_tokens, settings of vLLM)
    in_transformers: ClassVar[Any]  # called with (folder, device, max_output_tokens)

    name: str
    model_dir: str
    model_variant: str
    fp8: bool
    vllm_kwargs: Mapping[str, Any]
    max_output_tokens: int
    disable_mmcache: bool = False

    def _prepare(self) -> None:
        """Check the options of vLLM and request a GPU if there is one; for `__post_init__`."""
        self._vllm_settings()
        self.resources = Resources(cpus=1.0, gpus=1.0) if count_gpus() else Resources(cpus=1.0)

    def _vllm_settings(self) -> dict[str, Any]:
        return vllm_settings(self.name, self.fp8, self.disable_mmcache, self.vllm_kwargs)

    def _fetch(self) -> folders.ModelFolder:
        return find_model(self.model_dir, self.model_variant, self.known_models, DEFAULT_DIR)

    def _weight_bytes(self) -> int:
        return find_model(self.model_dir, self.model_variant, self.known_models, DEFAULT_DIR, pretrained.local).n_bytes

    def _load(self) -> None:
        if has_vllm() and self.resources.requires_gpu:
            self._model = self.in_vllm(self._fetch(), self.max_output_tokens, self._vllm_settings())
        else:
            device = torch_device(self.name, self.resources)
            self._model = self.in_transformers(self._fetch(), device, self.max_output_tokens)
