"""A whole curation from Python: a filter, a stage of one's own, both deduplications, splits and a dataset card.

Run it: python curate.py [INPUT [OUTPUT]]. Without INPUT it makes some documents in a temporary folder; without OUTPUT the
result goes there, too. The folder is removed at the end.
"""

import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from tamis import DocumentBatch, ProcessingStage
from tamis.curation import Curation, ExactDuplicates, FuzzyDuplicates
from tamis.stages.text.filters.has_text import HasText


@dataclass
class NoQuestions(ProcessingStage):
    """Drops documents that end with a question mark."""

    name: str = "no questions"
    only_drops: ClassVar[bool] = True  # so that the last pass goes by what it did, and does not do it again

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        return batch.filter([not text.endswith("?") for text in batch.column("text").to_pylist()])


def main(source: str, output: str) -> None:
    steps = [HasText(), NoQuestions(), ExactDuplicates(), FuzzyDuplicates()]
    curation = Curation(steps, source, output, name="example", split="train=80,test=20")
    for one in curation.plan().passes:
        print(f"{one.name}: runs {', '.join(one.runs) or 'nothing new'}")
    result = curation.run(memory="600MB", fresh=True)
    for book in result.run.ledger.stages:
        print(f"{book.name}: {book.into.n} in, {book.out.n} out")
    print(sorted(path.name for path in Path(output).iterdir()))


with tempfile.TemporaryDirectory() as folder:
    made = Path(folder, "made.jsonl")
    texts = [f"Document number {i % 10} says {'something ' * (i % 10)}and ends{'?' * (i == 3)}" for i in range(12)]
    made.write_text("".join(json.dumps({"id": i, "text": text}) + "\n" for i, text in enumerate([*texts, None])))
    main(*[*sys.argv[1:], *[str(made), f"{folder}/curated"][len(sys.argv) - 1 :]])
