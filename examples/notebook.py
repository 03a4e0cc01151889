"""Use Tamis in a notebook: no main guard, results in memory, a cell that runs again repeats no work.

Usage: python notebook.py [INPUT]. INPUT defaults to a few documents. All output is in a temporary folder, which is
removed at the end.
"""

# %% Create some documents.
import sys
import tempfile
from pathlib import Path

from tamis import Pipeline, processing_stage
from tamis.stages.text.io.reader import JsonlReader

folder = tempfile.TemporaryDirectory()
source = Path(folder.name, "sample.jsonl")
source.write_text("".join(f'{{"id": {i}, "text": "{"word " * i}"}}\n' for i in range(12)))


# %% Turn a function into a stage.
@processing_stage(name="shout")
def shout(batch):
    return batch.with_column(
        "text", [None if text is None else text.upper() for text in batch.column("text").to_pylist()]
    )


# %% Without a writer, run() returns the documents, which are loaded on access. run_dir stores the run so that it can
# resume.
pipeline = Pipeline("notebook", stages=[JsonlReader(sys.argv[1] if len(sys.argv) > 1 else str(source)), shout])
batches = pipeline.run(memory="512MB", run_dir=f"{folder.name}/run")
print(batches[0].to_pyarrow().select(["text"]).slice(0, 3).to_pylist())

# %% Run the same cell again: it repeats no work.
again = pipeline.run(memory="512MB", run_dir=f"{folder.name}/run")
print(sum(batch.num_items for batch in again), "documents,", pipeline.last_result.status)

# %% Clean up.
folder.cleanup()
