"""A language model that answers chats: in transformers, the likeliest answer each time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tamis.errors import UsageError
from tamis.later import torch

if TYPE_CHECKING:
    from tamis.stages.text.models.device import TorchDevice
    from tamis.stages.text.models.folder import ModelFolder


class TextWriter:
    """A chat model with its weights, on a device."""

    def __init__(self, folder: ModelFolder, device: TorchDevice, max_tokens: int) -> None:
        import transformers

        from tamis.stages.text.models.networks import need_torch

        torch = need_torch("a chat model")
        self.device, self.max_tokens = device, max_tokens
        dtype = torch.bfloat16 if device.kind == "cuda" else torch.float32
        place, local = str(folder.path), {"local_files_only": True}
        try:
            self._model = transformers.AutoModelForCausalLM.from_pretrained(
                place, dtype=dtype, use_safetensors=True, **local
            )
        except (ValueError, KeyError) as exc:
            raise UsageError(f"model folder {place}: no language model: {str(exc).splitlines()[0]}") from None
        self._model.to(device.kind).eval()
        self._tokenizer: Any = transformers.AutoTokenizer.from_pretrained(place, padding_side="left", **local)
        if self._tokenizer.pad_token is None:
            self._tokenizer.pad_token = self._tokenizer.eos_token

    def answers(self, chats: Sequence[list[dict[str, str]]]) -> list[str]:
        """One for each chat, asked together."""
        texts = [self._tokenizer.apply_chat_template(c, tokenize=False, add_generation_prompt=True) for c in chats]
        made = self._tokenizer(texts, return_tensors="pt", padding=True, add_special_tokens=False).to(self.device.kind)
        with torch.inference_mode():
            told = self._model.generate(
                input_ids=made["input_ids"], attention_mask=made["attention_mask"], max_new_tokens=self.max_tokens, do_sample=False,
                repetition_penalty=1.05, pad_token_id=self._tokenizer.pad_token_id, temperature=None, top_p=None, top_k=None,
            )  # fmt: skip
        new = told[:, made["input_ids"].shape[1] :]
        return [text.strip() for text in self._tokenizer.batch_decode(new, skip_special_tokens=True)]
