"""Like cells of a notebook: no main guard, results in memory, the same cell again does nothing new."""

# %% a function as a stage
from tamis import Pipeline, processing_stage
from tamis.stages.text.io.reader import JsonlReader


@processing_stage(name="shout")
def shout(batch):
    return batch.with_column(
        "text", [None if text is None else text.upper() for text in batch.column("text").to_pylist()]
    )


# %% without a writer the documents come back, loaded when they are looked at
pipeline = Pipeline("notebook", stages=[JsonlReader("data/"), shout])
batches = pipeline.run(memory="512MB", run_dir="notebook-run")
print(batches[0].to_pyarrow().select(["text"]).slice(0, 3).to_pylist())

# %% the same cell again: nothing is done twice
again = pipeline.run(memory="512MB", run_dir="notebook-run")
print(sum(batch.num_items for batch in again), "documents,", pipeline.last_result.status)
