"""Equality with the library on large vocabularies and texts of every kind: slow, with counts of what was compared."""

from __future__ import annotations

import base64
import itertools
import json
import os
import random
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tamis.formats.compression.zstd import ZstdFile
from tamis.stages.text.tokens.tokenizer import BpeTokenizer, of_json
from tests.stages.text.tokens.small_tokenizers import TEXTS, every_character, odd_texts, train

tokenizers = pytest.importorskip("tokenizers")
pytestmark = [pytest.mark.slow, pytest.mark.corpus, pytest.mark.timeout(2400)]
SIZES = {"gpt2": 32_000, "llama2": 32_000, "gemma": 32_000, "cl100k": 128_000, "qwen2": 128_000, "o200k": 200_000}
SCRIPTS = {
    "Chinese, Japanese": ("\u3040", "\u9fff"),
    "Korean": ("\uac00", "\ud7af"),
    "Russian": ("\u0400", "\u04ff"),
    "Bengali, Hindi": ("\u0900", "\u09ff"),
    "Arabic": ("\u0600", "\u06ff"),
    "German, French, Spanish, Portuguese": ("\u00c0", "\u00ff"),
}
EMOJI = [chr(code) for code in (*range(0x1F300, 0x1F6FF), *range(0x1F900, 0x1FA00), *range(0x2600, 0x27C0))]
JOINTS = ["\u200d", "\ufe0f", "\U0001f3fb", "\U0001f3ff", "\U0001f1e9", " ", ""]
_CHUNK = 400  # texts compared at once


def corpus() -> list[str]:
    """Return documents of the shared corpus, or skip."""
    folder = Path(os.environ.get("TAMIS_SHARED", Path(__file__).resolve().parents[5] / "shared")) / "corpus"
    parts = sorted(folder.glob("*.jsonl.zst"))
    if not parts:
        pytest.skip("the shared corpus is absent; set TAMIS_SHARED to the folder that holds it")
    return [json.loads(line)["text"] for part in parts for line in ZstdFile(part).read().splitlines()]


def by_language(texts: list[str], n: int) -> Iterator[tuple[str, list[str]]]:
    """Yield documents with many characters of a script, at most n of each, and then English ones."""
    rest = texts
    for name, (first, last) in SCRIPTS.items():
        own = {k for k, text in enumerate(rest) if sum(first <= c <= last for c in text[:2000]) > 20}
        yield name, [rest[k] for k in sorted(own)][:n]
        rest = [text for k, text in enumerate(rest) if k not in own]
    yield "English", rest[:n]


def code(n_bytes: int) -> list[str]:
    """Return sources of Python's own library."""
    found: list[str] = []
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        found.append(path.read_text("utf-8", "replace"))
        n_bytes -= len(found[-1])
        if n_bytes < 0:
            break
    return found


def numbers(chance: random.Random) -> str:
    value = chance.choice([chance.random(), chance.randrange(10**6), chance.randrange(10**18), -chance.random() * 1e9])
    return chance.choice(["{}", "{:,}", "{:.3f}", "{:e}", "0x{}", "${}", "{}%", "v{}.{}", "({})", "{} {}"]).format(
        value, chance.randrange(1000)
    )


def long_words(chance: random.Random) -> list[str]:
    letters = ["ab", "ACGT", "abcdefghijklmnopqrstuvwxyz", "漢字東京都", "aéß", "=", " ", "\n", "1", "\u2581", "'s"]
    words = ["".join(chance.choices(some, k=n)) for some in letters for n in (90, 100, 5_000, 200_000)]
    return [*words, base64.b64encode(chance.randbytes(300_000)).decode(), chance.randbytes(100_000).hex()]


def kinds_of_text(texts: list[str]) -> Iterator[tuple[str, list[str]]]:
    chance = random.Random(7)
    yield from by_language(texts, 500)
    yield "code", code(3_000_000)
    yield "numbers", [" ".join(numbers(chance) for _ in range(200)) for _ in range(500)]
    yield "emoji", ["".join(chance.choice(EMOJI) + chance.choice(JOINTS) for _ in range(100)) for _ in range(500)]
    yield "single code points", every_character()
    yield "random bytes, replaced", [chance.randbytes(2_000).decode("utf-8", "replace") for _ in range(500)]
    yield "random bytes, Latin-1", [chance.randbytes(2_000).decode("latin-1") for _ in range(500)]
    yield "random characters", ["".join(chance.choices(every_character(), k=500)) for _ in range(200)]
    yield "odd mixtures", odd_texts(4_000, seed=1)
    yield "very long words", long_words(chance)


def n_different(own: Any, library: Any, texts: list[str]) -> int:
    n = 0
    for k in range(0, len(texts), _CHUNK):
        some = texts[k : k + _CHUNK]
        found = own.encode(pa.array(some, pa.large_string()))
        expected = library.encode_batch_fast(some, add_special_tokens=False)
        spans = itertools.pairwise(found.offsets.tolist())
        n += sum(not np.array_equal(found.ids[a:b], one.ids) for (a, b), one in zip(spans, expected, strict=True))
    return n


def unreachable(library: Any) -> Any:
    """Return the same tokenizer without every tenth merge, so that merges do not reach many of its tokens."""
    parts = json.loads(library.to_str())
    parts["model"]["merges"] = [merge for k, merge in enumerate(parts["model"]["merges"]) if k % 10 != 3]
    return tokenizers.Tokenizer.from_str(json.dumps(parts))


@pytest.mark.parametrize("kind", SIZES)
def test_large_vocabularies_give_the_librarys_ids_for_every_kind_of_text(kind: str) -> None:
    texts = corpus()
    some = [text[:200] for text in texts] if kind == "gemma" else texts[::4]  # texts are its words
    some = texts if kind == "o200k" else some  # a quarter does not have as many tokens
    library = train(kind, [*some, *TEXTS], SIZES[kind])
    rows = []
    for what, tokenizer in (("", library), ("unreachable tokens: ", unreachable(library))):
        own, why_not = of_json(tokenizer.to_str())
        assert (type(own), why_not) == (BpeTokenizer, "")
        for name, some in kinds_of_text(texts[:: 1 if not what else 10]):
            n_bytes = sum(len(text.encode()) for text in some)
            rows.append((what + name, len(some), n_bytes, n_different(own, tokenizer, some)))
            print(f"{kind}, {library.get_vocab_size():,}: {rows[-1]}", flush=True)
    assert sum(n for *_, n in rows) == 0, rows
