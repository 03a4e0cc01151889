"""Small models of the real architectures on disk: random weights, and a tokenizer trained on little text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

WORDS = [
    "the",
    "quick",
    "brown",
    "fox",
    "jumps",
    "over",
    "a",
    "lazy",
    "dog",
    "while",
    "seven",
    "wizards",
    "mix",
    "potions",
    "of",
    "strange",
    "colour",
    "and",
    "ask",
    "whether",
    "data",
    "that",
    "nobody",
    "reads",
    "can",
    "be",
    "worth",
    "its",
    "price",
    "in",
    "memory",
    "budgets",
    "tables",
    "models",
    "kernels",
    "and",
    "long",
    "winter",
    "evenings",
]
DEBERTA = {
    "model_type": "deberta-v2", "vocab_size": 400, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 64, "relative_attention": True, "position_buckets": 16, "max_relative_positions": -1,
    "max_position_embeddings": 64, "pos_att_type": ["p2c", "c2p"], "share_att_key": True, "norm_rel_ebd": "layer_norm",
    "position_biased_input": False, "type_vocab_size": 0, "layer_norm_eps": 1e-7, "hidden_act": "gelu",
}  # fmt: skip
BERT = {
    "vocab_size": 400,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 128,
}


def texts(n: int = 40) -> list[str]:
    """Texts of many lengths, all different."""
    return [" ".join(WORDS[(i * 7 + j * (i % 5 + 1)) % len(WORDS)] for j in range(1 + (i * 13) % 90)) for i in range(n)]


def save_tokenizer(folder: Path, padding: bool = True, causal: bool = False, max_length: int = 128) -> None:
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    begin, end = ("<s>", "</s>") if causal else ("[CLS]", "[SEP]")
    own = Tokenizer(models.BPE(unk_token="[UNK]"))
    own.normalizer = normalizers.NFKC()
    own.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    own.decoder = decoders.ByteLevel()
    names = ["[PAD]", "[UNK]", begin, end]
    own.train_from_iterator(
        texts(60),
        trainers.BpeTrainer(
            vocab_size=400,
            special_tokens=names,
            show_progress=False,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        ),
    )
    single = f"{begin} $A" if causal else f"{begin} $A {end}"
    marks = [(m, own.token_to_id(m)) for m in ([begin] if causal else [begin, end])]
    own.post_processor = processors.TemplateProcessing(single=single, special_tokens=marks)
    more: dict[str, Any] = {"bos_token": begin, "eos_token": end} if causal else {"cls_token": begin, "sep_token": end}
    if padding:
        more["pad_token"] = "[PAD]"
    PreTrainedTokenizerFast(
        tokenizer_object=own, unk_token="[UNK]", model_max_length=max_length, **more
    ).save_pretrained(folder)


def sequence_classifier(
    folder: Path, n_labels: int = 3, seed: int = 0, kind: str = "bert", padding: bool = True, **more: Any
) -> Path:
    import torch
    import transformers

    torch.manual_seed(seed)
    labels = ["High", "Medium", "Low", "None"][:n_labels]
    config: Any = {
        "bert": lambda: transformers.BertConfig(**BERT),
        "deberta": lambda: transformers.DebertaV2Config(**{k: v for k, v in DEBERTA.items() if k != "model_type"}),
    }[kind]()
    config.id2label = dict(enumerate(labels))
    config.label2id = {v: k for k, v in enumerate(labels)}
    for name, value in more.items():
        setattr(config, name, value)
    made = transformers.AutoModelForSequenceClassification.from_config(config).eval()
    _spread(made)
    save_tokenizer(folder, padding)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():  # outputs that differ from text to text, around 0 (a regression: around 2.5)
        logits = torch.cat([made(**tokenizer(t, truncation=True, return_tensors="pt")).logits for t in texts(20)])
        made.classifier.weight.div_(logits.std(0)[:, None])
        made.classifier.bias.copy_(
            (made.classifier.bias - logits.mean(0)) / logits.std(0) + (2.5 if n_labels == 1 else 0)
        )
    made.save_pretrained(folder)
    return folder


SHORT = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
KINDS: dict[str, Any] = {
    "GPT2": {"n_positions": 64, "n_embd": 32, "n_layer": 2, "n_head": 2, "bos_token_id": 2, "eos_token_id": 3},
    "Llama": {**SHORT, "num_key_value_heads": 2, "max_position_embeddings": 64, "bos_token_id": 2, "eos_token_id": 3},
    "Roberta": {**SHORT, "max_position_embeddings": 66},
    "XLNet": {"d_model": 32, "n_layer": 2, "n_head": 2, "d_inner": 64},
    "DistilBert": {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64, "max_position_embeddings": 50},
    "MPNet": {**SHORT, "max_position_embeddings": 52},
    "Nystromformer": {**SHORT, "max_position_embeddings": 50, "segment_means_seq_len": 50, "num_landmarks": 50},
    "IBert": {**SHORT, "max_position_embeddings": 66},
    "Canine": {**SHORT, "max_position_embeddings": 64, "num_hash_buckets": 200, "vocab_size": None},
}


def any_classifier(folder: Path, kind: str, seed: int = 0, **more: Any) -> Path:
    """Build a classifier with two labels, of one of KINDS: these run with padding."""
    import torch
    import transformers

    torch.manual_seed(seed)
    config = getattr(transformers, f"{kind}Config")(**{"vocab_size": 400, **KINDS[kind], **more})
    made = transformers.AutoModelForSequenceClassification.from_config(config).eval()
    _spread(made)
    made.save_pretrained(folder)
    save_tokenizer(folder)
    return folder


def headed_deberta(folder: Path, labels: list[str], seed: int = 0) -> Path:
    """As nvidia/quality-classifier-deberta is saved: an encoder under `model.`, a layer `fc`."""
    import torch
    from safetensors.torch import save_file

    encoder = _deberta(seed)
    weights = {f"model.{k}": v for k, v in encoder.state_dict().items()}
    weights |= {"fc.weight": torch.randn(len(labels), 32), "fc.bias": torch.randn(len(labels)) * 0.1}
    folder.mkdir(parents=True, exist_ok=True)
    save_file({k: v.contiguous() for k, v in weights.items()}, folder / "model.safetensors")
    numbers = {"id2label": dict(enumerate(labels)), "label2id": {v: i for i, v in enumerate(labels)}}
    _write(folder, {**DEBERTA, "base_model": "microsoft/deberta-v3-base", "fc_dropout": 0.2, **numbers})
    save_tokenizer(folder)
    return folder


PROMPT_SIZES = {
    "task_type": 4,
    "creativity_scope": 3,
    "reasoning": 2,
    "contextual_knowledge": 2,
    "number_of_few_shots": 6,
    "domain_knowledge": 4,
    "no_label_reason": 1,
    "constraint_ct": 2,
}


def prompt_deberta(folder: Path, seed: int = 0) -> Path:
    import torch
    from safetensors.torch import save_file

    weights = {f"backbone.{k}": v for k, v in _deberta(seed).state_dict().items()}
    for i, n in enumerate(PROMPT_SIZES.values()):
        weights |= {f"head_{i}.fc.weight": torch.randn(n, 32), f"head_{i}.fc.bias": torch.randn(n) * 0.1}
    folder.mkdir(parents=True, exist_ok=True)
    save_file({k: v.contiguous() for k, v in weights.items()}, folder / "model.safetensors")
    others = {k: n for k, n in PROMPT_SIZES.items() if k != "task_type"}
    _write(
        folder,
        {
            **DEBERTA,
            "base_model": "microsoft/DeBERTa-v3-base",
            "target_sizes": PROMPT_SIZES,
            "task_type_map": {str(i): name for i, name in enumerate(["Brainstorming", "Rewrite", "Open QA", "Other"])},
            "weights_map": {k: list(range(n)) if n > 1 else [0] for k, n in others.items()},
            "divisor_map": {k: max(1, n - 1) for k, n in others.items()},
        },
    )
    save_tokenizer(folder)
    return folder


def llama(folder: Path, seed: int = 0, kind: str = "Llama") -> Path:
    """`kind`: "Mistral" is the same but for its name, and runs with padding."""
    import torch
    import transformers

    torch.manual_seed(seed)
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=400,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        bos_token_id=2,
        eos_token_id=3,
        pad_token_id=None,
    )
    getattr(transformers, f"{kind}ForCausalLM")(config).save_pretrained(folder)
    save_tokenizer(folder, padding=False, causal=True, max_length=4096)
    return folder


def gemma(folder: Path, seed: int = 0) -> Path:
    """Save the text encoder of EmbeddingGemma: Gemma 3 whose attention sees both sides."""
    import torch
    import transformers

    torch.manual_seed(seed)
    config = transformers.Gemma3TextConfig(
        vocab_size=400, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, head_dim=16, max_position_embeddings=128, use_bidirectional_attention=True,
        bos_token_id=2, eos_token_id=3, pad_token_id=0,
    )  # fmt: skip
    transformers.Gemma3TextModel(config).save_pretrained(folder)
    save_tokenizer(folder)
    return folder


def adapter(folder: Path, base: Path, seed: int = 1) -> Path:
    import torch
    from safetensors.torch import load_file, save_file

    torch.manual_seed(seed)
    weights = {}
    for name, w in load_file(base / "model.safetensors").items():
        if name.endswith(("q_proj.weight", "v_proj.weight")):
            stem = "base_model.model." + name.removesuffix(".weight")
            weights |= {
                f"{stem}.lora_A.weight": torch.randn(4, w.shape[1]),
                f"{stem}.lora_B.weight": torch.randn(w.shape[0], 4),
            }
    folder.mkdir(parents=True, exist_ok=True)
    save_file(weights, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 4, "lora_alpha": 8}))
    return folder


def data_guard(folder: Path, width: int = 32) -> Path:
    import torch
    from safetensors.torch import save_file

    torch.manual_seed(3)
    sizes = [(width, width), (20, width), (10, 20), (1, 10)]
    names = ["input_layer", "hidden_layer_0", "hidden_layer_1", "hidden_layer_2"]
    weights = {f"{n}.weight": torch.randn(a, b) for n, (a, b) in zip(names, sizes, strict=True)}
    weights |= {f"{n}.bias": torch.randn(a) * 0.1 for n, (a, _) in zip(names, sizes, strict=True)}
    folder.mkdir(parents=True, exist_ok=True)
    save_file(weights, folder / "model.safetensors")
    return folder


def _deberta(seed: int) -> Any:
    import torch
    import transformers

    torch.manual_seed(seed)
    made = transformers.DebertaV2Model(
        transformers.DebertaV2Config(**{k: v for k, v in DEBERTA.items() if k != "model_type"})
    )
    _spread(made)
    return made


def _spread(model: Any) -> None:
    """Weights as wide as trained ones: with those of a fresh model every text gets nearly the same scores."""
    import torch

    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() == 2:
                weight.mul_(8.0)


def _write(folder: Path, config: dict[str, Any]) -> None:
    (folder / "config.json").write_text(json.dumps(config))
