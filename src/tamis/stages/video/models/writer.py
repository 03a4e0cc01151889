"""Chat models of transformers with greedy decoding: the common base, and models that read text alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tamis._lazy import torch
from tamis.errors import UsageError
from tamis.stages.text.pretrained import from_pretrained

if TYPE_CHECKING:
    from tamis.stages.text.models.device import TorchDevice
    from tamis.stages.text.models.folder import ModelFolder


class ChatModel:
    """A model with its weights, on a device.

    A subclass names its Auto class of transformers and what to call the missing part of a folder without it.
    """

    auto_class: str
    lacks: str
    _tokenizer: Any

    def __init__(self, folder: ModelFolder, device: TorchDevice, max_tokens: int) -> None:
        import transformers

        from tamis.stages.text.models.networks import need_torch

        need_torch("a chat model")
        self.device, self.max_tokens = device, max_tokens
        self.dtype = torch.bfloat16 if device.kind == "cuda" else torch.float32
        place, kind = str(folder.path), getattr(transformers, self.auto_class)
        try:
            model = kind.from_pretrained(
                place, dtype=self.dtype, use_safetensors=True, local_files_only=True, trust_remote_code=False
            )
        except (ValueError, KeyError) as exc:
            raise UsageError(f"model folder {place}: {self.lacks}: {str(exc).splitlines()[0]}") from None
        self._model = model.to(device.kind).eval()
        self._read_texts(folder)
        self._tokenizer.padding_side = "left"
        if self._tokenizer.pad_token is None:
            self._tokenizer.pad_token = self._tokenizer.eos_token

    def _read_texts(self, folder: ModelFolder) -> None:
        """Load `_tokenizer`."""
        self._tokenizer = from_pretrained("AutoTokenizer", str(folder.path), "a chat model", local_files_only=True)

    def _answers(self, inputs: Mapping[str, Any]) -> list[str]:
        """Generate the answers to inputs that were assembled for the model."""
        placed = {k: self._placed(v) for k, v in inputs.items()}
        with torch.inference_mode():
            generated = self._model.generate(
                **placed,
                max_new_tokens=self.max_tokens,
                do_sample=False,
                repetition_penalty=1.05,
                pad_token_id=self._tokenizer.pad_token_id,
                temperature=None,
                top_p=None,
                top_k=None,
            )
        new = generated[:, placed["input_ids"].shape[1] :]
        return [text.strip() for text in self._tokenizer.batch_decode(new, skip_special_tokens=True)]

    def _placed(self, value: Any) -> Any:
        if not hasattr(value, "to"):
            return value
        value = value.to(self.device.kind)
        return value.to(self.dtype) if value.is_floating_point() else value


class TextWriter(ChatModel):
    """A model that reads texts."""

    auto_class, lacks = "AutoModelForCausalLM", "no language model"

    def answers(self, chats: Sequence[list[dict[str, str]]]) -> list[str]:
        """Answer all chats in one batch, with one answer for each."""
        texts = [self._tokenizer.apply_chat_template(c, tokenize=False, add_generation_prompt=True) for c in chats]
        inputs = self._tokenizer(texts, return_tensors="pt", padding=True, add_special_tokens=False)
        return self._answers({name: inputs[name] for name in ("input_ids", "attention_mask")})
