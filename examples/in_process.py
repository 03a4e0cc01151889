"""Debug a pipeline: run all of it in this process, so that breakpoints and print work. There is no memory cap.

Usage: python in_process.py [INPUT [OUTPUT]]. INPUT defaults to a few documents in a temporary folder, OUTPUT to that
folder, which is removed at the end.
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
    sample = Path(folder, "sample.jsonl")
    sample.write_text("".join(f'{{"id": {i}, "text": "{"word " * i}"}}\n' for i in range(12)))
    main(*[*sys.argv[1:], *[str(sample), f"{folder}/output"][len(sys.argv) - 1 :]])
