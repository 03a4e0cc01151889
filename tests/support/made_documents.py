"""Made documents for tests that look for duplicates: texts of random words, near copies, and folders of JSONL files."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

WORDS = [
    a + b for a in ("ka", "lo", "mi", "nu", "pe", "ri", "so", "tu") for b in ("ban", "dor", "fil", "gem", "hul", "jas")
]


def text(seed: int, n_words: int = 300) -> str:
    return " ".join(random.Random(seed).choices(WORDS, k=n_words))


def edited(whole: str, n_edits: int, seed: int = 0) -> str:
    words, rng = whole.split(), random.Random(seed)
    for _ in range(n_edits):
        words[rng.randrange(len(words))] = "changed"
    return " ".join(words)


def jaccard(a: str, b: str, n: int = 24) -> float:
    one, two = ({t[i : i + n] for i in range(len(t) - n + 1)} for t in (a, b))
    return len(one & two) / len(one | two)


def write(folder: Path, docs: list[dict[str, Any]], n_files: int = 2) -> Path:
    """Files 0.jsonl, 1.jsonl, ... which get the documents in turn."""
    folder.mkdir(parents=True)
    for k in range(n_files):
        (folder / f"{k}.jsonl").write_text("".join(json.dumps(d) + "\n" for d in docs[k::n_files]))
    return folder


def read(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for p in sorted(folder.glob("*.jsonl")) for line in p.read_text().splitlines()]
