"""A pipeline that takes its time, by the executor that is named: `slow_copy.py NAME OUTPUT ADDRESS SECONDS`.

Prints the content hash.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from tamis import DocumentBatch, LocalExecutor, Pipeline, ProcessingStage
from tamis.stages.text.io import JsonlReader, JsonlWriter
from tests.support.run_dirs import run_dir_path


class Slow(ProcessingStage[Any, Any]):
    """Passes on what it gets, after a while."""

    name = "slow"

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        time.sleep(self.seconds)
        return batch.filter([bool(i % 5) for i, _ in enumerate(batch.column("text").to_pylist())])


def make(name: str, address: str | None) -> Any:
    if name == "local":
        return LocalExecutor()
    from tamis.backends.ray_actor_pool import RayActorPoolExecutor
    from tamis.backends.ray_data import RayDataExecutor
    from tamis.backends.xenna import XennaExecutor

    kinds = {"ray": RayActorPoolExecutor, "ray_data": RayDataExecutor, "xenna": XennaExecutor}
    return kinds[name](address=address)


def main() -> None:
    name, output, address, seconds = sys.argv[1:5]
    executor = make(name, address or None)
    pipeline = Pipeline(
        "slow", stages=[JsonlReader("data", files_per_partition=1), Slow(float(seconds)), JsonlWriter(output)]
    )
    try:
        pipeline.run(executor, progress=False, memory="600MB")
    finally:
        if hasattr(executor, "close"):
            executor.close()
    manifest = json.loads((run_dir_path(Path(output)) / "manifest.json").read_text())
    assert pipeline.last_result is not None
    print(json.dumps({"content": manifest["content_hash"], "counters": pipeline.last_result.counters}))


if __name__ == "__main__":
    main()
