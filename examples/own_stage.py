"""A stage of your own: add the number of words, drop short documents. Run it: python examples/own_stage.py [INPUT [OUTPUT]]"""

import sys
from dataclasses import dataclass

import pyarrow.compute as pc

from tamis import DocumentBatch, Pipeline, ProcessingStage
from tamis.stages.text.io.reader import DocumentReader
from tamis.stages.text.io.writer import JsonlWriter


@dataclass
class CountWords(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Columns are Arrow arrays, so this is compiled code and no loop over documents."""

    name: str = "count words"

    def inputs(self) -> tuple[list[str], list[str]]:
        return [], ["text"]

    def outputs(self) -> tuple[list[str], list[str]]:
        return [], ["n_words"]

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        return batch.with_column("n_words", pc.count_substring_regex(batch.column("text"), r"\S+"))


@dataclass
class MinWords(ProcessingStage[DocumentBatch, DocumentBatch]):
    min_words: int = 5
    name: str = "too few words"

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        return batch.filter(pc.fill_null(pc.greater_equal(batch.column("n_words"), self.min_words), False))


source, output = [*sys.argv[1:3], "data", "words"][:2] if len(sys.argv) != 2 else (sys.argv[1], "words")
pipeline = Pipeline("words", stages=[DocumentReader(source), CountWords(), MinWords(5), JsonlWriter(output)])
result = pipeline.execute(memory="512MB")
for book in result.ledger.stages:
    print(f"{book.name}: {book.into.n} in, {book.out.n} out")
print(f"{result.status}: {result.ledger.written.n} documents in {result.output}, peak {result.peak_bytes / 1e6:.0f} MB")
