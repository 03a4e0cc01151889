"""Fuzzy deduplication by datatrove's four steps: `python dedup_datatrove.py INPUT OUTPUT SCRATCH WORKERS`.

Runs in the environment of datatrove, with its defaults: 5 words, 14 buckets of 8 hashes; one task per input file.
"""

from __future__ import annotations

import sys
from pathlib import Path


def main(source: str, target: str, scratch: str, workers: int) -> None:
    from datatrove.executor import LocalPipelineExecutor
    from datatrove.pipeline.dedup import (
        MinhashDedupBuckets,
        MinhashDedupCluster,
        MinhashDedupFilter,
        MinhashDedupSignature,
    )
    from datatrove.pipeline.dedup.minhash import MinhashConfig
    from datatrove.pipeline.readers import JsonlReader
    from datatrove.pipeline.writers import JsonlWriter

    config = MinhashConfig(n_grams=5, num_buckets=14, hashes_per_bucket=8)
    n_files = len(list(Path(source).glob("*.jsonl")))
    reader = JsonlReader(source, glob_pattern="*.jsonl")
    steps = [
        ([reader, MinhashDedupSignature(f"{scratch}/signatures", config=config)], n_files),
        ([MinhashDedupBuckets(f"{scratch}/signatures", f"{scratch}/buckets", config=config)], config.num_buckets),
        ([MinhashDedupCluster(f"{scratch}/buckets", f"{scratch}/remove", config=config)], 1),
        (
            [
                reader,
                MinhashDedupFilter(f"{scratch}/remove"),
                JsonlWriter(target, output_filename="${rank}.jsonl", compression=None),
            ],
            n_files,
        ),
    ]
    for k, (pipeline, tasks) in enumerate(steps):
        LocalPipelineExecutor(pipeline, tasks=tasks, workers=workers, logging_dir=f"{scratch}/logs-{k}").run()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
