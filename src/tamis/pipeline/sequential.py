"""Sequential: a pipeline from a list, which can be called on documents: what it is given becomes its input, and what
comes out is what was given.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tamis.errors import UsageError
from tamis.pipeline.pipeline import Pipeline
from tamis.stages.base import ProcessingStage
from tamis.stages.io import Reader
from tamis.tasks import ROW_ID, DocumentBatch

if TYPE_CHECKING:
    from tamis.backends.base import BaseExecutor


class Sequential(Pipeline):
    """A pipeline from a list of stages, which can be called on documents: `Sequential([...])(dataset)`."""

    def __init__(self, stages: Sequence[ProcessingStage[Any, Any]], name: str = "sequential") -> None:
        super().__init__(name, stages=stages)

    def __call__(self, dataset: Any, executor: BaseExecutor | None = None, **settings: Any) -> Any:
        """Run the stages on a dataset and return the documents that come out.

        `dataset`: a DocumentBatch, a list of them, a pandas DataFrame, an Arrow table (each is returned as the same
        type), or the path(s) of JSONL, Parquet or Arrow files: for these, batches are returned, or files if the last
        stage is a writer. `settings` are those of a run, as in `run`.
        """
        if any(isinstance(stage, Reader) for stage in self.build()):
            raise UsageError(
                f"{self.name}: it has a reader of its own; call run(), or leave the reader out to call it on documents"
            )
        settings.setdefault("progress", False)
        if isinstance(dataset, str) or (
            isinstance(dataset, list) and dataset and all(isinstance(p, str) for p in dataset)
        ):
            return _over_files(self, dataset, executor, settings)
        one = not isinstance(dataset, list)
        kind = type(dataset).__module__.partition(".")[0]
        batches = [
            d if isinstance(d, DocumentBatch) else DocumentBatch(self.name, d) for d in ([dataset] if one else dataset)
        ]
        made = self.run(executor, initial_tasks=batches, **settings)
        if not one or not all(isinstance(task, DocumentBatch) for task in made):
            return made
        table = _joined([task for task in made if isinstance(task, DocumentBatch)])
        if isinstance(dataset, DocumentBatch):
            return DocumentBatch(dataset.dataset_name, table)
        if kind == "pyarrow":
            return table
        from tamis.tasks.frames import convert_frame

        return convert_frame(table, "cudf" if kind == "cudf" else "pandas")


def _over_files(
    pipeline: Pipeline, paths: str | list[str], executor: BaseExecutor | None, settings: dict[str, Any]
) -> Any:
    from tamis.stages.text.io.reader import DocumentReader

    whole = Pipeline(pipeline.name, stages=[DocumentReader(paths), *pipeline.stages])
    made = whole.run(executor, **settings)
    pipeline.last_result = whole.last_result
    return made


def _joined(batches: list[DocumentBatch]) -> Any:
    import pyarrow as pa

    tables = [b.to_pyarrow() for b in batches if b.num_items]
    tables = [t.drop_columns([ROW_ID]) if ROW_ID in t.column_names else t for t in tables]
    return pa.concat_tables(tables, promote_options="permissive") if tables else pa.table({})
