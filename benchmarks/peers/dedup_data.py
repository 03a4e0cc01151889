"""Make the input of the deduplication benchmarks once: distinct real text, and very many tiny documents."""

from __future__ import annotations

import itertools
import json
import random
import shutil
import string
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import data

TINY_PER_FILE = 5_000_000
_TINY_BATCH = 500_000
_EQUAL, _NEAR = 0.10, 0.05  # of the tiny documents: equal to another one, and one letter apart


def varied(n_times: int) -> Path:
    """Return the base files n times over, about 100 MB each, every time in another alphabet.

    Letters are exchanged for others, alike in all documents of a copy: lengths, words and the duplicates within a copy
    stay as they are, and documents of two copies have nothing in common. Plain copies would make nine of ten documents
    duplicates, and the output a tenth of what it is.
    """
    folder = data.DATA / f"varied-{n_times}"
    if folder.exists():
        return folder
    temporary = data.DATA / f"varied-{n_times}.tmp"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    for k in range(n_times):
        table = _alphabet(k)
        for part in data.base():
            with open(part, "rb") as source, open(temporary / f"{k:03d}-{part.name}", "wb") as target:
                if not k:
                    shutil.copyfileobj(source, target)
                for line in source if k else ():
                    row = json.loads(line)
                    row["text"] = row["text"].translate(table)
                    target.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")
    temporary.rename(folder)
    return folder


def _alphabet(k: int) -> dict[int, int]:
    letters = string.ascii_lowercase
    others = "".join(random.Random(k).sample(letters, len(letters)))
    return str.maketrans(letters + letters.upper(), others + others.upper())


def tiny(n_documents: int) -> Path:
    """Documents of 60 bytes in files of five million: five words each.

    One of ten is equal to another, one of twenty nearly.
    """
    folder = data.DATA / f"tiny-documents-{n_documents}"
    if folder.exists():
        return folder
    temporary = data.DATA / f"tiny-documents-{n_documents}.tmp"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    lines = _tiny_lines(n_documents)
    per_file = TINY_PER_FILE // _TINY_BATCH
    for k in itertools.count():
        batches = list(itertools.islice(lines, per_file))
        if not batches:
            break
        with open(temporary / f"{k:03d}.jsonl", "wb") as out:
            out.writelines(batches)
    temporary.rename(folder)
    return folder


def _tiny_lines(n_documents: int) -> Iterator[bytes]:
    import numpy as np

    rng = np.random.default_rng(9)
    words = np.full((4096, 9), ord(" "), np.uint8)
    words[:, :8] = rng.integers(ord("a"), ord("z") + 1, (4096, 8))
    for first in range(0, n_documents, _TINY_BATCH):
        n = min(_TINY_BATCH, n_documents - first)
        texts = words[rng.integers(0, 4096, (n, 5))].reshape(n, 45)[:, :44]
        kind = rng.random(n)
        for low, high, near in ((0.0, _EQUAL, False), (_EQUAL, _EQUAL + _NEAR, True)):
            rows = np.flatnonzero((kind >= low) & (kind < high))
            texts[rows] = texts[rng.integers(0, n, len(rows))]
            if near:
                texts[rows, 43] = ord("0")
        lines = np.empty((n, 60), np.uint8)
        lines[:, :12] = np.frombuffer(b'{"text":   "', np.uint8)
        lines[:, 12:56] = texts
        lines[:, 56:] = np.frombuffer(b'" }\n', np.uint8)
        yield lines.tobytes()


def size_of(folder: Path) -> int:
    return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())
