"""Tokenizers of every published kind, trained in the test by the library itself on little text of many kinds."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

from tamis.stages.text.tokens import patterns

TEXTS = [
    "The quick brown fox jumps over the lazy dog. It's 3 o'clock, isn't it? WE'LL SEE, THEY'VE said; he'd 'member.",
    "def f(x_1, camelCase, HTTPServer):\n    return [x for x in range(10000)]  # 0x1F\n\n\n\tif (a != b && c) { d[i]++; }\r\n",  # noqa: E501
    "Größe, naïve café, Übermäßigkeit — l'été d'où; señor; ĲSSELMEER; Ǆungla ǅungla; ﬁn; ʰ ʱ modifier",
    "Быстрая лиса прыгает. Αλεπού ταχεία ΌΧΙ. עברית ומסורת. العربية لغة جميلة ١٢٣. हिन्दी में लिखा हुआ है। বাংলা",
    "東京都は日本の首都です。中文分词很难。한국어 문장입니다. ภาษาไทยไม่มีช่องว่าง កម្ពុជា",
    "😀😃 👨‍👩‍👧‍👦 🇫🇷🇩🇪 ❤️ 🏳️‍🌈 ①②½Ⅷ ٣٤ 1234567890 3.14159 1,000,000 #tag @user https://example.org/a?b=c#d",
    "e\u0301a\u0300 \u0301\u0301abc ABC\u0301def \u1100\u1161\u11a8 \u00a0\u2003\u3000x \x85\u200b zero",
    "   leading\n\n  \n trailing   \n\t \t\n    ",
    "// path/to/file.txt\n/* ... */ ---- ==== ....\n\n/\n//\r\n",
    "don'ſ DON'S 'ſ x'Re y'LL 'tis 'Twas rock'n'roll O'Brien's'd've",
]
KINDS = {
    "gpt2": (patterns.GPT2, {}),
    "cl100k": (patterns.CL100K, {"ignore_merges": True}),
    "qwen2": (patterns.QWEN2, {"nfc": True}),
    "qwen35": (patterns.QWEN35, {"nfc": True}),
    "o200k": (patterns.O200K, {}),
    "tekken": (patterns.TEKKEN, {"ignore_merges": True}),
    "digits": ("digits", {}),
    "prefix": ("prefix", {}),
}
SPECIAL = ["<|endoftext|>", "<|im_start|>"]
_REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
_METASPACE = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": False}
# Normalizer and pre-tokenizer of BPE by SentencePiece.
PIECE_KINDS: dict[str, tuple[Any, Any]] = {
    "llama2": ({"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "\u2581"}, _REPLACE]}, None),
    "mistral": (None, _METASPACE),
    "gemma": (_REPLACE, {"type": "Split", "pattern": _REPLACE["pattern"], "behavior": "MergedWithPrevious"}),
    "words": (None, {**_METASPACE, "prepend_scheme": "always", "split": True}),
    "plain": (None, {**_METASPACE, "prepend_scheme": "never"}),
}
ALL_KINDS = (*KINDS, *PIECE_KINDS)


def odd_texts(n: int = 200, seed: int = 0) -> list[str]:
    """Return texts that put characters of every class next to each other, and texts of random bytes."""
    chance = random.Random(seed)
    pieces = sorted({char for text in TEXTS for char in text} | set("'’sStTdDmMlLvVrReE/\r\n\t \u017f\u0345\u05bf"))
    texts = ["".join(chance.choices(pieces, k=chance.randrange(60))) for _ in range(n)]
    texts += [chance.randbytes(chance.randrange(200)).decode("utf-8", "replace") for _ in range(n // 4)]
    blanks = sorted(set("▁ \u2581\u2581\u2026—the<0x41>\n漢字e"))
    texts += ["".join(chance.choices(blanks, k=chance.randrange(40))) for _ in range(n // 4)]
    texts += [
        chance.choice([" ", "\n", "a", "'", "漢", "1", "A\u0301"]) * chance.randrange(1, 300) for _ in range(n // 4)
    ]
    return ["", *TEXTS, *texts]


def train_pieces(kind: str, texts: list[str], size: int = 600, added: list[Any] | None = None) -> Any:
    """Train a BPE of SentencePiece; that of "gemma" merges across spaces."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    trained = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    trained.pre_tokenizer = pre_tokenizers.Metaspace(split=kind != "gemma")
    byte_tokens = [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(
        vocab_size=size + 256,
        limit_alphabet=max(200, size // 10),
        special_tokens=["<unk>", *SPECIAL, *byte_tokens],
        show_progress=False,
        max_token_length=16,
    )
    trained.train_from_iterator(texts, trainer)
    parts = json.loads(trained.to_str())
    parts["added_tokens"] = [{**one, "normalized": False} for one in parts["added_tokens"][:3]]
    parts["normalizer"], parts["pre_tokenizer"] = PIECE_KINDS[kind]
    if parts["pre_tokenizer"] and parts["pre_tokenizer"]["type"] == "Split":
        parts["pre_tokenizer"]["invert"] = False
    tokenizer = Tokenizer.from_str(json.dumps(parts))
    tokenizer.add_tokens(added or [])
    return tokenizer


def train(kind: str, texts: list[str], size: int = 600, added: list[Any] | None = None) -> Any:
    """Train a tokenizer of a kind; return the library's."""
    if kind in PIECE_KINDS:
        return train_pieces(kind, texts, size, added)
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

    pattern, options = KINDS[kind]
    tokenizer = Tokenizer(models.BPE(ignore_merges=options.get("ignore_merges", False)))
    steps = pre_tokenizers
    if pattern == "prefix":
        tokenizer.pre_tokenizer = steps.ByteLevel(add_prefix_space=True)
    else:
        first = steps.Digits(individual_digits=True) if pattern == "digits" else steps.Split(Regex(pattern), "isolated")
        last = steps.ByteLevel(add_prefix_space=False, use_regex=pattern == "digits")
        tokenizer.pre_tokenizer = steps.Sequence([first, last])
    if options.get("nfc"):
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=size,
            initial_alphabet=steps.ByteLevel.alphabet(),
            special_tokens=SPECIAL,
            show_progress=False,
            max_token_length=24,
        ),
    )
    tokenizer.add_tokens(added or [])
    return tokenizer


def save(folder: Path, kind: str = "cl100k", size: int = 600) -> Any:
    """Write the folder of a small tokenizer, as a model's folder has it; return the library's tokenizer."""
    tokenizer = train(kind, TEXTS * 3, size)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": SPECIAL[0]})
    )
    return tokenizer


def every_character() -> list[str]:
    """Return every code point that a text can hold."""
    return [chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000]
