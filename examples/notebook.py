"""Like cells of a notebook: no main guard, results in memory, the same cell again does nothing new.

Run it: python notebook.py [INPUT]. Without INPUT it makes some documents. All it writes is in a temporary folder, removed at the end.
"""

# %% some documents to play with
import sys
import tempfile
from pathlib import Path

from tamis import Pipeline, processing_stage
from tamis.stages.text.io.reader import JsonlReader

folder = tempfile.TemporaryDirectory()
source = Path(folder.name, "made.jsonl")
source.write_text("".join(f'{{"id": {i}, "text": "{"word " * i}"}}\n' for i in range(12)))


# %% a function as a stage


@processing_stage(name="shout")
def shout(batch):
    return batch.with_column(
        "text", [None if text is None else text.upper() for text in batch.column("text").to_pylist()]
    )


# %% without a writer the documents come back, loaded when they are looked at; run_dir keeps the run for the next time
pipeline = Pipeline("notebook", stages=[JsonlReader(sys.argv[1] if len(sys.argv) > 1 else str(source)), shout])
batches = pipeline.run(memory="512MB", run_dir=f"{folder.name}/run")
print(batches[0].to_pyarrow().select(["text"]).slice(0, 3).to_pylist())

# %% the same cell again: nothing is done twice
again = pipeline.run(memory="512MB", run_dir=f"{folder.name}/run")
print(sum(batch.num_items for batch in again), "documents,", pipeline.last_result.status)

# %% the end
folder.cleanup()
