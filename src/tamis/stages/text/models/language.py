"""A causal language model with a low-rank adapter: the tokens of its answers, or a small net over its last layer.

The adapter (adapter_config.json and adapter_model.safetensors, as the library peft saves them) is added to the weights
when they are loaded: W + alpha / r * B A. So nothing of that library is needed, and the model is as fast as without.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tamis._lazy import F, np, torch
from tamis.errors import UsageError
from tamis.stages.text.models.batching import TokenBatch
from tamis.stages.text.models.custom_code import custom_code
from tamis.stages.text.models.folder import ModelFolder, read_json
from tamis.stages.text.models.networks import (
    PaddedTexts,
    linear,
    load,
    load_errors,
    need_torch,
    output_of,
    pool,
    weights_of,
)
from tamis.stages.text.models.packed_llama import PackedLlama, PackedState, rotation_of, why_not

if TYPE_CHECKING:
    from tamis.stages.text.models.device import TorchDevice
    from tamis.stages.text.models.networks import Tokens

MAX_NEW_TOKENS = 100
_BEFORE = "base_model.model."
_LOW, _HIGH = ".lora_A.weight", ".lora_B.weight"
# Settings of an adapter by which some layers are changed in another way, or others as well.
_NOT_PLAIN = (
    "use_dora",
    "use_rslora",
    "rank_pattern",
    "alpha_pattern",
    "modules_to_save",
    "bias",
    "fan_in_fan_out",
    "lora_bias",
    "layer_replication",
    "trainable_token_indices",
    "target_parameters",
)
_GUARD_LAYERS = ("input_layer", "hidden_layer_0", "hidden_layer_1", "hidden_layer_2")


@dataclass(frozen=True)
class Adapter:
    folder: ModelFolder
    scale: float


def adapter_of(path: Path) -> Adapter:
    """Check an adapter's folder and return its description."""
    config = read_json(path / "adapter_config.json")
    weights = sorted(path.glob("*.safetensors"))
    if not weights:
        raise UsageError(
            f"model folder {path}: the adapter has no safetensors (adapter_model.safetensors); pickled weights are "
            "refused"
        )
    if config.get("peft_type") != "LORA":
        raise UsageError(f"model folder {path}: expected a LoRA adapter, got peft_type {config.get('peft_type')!r}")
    if wrong := [name for name in _NOT_PLAIN if config.get(name) and config[name] != "none"]:
        raise UsageError(
            f"model folder {path}: expected a plain LoRA adapter (W + lora_alpha / r * B A for every layer), got one "
            "with "
            + ", ".join(f"{name}={str(config[name])[:80]}" for name in wrong)
            + " in adapter_config.json; add it to its base model (merge_and_unload of the library peft) and give the "
            "result as the model"
        )
    return Adapter(
        ModelFolder(path, config, tuple(weights)), _number(path, config, "lora_alpha") / _number(path, config, "r")
    )


def _number(path: Path, config: Mapping[str, Any], name: str) -> float:
    value = config.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0:
        raise UsageError(
            f"model folder {path}: expected a number above 0 as {name} in adapter_config.json, got {value!r}"
        )
    return float(value)


def add(model: Any, adapter: Adapter) -> None:
    """Add an adapter to the weights of a model, layer by layer."""
    tensors = weights_of(adapter.folder, "")
    own = dict(model.named_parameters())
    names = sorted(k for k in tensors if k.endswith(_LOW))
    whole = {
        k: k.removeprefix(_BEFORE) for k in tensors if not k.endswith((_LOW, _HIGH))
    }  # layers that come as they are
    if wrong := sorted(k for k, name in whole.items() if name not in own or own[name].shape != tensors[k].shape):
        raise UsageError(
            f"model folder {adapter.folder.path}: the adapter has weights that are no lora_A and lora_B of a layer, "
            "nor a layer of its base model "
            f"({', '.join(wrong[:3])}), and would not be itself without them"
        )
    if not names:
        raise UsageError(f"model folder {adapter.folder.path}: the adapter changes no layer (no lora_A.weight)")
    with load_errors(adapter.folder):
        for name, target in whole.items():
            own[target].data = tensors[name].to(own[target].dtype)
        for name in names:
            target = name.removeprefix(_BEFORE).replace(_LOW, ".weight")
            change = tensors[name.replace("lora_A", "lora_B")] @ tensors[name] * adapter.scale
            own[target].data = (own[target].data.float() + change).to(own[target].dtype)  # one layer at a time


class _Causal:
    """A causal model with its adapter.

    `head`: token ids that texts begin with; a Llama reads them once (packed_llama.py).
    """

    def __init__(
        self,
        folder: ModelFolder,
        adapter: Adapter,
        device: TorchDevice,
        head: Sequence[int] = (),
        trust_remote_code: bool = False,
    ) -> None:
        need_torch(f"the model {folder.path}")
        # 7 billion weights in float32 are 28 GB of this machine's memory, on their way to a card where they are 14.
        self._model = load(
            folder, "AutoModelForCausalLM", half=device.kind == "cuda", trust_remote_code=trust_remote_code
        )
        add(self._model, adapter)
        self._model = self._model.to(device.kind)
        self._device, self.width = device, int(self._model.config.hidden_size)
        self._packed: PackedLlama | None = None
        self._is_custom = bool(custom_code(self._model))
        if not self._is_custom and not why_not(self._model.config, rotation_of(self._model.model)):
            packed = PackedLlama(self._model.model, head)
            self._packed = packed if device.kind == "cpu" or not packed.not_fused else None
        self.packs = self._packed is not None

    def n_tokens(self, text: np.ndarray[Any, Any]) -> int:
        """Return how many tokens of a text go through the model."""
        return len(text) if self._packed is None else self._packed.n_own(text)

    def prepare(self, texts: Tokens, batch: TokenBatch) -> tuple[Tokens, TokenBatch]:
        return texts, batch  # little compared to the work of the device

    def _read(self, texts: Tokens, batch: TokenBatch, answers: bool = False) -> PackedState | _Padded | _Custom:
        if self._packed is None:
            kind = _Custom if self._is_custom else _Padded
            return kind(self._model, *PaddedTexts(texts, batch, self._device.kind).moved(), answers=answers)
        return self._packed.read(texts, batch.n_tokens if self._device.kind == "cuda" else 0, answers)


class _Padded:
    """Texts that were read by the code of transformers, as `PackedState` (packed_llama.py).

    They are padded at the end: no token attends to what follows it, so that reading them needs no mask, and
    attention takes its fastest way.
    """

    def __init__(self, model: Any, ids: torch.Tensor, mask: torch.Tensor, answers: bool) -> None:
        from transformers import DynamicCache

        self._model, self._mask, self._at = model.model, mask, mask.sum(1, keepdim=True)
        self._cache = DynamicCache(config=model.config) if answers else None
        hidden = self._model(input_ids=ids, past_key_values=self._cache, use_cache=answers).last_hidden_state
        self.last = pool(hidden, mask, "last")

    def follow(self, tokens: torch.Tensor) -> torch.Tensor:
        self._mask = torch.cat([self._mask, torch.ones_like(self._at)], 1)
        state = self._model(
            input_ids=tokens[:, None],
            attention_mask=self._mask,
            position_ids=self._at,
            past_key_values=self._cache,
            use_cache=True,
        ).last_hidden_state[:, -1]
        self._at = self._at + 1
        return state


class _Custom:
    """Like `_Padded`, for a model with code of its own: every step is a call of its whole `forward`.

    `last` and what `follow` returns are scores of the next token where answers are wanted, else states of the last
    layer.
    """

    def __init__(self, model: Any, ids: torch.Tensor, mask: torch.Tensor, answers: bool) -> None:
        from transformers import DynamicCache

        self._model, self._mask, self._n_tokens = model, mask, mask.sum(1, keepdim=True)
        self._cache = DynamicCache(config=model.config) if answers else None
        inputs = {"input_ids": ids, "attention_mask": mask, "use_cache": answers}
        if answers:
            rows = output_of(model, "logits", past_key_values=self._cache, **inputs)
        else:
            rows = output_of(model, "hidden_states", output_hidden_states=True, **inputs)[-1]
        self.last = pool(rows, mask, "last")

    def follow(self, tokens: torch.Tensor) -> torch.Tensor:
        self._mask = torch.cat([self._mask, torch.ones_like(self._n_tokens)], 1)
        scores: torch.Tensor = output_of(
            self._model,
            "logits",
            input_ids=tokens[:, None],
            attention_mask=self._mask,
            position_ids=self._n_tokens,
            past_key_values=self._cache,
            use_cache=True,
        )[:, -1]
        self._n_tokens = self._n_tokens + 1
        return scores


class AnsweringModel(_Causal):
    """Return the model's greedy answer to each text: token ids, -1 after the end of an answer."""

    def __call__(self, prepared: tuple[Tokens, TokenBatch]) -> np.ndarray[Any, Any]:
        texts, batch = prepared
        eos_ids = self._model.generation_config.eos_token_id
        ends = torch.tensor([] if eos_ids is None else eos_ids, dtype=torch.long, device=self._device.kind).reshape(-1)
        out = np.full((len(texts), MAX_NEW_TOKENS), -1, np.int32)
        with torch.inference_mode():
            answers: list[torch.Tensor] = []
            reading = self._read(texts, batch, answers=True)
            state = reading.last
            is_done = torch.arange(len(state), device=state.device) >= len(texts)  # rows that only fill the batch
            while True:
                scores = state if self._is_custom else self._model.get_output_embeddings()(state)
                token = scores.argmax(-1)
                is_done = is_done | torch.isin(token, ends)
                answers.append(token.masked_fill(is_done, -1))
                if len(answers) == MAX_NEW_TOKENS or bool(is_done.all()):
                    break
                state = reading.follow(token)
        rows = torch.stack(answers, 1)[: len(texts)].cpu().numpy()
        out[:, : rows.shape[1]] = rows
        return out


class GuardedModel(_Causal):
    """The score of a small net over the last layer's state of the last token of each text."""

    def __init__(
        self, folder: ModelFolder, adapter: Adapter, guard: Path, device: TorchDevice, trust_remote_code: bool = False
    ) -> None:
        super().__init__(folder, adapter, device, trust_remote_code=trust_remote_code)
        weights = sorted(guard.glob("*.safetensors"))
        if not weights:
            raise UsageError(f"model folder {guard}: no safetensors; expected the layers {', '.join(_GUARD_LAYERS)}")
        own = ModelFolder(guard, {}, tuple(weights))
        tensors = weights_of(own, "")
        self._layers = [tuple(t.to(device.kind) for t in linear(tensors, name, own)) for name in _GUARD_LAYERS]

    def __call__(self, prepared: tuple[Tokens, TokenBatch]) -> torch.Tensor:
        texts, batch = prepared
        with torch.inference_mode():
            x = F.normalize(self._read(texts, batch).last[: len(texts)].float(), dim=-1)
            for layer in self._layers[:-1]:
                x = F.relu(F.linear(x, *layer))
            return torch.sigmoid(F.linear(x, *self._layers[-1]))
