"""Write custom stages: one adds the number of words, one drops short documents.

Usage: python own_stage.py [INPUT [OUTPUT]]. INPUT defaults to a few documents in a temporary folder, OUTPUT to that
folder, which is removed at the end.
"""

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pyarrow.compute as pc

from tamis import DocumentBatch, Pipeline, ProcessingStage
from tamis.stages.text.io.reader import DocumentReader
from tamis.stages.text.io.writer import JsonlWriter


@dataclass
class CountWords(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Adds the number of words. Columns are Arrow arrays, so this runs compiled code, without a loop over documents."""

    name: str = "count words"

    def inputs(self) -> tuple[list[str], list[str]]:
        return [], ["text"]

    def outputs(self) -> tuple[list[str], list[str]]:
        return [], ["n_words"]

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        return batch.with_column("n_words", pc.count_substring_regex(batch.column("text"), r"\S+"))


@dataclass
class MinWords(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Drops documents of fewer words."""

    min_words: int = 5
    name: str = "too few words"

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        return batch.filter(pc.fill_null(pc.greater_equal(batch.column("n_words"), self.min_words), False))


def main(source: str, output: str) -> None:
    pipeline = Pipeline("words", stages=[DocumentReader(source), CountWords(), MinWords(5), JsonlWriter(output)])
    result = pipeline.execute(memory="512MB")
    for book in result.ledger.stages:
        print(f"{book.name}: {book.into.n} in, {book.out.n} out")
    print(f"{result.status}: {result.ledger.written.n} documents in {result.output}")
    print(f"peak memory: {result.peak_bytes / 1e6:.0f} MB")


with tempfile.TemporaryDirectory() as folder:
    sample = Path(folder, "sample.jsonl")
    sample.write_text("".join(f'{{"id": {i}, "text": "{"word " * i}"}}\n' for i in range(12)))
    main(*[*sys.argv[1:], *[str(sample), f"{folder}/words"][len(sys.argv) - 1 :]])
