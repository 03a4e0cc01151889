"""Debugging: everything in this process, so that breakpoints and print work. No memory cap here.

Run it: python in_process.py [INPUT [OUTPUT]]. Without INPUT it makes some documents in a temporary folder; without OUTPUT the
result goes there, too. The folder is removed at the end.
"""

import sys
import tempfile
from pathlib import Path

from tamis import InProcessExecutor, Pipeline, processing_stage
from tamis.stages.text.io.reader import JsonlReader
from tamis.stages.text.io.writer import JsonlWriter


@processing_stage(name="look")
def look(batch):
    print(batch)  # or: breakpoint()
    return batch


def main(source: str, output: str) -> None:
    pipeline = Pipeline("look", stages=[JsonlReader(source), look, JsonlWriter(output)])
    print(pipeline.describe())
    pipeline.run(InProcessExecutor(), fresh=True)
    print(sum(len(path.read_text().splitlines()) for path in Path(output).glob("part-*")), "documents written")


with tempfile.TemporaryDirectory() as folder:
    made = Path(folder, "made.jsonl")
    made.write_text("".join(f'{{"id": {i}, "text": "{"word " * i}"}}\n' for i in range(12)))
    main(*[*sys.argv[1:], *[str(made), f"{folder}/looked-at"][len(sys.argv) - 1 :]])
