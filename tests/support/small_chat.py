"""Chat models of a few hundred thousand random weights for tests: for videos, for images, for text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['content'] if m['content'] is string else '' }}{% if m['content'] is not "
    "string %}{% for c in m['content'] %}{% if c['type'] == 'image' %}<image>{% else %}{{ c['text'] }}{% endif %}{% "
    "endfor %}{% endif %}<|im_end|>{% endfor %}{% if add_generation_prompt %}<|im_start|>{% endif %}"
)
_SPECIAL = [
    "<pad>",
    "<unk>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|video_pad|>",
    "<|image_pad|>",
    "<image>",
]
_WORDS = [
    "a",
    "video",
    "of",
    "something",
    "moves",
    "left",
    "right",
    "up",
    "down",
    "and",
    "then",
    "bright",
    "dark",
    "bar",
    "what",
    "is",
    "here",
]


def tokenizer() -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {w: i for i, w in enumerate([*_SPECIAL, *_WORDS])}
    made = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=made,
        unk_token="<unk>",
        pad_token="<pad>",
        eos_token="<|im_end|>",
        additional_special_tokens=_SPECIAL[2:],
    )
    fast.chat_template = _TEMPLATE
    return fast


def qwen25_vl(folder: Path) -> Path:
    """Qwen2.5-VL in small."""
    import torch
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

    torch.manual_seed(0)
    words = tokenizer()
    config = Qwen2_5_VLConfig(
        text_config={
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "vocab_size": len(words),
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 1, 1]},
            "bos_token_id": None,
            "eos_token_id": 3,
            "pad_token_id": 0,
        },
        vision_config={
            "depth": 2,
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_heads": 2,
            "out_hidden_size": 32,
            "patch_size": 14,
            "fullatt_block_indexes": [1],
            "window_size": 56,
        },
        video_token_id=words.convert_tokens_to_ids("<|video_pad|>"),
        image_token_id=words.convert_tokens_to_ids("<|image_pad|>"),
        vision_start_token_id=words.convert_tokens_to_ids("<|vision_start|>"),
        vision_end_token_id=words.convert_tokens_to_ids("<|vision_end|>"),
    )
    Qwen2_5_VLForConditionalGeneration(config).save_pretrained(folder)
    words.save_pretrained(folder)
    return folder


def llava(folder: Path) -> Path:
    """Make a model that sees images, with a processor of its own."""
    import torch
    from transformers import (
        CLIPImageProcessorPil,
        CLIPVisionConfig,
        LlamaConfig,
        LlavaConfig,
        LlavaForConditionalGeneration,
        LlavaProcessor,
    )

    torch.manual_seed(0)
    words = tokenizer()
    config = LlavaConfig(
        vision_config=CLIPVisionConfig(
            hidden_size=32,
            intermediate_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            image_size=28,
            patch_size=14,
        ),
        text_config=LlamaConfig(
            hidden_size=32,
            intermediate_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=2,
            vocab_size=len(words),
            eos_token_id=3,
            pad_token_id=0,
            bos_token_id=None,
        ),
        image_token_index=words.convert_tokens_to_ids("<image>"),
        image_seq_length=4,
        vision_feature_select_strategy="default",
    )
    LlavaForConditionalGeneration(config).save_pretrained(folder)
    looks = CLIPImageProcessorPil(size={"shortest_edge": 28}, crop_size={"height": 28, "width": 28})
    LlavaProcessor(
        looks,
        words,
        patch_size=14,
        vision_feature_select_strategy="default",
        chat_template=_TEMPLATE,
        num_additional_image_tokens=1,
    ).save_pretrained(folder)
    return folder


def llama(folder: Path) -> Path:
    """Make a model that reads and writes text."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    words = tokenizer()
    config = LlamaConfig(
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        vocab_size=len(words),
        eos_token_id=3,
        pad_token_id=0,
        bos_token_id=None,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    words.save_pretrained(folder)
    return folder
