"""Fuzzy deduplication by data-juicer: `python dedup_juicer.py INPUT OUTPUT SCRATCH WORKERS`.

Runs in the environment of data-juicer: the two steps of its operator, between reading and writing JSONL with the
library that it stands on; its executor does the same with more around it. 5 words as they are, 14 bands of 8 rows.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from unittest.mock import MagicMock


def main(source: str, target: str, scratch: str, workers: int) -> None:
    Path(scratch).mkdir(parents=True, exist_ok=True)
    os.environ.update(HF_HOME=scratch, HF_DATASETS_CACHE=f"{scratch}/datasets", DATA_JUICER_CACHE_HOME=f"{scratch}/dj")
    os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1")
    # The package installs what it misses (torch, Ray) while it runs; nothing of that is needed here, and it would be
    # timed.
    os.environ.update(UV_OFFLINE="1", UV_NO_CACHE="1", PIP_NO_INDEX="1")
    # Ray is imported whatever is run, and used by nothing that runs here: hollow modules take its place.
    for name in ("ray", "ray.data", "ray.data.block", "ray.data.datasource", "ray.util", "ray.exceptions"):
        sys.modules[name] = MagicMock(__path__=[], __spec__=None)
    from data_juicer.ops.deduplicator.document_minhash_deduplicator import DocumentMinhashDeduplicator
    from datasets import load_dataset

    files = sorted(str(path) for path in Path(source).glob("*.jsonl"))
    documents = load_dataset("json", data_files=files, split="train")
    operator = DocumentMinhashDeduplicator(
        tokenization="space",
        window_size=5,
        lowercase=False,
        num_permutations=112,
        num_bands=14,
        num_rows_per_band=8,
    )
    Path(target).mkdir(parents=True, exist_ok=True)
    hashed = documents.map(operator.compute_hash, num_proc=workers)
    operator.process(hashed)[0].to_json(f"{target}/kept.jsonl", num_proc=workers, force_ascii=False)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
