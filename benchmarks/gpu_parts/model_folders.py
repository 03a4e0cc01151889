"""Models of the real sizes with random weights, and tokenizers of the real kinds trained on the corpus.

Random weights are as fast as trained ones. Tokenizers: SentencePiece's kind (words with a mark before them, pieces by
likelihood) for DeBERTa, the same with merges for Llama, WordPiece for BERT and MiniLM; each as large as training on
this little text makes it, up to its real size.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

DEBERTA = {
    "model_type": "deberta-v2", "vocab_size": 128_100, "hidden_size": 768, "num_hidden_layers": 12,
    "num_attention_heads": 12, "intermediate_size": 3072, "relative_attention": True, "position_buckets": 256,
    "max_relative_positions": -1, "max_position_embeddings": 512, "pos_att_type": ["p2c", "c2p"], "share_att_key": True,
    "norm_rel_ebd": "layer_norm", "position_biased_input": False, "type_vocab_size": 0, "layer_norm_eps": 1e-7,
    "hidden_act": "gelu",
}  # fmt: skip
BERT = {
    "vocab_size": 30_522,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "max_position_embeddings": 512,
}
MINILM = {**BERT, "hidden_size": 384, "num_hidden_layers": 6, "intermediate_size": 1536}
LLAMA = {
    "vocab_size": 32_000,
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "intermediate_size": 11_008,
    "max_position_embeddings": 4096,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
SMALL = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 128,
    "max_position_embeddings": 512,
}
SUBJECTS = [f"subject {i}" for i in range(26)]
_TRAIN_CHARS, _SMALL_VOCABULARY = 12_000_000, 600
_SHARD_BYTES = 2 << 30


def build(root: Path, kind: str, texts: list[str], tiny: bool, device: str) -> None:
    """Make the folder `root`/`kind` if it is missing; for Llama also `root`/adapter."""
    folder = root / kind
    if (folder / "config.json").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    import transformers

    transformers.utils.logging.disable_progress_bar()
    some, n = [], 0
    for text in texts:
        some.append(text[:8000])
        n += len(some[-1])
        if n > _TRAIN_CHARS:
            break
    {"deberta": _deberta, "bert": _bert, "minilm": _minilm, "llama": _llama}[kind](folder, some, tiny, device)


# -- tokenizers -------------------------------------------------------------------------------------------------------
def _save(own: Any, folder: Path, marks: dict[str, str], max_tokens: int) -> int:
    from transformers import PreTrainedTokenizerFast

    PreTrainedTokenizerFast(tokenizer_object=own, model_max_length=max_tokens, **marks).save_pretrained(folder)
    return int(own.get_vocab_size())


def _word_pieces(folder: Path, texts: list[str], size: int) -> int:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

    own = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    own.normalizer = normalizers.BertNormalizer(lowercase=True)
    own.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    own.train_from_iterator(
        texts, trainers.WordPieceTrainer(vocab_size=size, special_tokens=names, show_progress=False)
    )
    own.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return _save(
        own, folder, {"unk_token": "[UNK]", "pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"}, 512
    )


def _merged(texts: list[str], size: int, names: list[str]) -> Any:
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

    own = Tokenizer(models.BPE(unk_token=names[-1]))
    spaces = [
        normalizers.Replace("\n", " "),
        normalizers.Replace("\t", " "),
        normalizers.NFKC(),
        normalizers.Strip(left=False, right=True),
        normalizers.Replace(Regex(" {2,}"), " "),
    ]
    own.normalizer = normalizers.Sequence(spaces)
    own.pre_tokenizer = pre_tokenizers.Metaspace()
    own.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=size, special_tokens=names, show_progress=False))
    return own


def _likely_pieces(folder: Path, texts: list[str], size: int) -> int:
    """As SentencePiece's unigram models: pieces with likelihoods.

    Pieces are those of merges, which takes seconds instead of minutes.
    """
    from tokenizers import Tokenizer, decoders, models, processors

    names = ["[PAD]", "[CLS]", "[SEP]", "[UNK]"]
    merged = _merged(texts, size, names)
    seen: Counter[str] = Counter()
    for done in merged.encode_batch(texts[: max(200, len(texts) // 4)], add_special_tokens=False):
        seen.update(done.tokens)
    total = math.log(sum(seen.values()))
    by_number = sorted(merged.get_vocab().items(), key=lambda item: item[1])
    pieces = [(name, 0.0 if name in names else math.log(seen[name] + 0.5) - total) for name, _ in by_number]
    own = Tokenizer(models.Unigram(pieces, unk_id=3))
    own.normalizer, own.pre_tokenizer, own.decoder = merged.normalizer, merged.pre_tokenizer, decoders.Metaspace()
    own.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    return _save(
        own, folder, {"unk_token": "[UNK]", "pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"}, 1024
    )


# -- models -----------------------------------------------------------------------------------------------------------
def _write(folder: Path, config: dict[str, Any]) -> None:
    (folder / "config.json").write_text(json.dumps(config))


def _deberta(folder: Path, texts: list[str], tiny: bool, device: str) -> None:
    """As nvidia/quality-classifier-deberta is saved: an encoder under `model.`, a layer `fc` over its first token."""
    import torch
    import transformers
    from safetensors.torch import save_file

    size = _likely_pieces(folder, texts, _SMALL_VOCABULARY if tiny else 64_000)
    config = {**DEBERTA, **(SMALL if tiny else {}), "vocab_size": max(size, 0 if tiny else 128_100)}
    torch.manual_seed(0)
    own = transformers.DebertaV2Config(**{k: v for k, v in config.items() if k != "model_type"})
    with torch.device(device):
        encoder = transformers.DebertaV2Model(own)
    weights = {f"model.{k}": v.contiguous().cpu() for k, v in encoder.state_dict().items()}
    weights |= {"fc.weight": torch.randn(len(SUBJECTS), own.hidden_size), "fc.bias": torch.zeros(len(SUBJECTS))}
    save_file(weights, folder / "model.safetensors")
    numbers = {"id2label": dict(enumerate(SUBJECTS)), "label2id": {v: i for i, v in enumerate(SUBJECTS)}}
    _write(folder, {**config, "fc_dropout": 0.2, **numbers})


def _bert(folder: Path, texts: list[str], tiny: bool, device: str) -> None:
    """As HuggingFaceFW/fineweb-edu-classifier: a regression."""
    import torch
    import transformers

    _word_pieces(folder, texts, _SMALL_VOCABULARY if tiny else BERT["vocab_size"])
    torch.manual_seed(0)
    config = transformers.BertConfig(
        **{**BERT, **(SMALL if tiny else {})}, num_labels=1, hidden_dropout_prob=0.0, classifier_dropout=0.0
    )
    with torch.device(device):
        made = transformers.BertForSequenceClassification(config)
    made.to("cpu").save_pretrained(folder)


def _minilm(folder: Path, texts: list[str], tiny: bool, device: str) -> None:
    """As sentence-transformers saves all-MiniLM-L6-v2."""
    import torch
    import transformers

    _word_pieces(folder, texts, _SMALL_VOCABULARY if tiny else BERT["vocab_size"])
    torch.manual_seed(0)
    with torch.device(device):
        made = transformers.BertModel(transformers.BertConfig(**{**MINILM, **(SMALL if tiny else {})}))
    made.to("cpu").save_pretrained(folder)
    kinds = [("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize")]
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (kind, path) in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    pooling = {"word_embedding_dimension": made.config.hidden_size, "pooling_mode_mean_tokens": True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 256, "do_lower_case": False}))


def _llama(folder: Path, texts: list[str], tiny: bool, device: str) -> None:
    """Llama Guard and an adapter.

    Any token ends an answer, so that it is one token long: trained ones say `safe`, two or three tokens.
    """
    import torch
    import transformers
    from safetensors.torch import save_file
    from tokenizers import decoders, processors

    names = ["<pad>", "<s>", "</s>", "<unk>"]
    own = _merged(texts, _SMALL_VOCABULARY if tiny else LLAMA["vocab_size"], names)
    own.decoder = decoders.Metaspace()
    own.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    _save(own, folder, {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}, 4096)
    torch.manual_seed(0)
    size = {**LLAMA, **(SMALL if tiny else {}), "max_position_embeddings": 4096}
    config = transformers.LlamaConfig(**size, dtype="bfloat16")
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device(device):  # on the device: 7 billion random numbers take a minute on a core
            made = transformers.LlamaForCausalLM(config)
    finally:
        torch.set_default_dtype(torch.float32)
    made.save_pretrained(folder, max_shard_size=_SHARD_BYTES)
    ends = {"bos_token_id": 1, "eos_token_id": list(range(config.vocab_size)), "pad_token_id": 0}
    (folder / "generation_config.json").write_text(
        json.dumps(ends)
    )  # whatever a version of the library makes of so many ends
    adapter = folder.parent / "adapter"
    adapter.mkdir(exist_ok=True)
    width = config.hidden_size
    weights = {}
    for i in range(config.num_hidden_layers):
        for name in ("q_proj", "v_proj"):
            stem = f"base_model.model.model.layers.{i}.self_attn.{name}"
            weights |= {
                f"{stem}.lora_A.weight": torch.randn(4, width) * 0.01,
                f"{stem}.lora_B.weight": torch.zeros(width, 4),
            }
    save_file(weights, adapter / "adapter_model.safetensors")
    (adapter / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 4, "lora_alpha": 8}))
