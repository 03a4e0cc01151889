"""Measure semantic deduplication of vectors in clusters with planted copies: time, host memory and recall.

Vectors of one cluster have a cosine of about 0.7, copies of about 0.98, and `eps` is 0.05: what brute force within the
clusters finds are the copies (looked at in some clusters).
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Any

WIDTH, EPS, COPIES = 384, 0.05, 0.1
_PART = 50_000


def make(folder: Path, n: int) -> dict[str, Any]:
    """Parquet files with `id`, `of` (the document that it copies, or itself) and `embeddings`.

    What brute force finds in some clusters.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    n_clusters = max(1, n // 1000)
    centers = rng.standard_normal((n_clusters, WIDTH), np.float32)
    centers /= np.linalg.norm(centers, axis=1, keepdims=True)
    n_planted, checked, agreed = 0, 0, 0
    for part, begin in enumerate(range(0, n, _PART)):
        size = min(_PART, n - begin)
        cluster = rng.integers(0, n_clusters, size)
        x = centers[cluster] + rng.standard_normal((size, WIDTH), np.float32) * np.float32(0.65 / np.sqrt(WIDTH))
        of = np.arange(begin, begin + size)
        copies = np.flatnonzero(rng.random(size) < COPIES)
        copies = copies[copies > 0]
        sources = rng.integers(0, copies)
        sources = np.where(np.isin(sources, copies), -1, sources)  # no copies of copies
        copies, sources = copies[sources >= 0], sources[sources >= 0]
        cluster[copies] = cluster[sources]
        x[copies] = x[sources] + rng.standard_normal((len(copies), WIDTH), np.float32) * np.float32(
            0.2 / np.sqrt(WIDTH)
        )
        of[copies] = sources + begin
        n_planted += len(copies)
        x /= np.linalg.norm(x, axis=1, keepdims=True)
        if part == 0:
            for c in range(min(20, n_clusters)):
                at = np.flatnonzero(cluster == c)
                near = x[at] @ x[at].T >= 1 - EPS
                np.fill_diagonal(near, False)
                planted = of[at][:, None] == of[at][None]
                np.fill_diagonal(planted, False)
                checked += int(near.sum())
                agreed += int((near & planted).sum())
        lists = pa.FixedSizeListArray.from_arrays(pa.array(x.reshape(-1)), WIDTH).cast(pa.list_(pa.float32()))
        table = pa.table({"id": np.arange(begin, begin + size), "of": of, "embeddings": lists})
        pq.write_table(table, folder / f"part-{part:03d}.parquet", row_group_size=10_000, compression="none")
    return {"planted": n_planted, "brute_pairs": checked, "brute_pairs_planted": agreed}


def run(work: Path, n: int, backend: str, memory: str, cores: int | None) -> dict[str, Any]:
    """One deduplication, with removal, and what of the planted copies went."""
    import numpy as np
    import pyarrow.parquet as pq

    from tamis.dedup.semantic.workflow import SemanticDeduplicationWorkflow

    began = time.perf_counter()
    made = make(work / "vectors", n)
    made_s = time.perf_counter() - began
    if cores:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    output = work / "unique"
    shutil.rmtree(output, ignore_errors=True)
    workflow = SemanticDeduplicationWorkflow(
        str(work / "vectors"), str(output), None, eps=EPS, perform_removal=True, backend=backend, verbose=False
    )
    began = time.perf_counter()
    result = workflow.run(memory=memory)
    seconds = time.perf_counter() - began
    kept = np.concatenate([pq.read_table(p, columns=["of"])["of"].to_numpy() for p in output.glob("*.parquet")])
    left_over = len(kept) - len(np.unique(kept))  # more than one of a document and its copies
    recall = 1 - left_over / max(1, made["planted"])
    wrong = n - made["planted"] - len(np.unique(kept))  # documents of which nothing is left
    summary = result.summary
    return {
        "vectors": n,
        "seconds": round(seconds, 1),
        "made_s": round(made_s, 1),
        "memory": memory,
        "cores": cores or len(os.sched_getaffinity(0)),
        "peak_gb": round(result.peak_bytes / 1e9, 2),
        "backend": summary.get("backend"),
        "backend_why": summary.get("backend_why"),
        "clusters": summary.get("n_clusters"),
        "duplicates": summary.get("n_duplicates"),
        "recall": round(recall, 5),
        "wrongly_gone": wrong,
        **made,
    }
