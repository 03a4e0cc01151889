"""Measure semantic deduplication of 4 million vectors of 1,024 numbers on a GPU, first read to last commit.

Vectors of one cluster have a cosine of about 0.7, planted copies of about 0.98, and `eps` is 0.05. Files are made
before, by as many processes as there are cores, and are on the disk (or in the page cache) when the clock starts;
duplicates are listed, not removed. `timeline`: when names appeared in the run directory. What was listed is compared
with what was planted: `wrong` documents are listed though they are neither a copy nor have one.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

WIDTH, EPS, COPIES, GOAL = 1024, 0.05, 0.1, 200_000
_PART, _PER_CLUSTER = 31_250, 1000


def make_part(folder: Path, part: int, n: int, n_clusters: int) -> Any:
    """Write one file; return the ids of copies and of what they are copies of."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    centers = np.random.default_rng(0).standard_normal((n_clusters, WIDTH), np.float32)
    centers /= np.linalg.norm(centers, axis=1, keepdims=True)
    rng = np.random.default_rng([1, part])
    x = rng.standard_normal((n, WIDTH), np.float32)
    x *= np.float32(0.65 / np.sqrt(WIDTH))
    x += centers[rng.integers(0, n_clusters, n)]
    copies = np.arange(n - round(n * COPIES), n)
    sources = rng.choice(n - len(copies), len(copies), replace=False)
    noise = rng.standard_normal((len(copies), WIDTH), np.float32)
    x[copies] = x[sources] + noise * np.float32(0.2 / np.sqrt(WIDTH))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    lists = pa.ListArray.from_arrays(np.arange(0, n * WIDTH + 1, WIDTH, dtype=np.int32), pa.array(x.reshape(-1)))
    table = pa.table({"id": np.arange(part * _PART, part * _PART + n), "embeddings": lists})
    path = folder / f"part-{part:04d}.parquet"
    pq.write_table(table, path, row_group_size=8192, compression="none", use_dictionary=False)
    return np.stack([copies, sources]) + part * _PART


def make(folder: Path, n: int) -> Any:
    """Write all files; return the ids of all copies (first row) and of what they are copies of."""
    import numpy as np

    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    parts = [(i, min(_PART, n - i * _PART)) for i in range(-(-n // _PART))]
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        made = [pool.submit(make_part, folder, i, size, max(1, n // _PER_CLUSTER)) for i, size in parts]
        pairs = np.concatenate([one.result() for one in made], axis=1)
    os.sync()
    return pairs


class Timeline:
    """When files and folders appear below a folder, down to the third level."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.seen, self._over = folder, [], threading.Event()
        self._began = time.perf_counter()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        known: set[str] = set()
        while not self._over.wait(0.1):
            now = round(time.perf_counter() - self._began, 1)
            for pattern in ("*", "*/*", "*/*/*"):
                for path in self.folder.glob(pattern):
                    name = str(path.relative_to(self.folder))
                    if name not in known and not path.name.startswith(("part-", ".")):
                        known.add(name)
                        self.seen.append((now, name))

    def stop(self) -> list[tuple[float, str]]:
        self._over.set()
        self._thread.join()
        return self.seen


def disk_gb_per_s(folder: Path, n_bytes: int = 2 << 30) -> float:
    """Return the rate of one file that is written and synced."""
    block, path = os.urandom(1 << 24), folder / "disk.probe"
    began = time.perf_counter()
    with open(path, "wb", buffering=0) as file:
        for _ in range(n_bytes >> 24):
            file.write(block)
        os.fsync(file.fileno())
    seconds = time.perf_counter() - began
    path.unlink()
    return n_bytes / seconds / 1e9


def compare(listed: Path, planted: Any) -> dict[str, int]:
    """Return how many planted pairs lost one of their two documents, and how many others are listed."""
    import numpy as np
    import pyarrow.parquet as pq

    ids = np.concatenate([pq.read_table(path, columns=["id"])["id"].to_numpy() for path in listed.glob("*.parquet")])
    found = np.isin(planted[0], ids) | np.isin(planted[1], ids)
    return {"found": int(found.sum()), "wrong": int((~np.isin(ids, planted)).sum()), "listed": len(ids)}


def first_read_s(folder: Path, began_s: float) -> float:
    """Return when a file of the input was first read, by the clock of `time.time`.

    As new files note it; where the file system does not, `began_s`.
    """
    times = [path.stat().st_atime for path in folder.glob("*.parquet")]
    return min((at for at in times if at >= began_s), default=began_s)


def run(work: Path, n: int, backend: str, memory: str) -> dict[str, Any]:
    from tamis.dedup.semantic.workflow import SemanticDeduplicationWorkflow
    from tamis.stores.run_locations import run_dir_of

    work.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    planted = make(work / "wide", n)
    made_s = time.perf_counter() - began
    disk = disk_gb_per_s(work) if n > 100_000 else 0.0
    output = work / "wide-out"
    shutil.rmtree(output, ignore_errors=True)
    shutil.rmtree(run_dir_of(str(output)), ignore_errors=True)
    timeline = Timeline(Path(run_dir_of(str(output))))
    workflow = SemanticDeduplicationWorkflow(
        str(work / "wide"), str(output), None, eps=EPS, backend=backend, verbose=False
    )
    began, began_s = time.perf_counter(), time.time()
    result = workflow.run(memory=memory)
    seconds = time.perf_counter() - began
    read_s = first_read_s(work / "wide", began_s)
    last_commit_s = os.stat(Path(run_dir_of(str(output / "duplicates"))) / "commit.log").st_mtime
    seen = timeline.stop()
    summary = result.summary
    return {
        "vectors": n,
        "width": WIDTH,
        "seconds": round(seconds, 1),
        "start_s": round(read_s - began_s, 1),
        "read_to_commit_s": round(last_commit_s - read_s, 1),
        "vectors_per_s": round(n / (last_commit_s - read_s)),
        "phases": summary.get("phase_seconds"),
        "made_s": round(made_s, 1),
        "disk_gb_per_s": round(disk, 2),
        "memory": memory,
        "cores": len(os.sched_getaffinity(0)),
        "peak_gb": round(result.peak_bytes / 1e9, 2),
        "backend": summary.get("backend"),
        "clusters": summary.get("n_clusters"),
        "duplicates": summary.get("n_duplicates"),
        "planted": planted.shape[1],
        **compare(output / "duplicates", planted),
        "timeline": [f"{at} {name}" for at, name in seen],
    }
