"""Debugging: everything in this process, so that breakpoints and print work. No memory cap here."""

from tamis import InProcessExecutor, Pipeline, processing_stage
from tamis.stages.text.io.reader import JsonlReader
from tamis.stages.text.io.writer import JsonlWriter


@processing_stage(name="look")
def look(batch):
    print(batch)  # or: breakpoint()
    return batch


pipeline = Pipeline("look", stages=[JsonlReader("data/"), look, JsonlWriter("looked-at/")])
print(pipeline.describe())
pipeline.run(InProcessExecutor(), fresh=True)
