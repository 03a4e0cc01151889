"""A small corpus with all that the steps of a curation look for, and the steps one after the other as the reference."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from tamis.backends.local import InProcessExecutor
from tamis.curation.steps import CorpusStep
from tamis.pipeline import Pipeline
from tamis.stages.text.io.reader import DocumentReader
from tamis.stages.text.io.writer import JsonlWriter
from tests.support.made_documents import edited, text

MEMORY = "600MB"
PLANNED = "8GB"  # of plans made in the process of the tests, whose own memory counts


def documents(n: int = 240) -> list[dict[str, Any]]:
    """Long and short texts; equal ones, near copies of two kinds, lines that many have, and texts that are none."""
    rng, docs = random.Random(3), [{"id": "first", "text": text(0)}]
    for i in range(n):
        kind, other = rng.random(), rng.choice(docs)["text"]
        if not isinstance(other, str) or len(other.split()) < 2:
            other = text(i)
        if kind < 0.15:
            made: Any = other
        elif kind < 0.35:
            made = edited(other, 2, i)
        elif kind < 0.4:
            made = other.upper()
        elif kind < 0.5:
            made = text(i, rng.randrange(1, 60))
        elif kind < 0.53:
            made = rng.choice([None, 7, "", "???"])
        else:
            made = text(i, rng.randrange(80, 400)) + ("\nAll rights reserved, whatever they are." if i % 3 else "")
        docs.append({"id": f"d{i}", "text": made, "score": rng.randrange(9)})
    return docs


def write(folder: Path, n: int = 240) -> Path:
    """Three files; the second has lines that are no documents."""
    folder.mkdir(parents=True)
    docs = documents(n)
    for k in range(3):
        lines = [json.dumps(d) for d in docs[k * len(docs) // 3 : (k + 1) * len(docs) // 3]]
        if k == 1:
            lines[5:5] = ["", '{"text": "broken'[:-3]]
        (folder / f"{k}.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def one_after_the_other(steps: list[Any], source: Path, folder: Path) -> tuple[str, int]:
    """Run every step by itself, each on the output of the one before it; return content hash and count of the last."""
    result: Any = None
    for i, step in enumerate(steps):
        output = folder / f"step-{i}"
        if isinstance(step, CorpusStep):
            workflow = step.kind.load_workflow()(output_path=str(output), input_path=str(source), **step.parameters())
            result = workflow.run(InProcessExecutor(), memory=MEMORY).run
        else:
            stages = [DocumentReader(str(source)), step, JsonlWriter(str(output))]
            result = Pipeline("step", stages=stages).execute(InProcessExecutor(), memory=MEMORY, quarantine_limit="5%")
        assert result.exit_code == 0, result.message
        source = output
    return f"{result.ledger.content.identity:032x}", result.ledger.written.n
