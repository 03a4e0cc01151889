"""One run of a pipeline, as the benchmarks measure it: `python job.py KIND INPUT OUTPUT [setting=value ...]`.

Kinds: keep (read, keep all, write), each (the same, one file per partition), words (a stage that builds a Python list
of every word), parquet (JSONL to Parquet). Prints one JSON line.
"""

from __future__ import annotations

import json
import sys
import time

from tamis.backends.local import LocalExecutor
from tamis.errors import TamisError
from tamis.pipeline import Pipeline
from tamis.stages.base import ProcessingStage
from tamis.stages.text.io.reader import DocumentReader
from tamis.stages.text.io.writer import JsonlWriter, ParquetWriter


class EveryWord(ProcessingStage):
    """Holds a Python string for every word of its batch: about eleven times the text."""

    name = "every_word"

    def inputs(self):
        return [], ["text"]

    def outputs(self):
        return [], ["n_words"]

    def process(self, batch):
        words = [text.split() if text else [] for text in batch.column("text").to_pylist()]
        return batch.with_column("n_words", [len(w) for w in words])


def main() -> int:
    kind, source, target, *pairs = sys.argv[1:]
    settings = dict(pair.split("=", 1) for pair in pairs)
    for name in ("workers",):
        if name in settings:
            settings[name] = int(settings[name])
    settings["fresh"] = settings.get("fresh", "yes") == "yes"
    middle = [EveryWord()] if kind == "words" else []
    writer = ParquetWriter(target) if kind == "parquet" else JsonlWriter(target)
    pipeline = Pipeline(
        "bench", stages=[DocumentReader(source, files_per_partition=1 if kind == "each" else None), *middle, writer]
    )
    began, started = time.monotonic(), []

    def progress(state: dict) -> None:
        if state["phase"] == "working" and not started:
            started.append(time.monotonic() - began)

    try:
        r = pipeline.execute(LocalExecutor(progress=progress), count_caller=True, **settings)
    except TamisError as exc:
        print(json.dumps({"error": str(exc), "exit_code": exc.exit_code}))
        return exc.exit_code
    ledger = r.ledger
    print(
        json.dumps(
            {
                "seconds": round(r.seconds, 3),
                "records": ledger.records.n,
                "written": ledger.written.n,
                "files": r.n_files,
                "quarantined": ledger.quarantined.n,
                "read_bytes": ledger.read_bytes,
                "own_peak_mb": round(r.peak_bytes / 1e6, 1),
                "started_s": round(started[0] if started else 0.0, 3),
                "content": f"{ledger.content.identity:032x}",
                "counters": r.counters,
                "exit_code": r.exit_code,
            }
        )
    )
    return r.exit_code


if __name__ == "__main__":
    sys.exit(main())
