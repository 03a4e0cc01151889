"""Documents for the benchmark: a folder of JSONL, repeated with marks until there are enough of them."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

_N_FILES = 32


def texts_of(folder: Path) -> list[str]:
    """All texts of the JSONL files in a folder, in an order that tells nothing about them.

    Made-up ones where there is no folder.
    """
    found = []
    for path in sorted(folder.glob("*.jsonl")):
        with path.open(encoding="utf-8") as file:
            found += [t for line in file if (t := json.loads(line).get("text"))]
    if not found:
        raise SystemExit(f"--corpus {folder}: no *.jsonl with a field `text` in it")
    random.Random(0).shuffle(found)
    return found


def made_up(n: int = 60) -> list[str]:
    """Texts for a try without a corpus: words of letters, lengths as in documentation."""
    rng = random.Random(1)
    words = ["".join(rng.choices("etaoinshrdlu", k=rng.randint(1, 9))) for _ in range(800)]
    return [" ".join(rng.choices(words, k=max(3, int(rng.lognormvariate(5.0, 1.0))))) for _ in range(n)]


def marked(texts: list[str], n: int) -> Iterator[tuple[int, str]]:
    """Yield `n` documents: the texts over and over, each time with another mark, so that no two are the same."""
    for i in range(n):
        turn, at = divmod(i, len(texts))
        yield i, texts[at] if turn == 0 else f"{turn}. {texts[at]}"


def write(folder: Path, texts: list[str], n: int) -> int:
    """Write these documents as JSONL files; return how many characters they have.

    Each text is encoded once, however often it comes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    encoded = [json.dumps(t, ensure_ascii=False)[1:].encode() for t in texts]
    per_file = -(-n // _N_FILES)
    for part, begin in enumerate(range(0, n, per_file)):
        with (folder / f"part-{part:02d}.jsonl").open("wb", buffering=1 << 20) as file:
            for i in range(begin, min(begin + per_file, n)):
                turn, at = divmod(i, len(texts))
                mark = f"{turn}. " if turn else ""
                file.write(f'{{"id":{i},"text":"{mark}'.encode() + encoded[at] + b"}\n")
    return sum(len(texts[i % len(texts)]) for i in range(n))
