"""Language identification: speed, and agreement with the fastText library.

`make bench-langid`, or `python benchmarks/langid.py`.

Documents are those of data.py, the model is the one of the extra `lang`. For each number of bytes read of a document:
the speed, as MB of whole documents per second on one core, and how many documents over 1 kB get the label that the
library gives their whole text, newlines made spaces. `--write` puts the table into docs/guides/language-id.md.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
import pyarrow as pa

import data
from tamis.stages.text.langid import MAX_BYTES, LanguageId

PAGE = data.HERE.parent / "docs/guides/language-id.md"
SIZES = (1000, 2000, 4000, 6000, 8000, 12_000)
WHOLE = 1 << 62
BATCH_BYTES = 8 << 20
MIN_BYTES = 1000  # documents that the agreement is counted on


def documents() -> list[str]:
    return [json.loads(line)["text"] for part in data.base() for line in part.read_bytes().splitlines()]


def batches(texts: list[str]) -> list[pa.Array]:
    """Arrow columns of some MB, as stages get them."""
    found: list[pa.Array] = []
    part: list[str] = []
    n_bytes = 0
    for text in texts:
        part.append(text)
        n_bytes += len(text.encode())
        if n_bytes >= BATCH_BYTES:
            found.append(pa.array(part, pa.large_string()))
            part, n_bytes = [], 0
    return [*found, pa.array(part, pa.large_string())]


def library_labels(path: str, texts: list[str]) -> tuple[list[str], float]:
    """Return fastText's own answers for whole texts, and the seconds that it took."""
    import fasttext  # type: ignore[import-not-found,import-untyped,unused-ignore]

    model: Any = fasttext.load_model(path)
    began = time.process_time()
    found = [model.f.predict(text.replace("\n", " ") + "\n", 1, 0.0, "strict") for text in texts]
    seconds = time.process_time() - began
    return [rows[0][1].removeprefix("__label__") if rows else "" for rows in found], seconds


def measured(columns: list[pa.Array], max_bytes: int, repeats: int) -> tuple[list[str], float]:
    """Labels, and the best CPU seconds of several runs, each with a model that has seen nothing."""
    best = float("inf")
    labels: list[str] = []
    for _ in range(repeats):
        detector = LanguageId(max_bytes=max_bytes)
        detector.load()
        began = time.process_time()
        labels = [code or "" for column in columns for code in detector.detect(column)[0].to_pylist()]
        best = min(best, time.process_time() - began)
    return labels, best


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--write", action="store_true", help="put the table into docs/guides/language-id.md")
    options = parser.parse_args()
    texts = documents()
    columns = batches(texts)
    sizes = [len(text.encode()) for text in texts]
    total_mb = sum(sizes) / 1e6
    long = [i for i, size in enumerate(sizes) if size > MIN_BYTES]
    expected, seconds = library_labels(LanguageId().path(), texts)
    foreign = [i for i in long if expected[i] != "en"]
    lines = [
        f"{len(texts):,} documents, {total_mb:.0f} MB; labels compared on the {len(long):,} over 1 kB, of which "
        f"{len(foreign):,} are not English.",
        "",
        "| read of a document | same label | same label, not English | MB/s of documents, one core |",
        "|---|---|---|---|",
    ]
    for max_bytes in (*SIZES, WHOLE):
        labels, took = measured(columns, max_bytes, options.repeats)
        same = [
            f"{100 * sum(labels[i] == expected[i] for i in some) / len(some):.2f} %" if some else ""
            for some in (long, foreign)
        ]
        name = "all of it" if max_bytes == WHOLE else f"{max_bytes:,} bytes"
        mark = " (default)" if max_bytes == MAX_BYTES else ""
        lines.append(f"| {name}{mark} | {same[0]} | {same[1]} | {total_mb / took:.0f} |")
        print(lines[-1], flush=True)
    lines.append(f"| all of it, by the fastText library | | | {total_mb / seconds:.1f} |")
    print(lines[-1])
    if options.write:
        page = PAGE.read_text(encoding="utf-8")
        table = "\n".join(["<!-- benchmarks/langid.py -->", *lines, "<!-- end -->"])
        page = re.sub(r"<!-- benchmarks/langid.py -->.*?<!-- end -->", lambda _: table, page, flags=re.DOTALL)
        PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
