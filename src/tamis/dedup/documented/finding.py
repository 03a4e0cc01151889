"""What workflows that find duplicates share with the original: parameters about GPUs, ids on disk, and the result as users know it."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import os
import shutil
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from tamis.dedup.documented.id_generator import of_files
from tamis.dedup.exact.gpu_hash import BACKENDS
from tamis.dedup.index.options import index_options
from tamis.dedup.options import InOneCall, absolute
from tamis.errors import UsageError
from tamis.later import np, pa
from tamis.pipeline import Pipeline, WorkflowBase, WorkflowRunResult
from tamis.sizes import parse_fraction
from tamis.stages.base import ProcessingStage
from tamis.stages.text.io.reader.ids import CURATOR_DEDUP_ID_STR, numbers_of
from tamis.stores.urls import is_bucket
from tamis.tasks import DocumentBatch, FileGroupTask, Task

if TYPE_CHECKING:
    from tamis.dedup.kinds import DedupResult
    from tamis.dedup.planning import DedupPlan

_GPU = "is about the memory of a GPU; memory=... bounds this run, whatever it runs on"
_PARTS = "is about the parts of a shuffle; here parts are as large as the memory budget allows"
DONE_OTHERWISE = {
    "rmm_pool_size": _GPU,
    "spill_memory_limit": _GPU,
    "use_async_memory": _GPU,
    "lsh_rmm_pool_size": _GPU,
    "lsh_spill_memory_limit": _GPU,
    "total_nparts": _PARTS,
    "lsh_num_output_partitions": _PARTS,
    "identification_batchsize": "groups of files are made by their bytes (input_blocksize), not by their number",
    "cache_kwargs": "what lies between the passes has a form of its own",
}


class FindingWorkflow(InOneCall, WorkflowBase):
    """What the workflows that find duplicates share. Subclasses are dataclasses with these fields, and say their passes."""

    kind: ClassVar[str]  # begins the names of what is written
    ids_folder: ClassVar[str]  # for the ids of duplicates; "" where none are written
    # What users know as an upper bound, by parameter: smaller ones follow from the budget.
    as_the_budget_allows: ClassVar[Mapping[str, Any]]
    write_kwargs: Mapping[str, Any] | None
    env_vars: Mapping[str, Any] | None
    max_source_loss: float | str
    index_path: str | None
    against: str | None
    append: bool
    backend: str
    assign_id: bool = True
    id_field: str | None = None

    def _check(self) -> None:
        """What all have in common, checked and as it is meant. One line for each parameter that was given and has another means here; options of
        files that nobody can mean are refused."""
        usual = {f.name: f.default for f in dataclasses.fields(self)}  # type: ignore[arg-type]
        for name, why in DONE_OTHERWISE.items():
            if name in usual and getattr(self, name) not in (usual[name], None):
                warnings.warn(f"{self.who}: {name} {why}", stacklevel=5)
        unknown = sorted(k for k, v in (self.write_kwargs or {}).items() if not (k == "storage_options" and not v))
        if unknown:
            raise UsageError(
                f"{self.who}: write_kwargs has {unknown}: ids are written to a local folder, as Parquet; leave it out"
            )
        for name, bound in self.as_the_budget_allows.items():
            if getattr(self, name) == bound:
                setattr(self, name, None)
        self.output_path, self.input_path = absolute(self.output_path), absolute(self.input_path or "") or None
        if self.ids_folder and not self.perform_removal and is_bucket(self.output_path):
            raise UsageError(
                f"{self.who}: ids of duplicates are written to a folder of this machine, got {self.output_path}; give a local output_path, or "
                "perform_removal=True, which writes the documents that stay"
            )
        self.max_source_loss = parse_fraction(self.max_source_loss, "max_source_loss")
        if self.backend not in BACKENDS:
            raise UsageError(f"backend: expected one of {', '.join(BACKENDS)}, got {self.backend!r}")
        self.index_options()
        self._input()

    def index_options(self) -> dict[str, Any]:
        return index_options(self.who, self.index_path, self.against, self.append)

    def bands(self) -> tuple[int, int, int | None]:
        """How many, of how many values, and how many in one pass: 0 where there are none."""
        return 0, 0, None

    def plan(self, memory: str | int | None = None, work: str | None = None) -> DedupPlan:
        """What a run would take, from a small sample; `work`: its scratch folder. Nothing is written."""
        return self._input().plan(*self.bands(), memory, work or self.cache_path or self.output_path)

    def run(  # type: ignore[override]  # as users of the original call it, in either order
        self, initial_tasks: Any = None, executor: Any = None, *, progress: Any = True, **settings: Any
    ) -> DocumentedResult:
        """`initial_tasks`: groups of files instead of input_path. `settings` are those of a run: memory="1GB", workers, scratch, fresh."""
        began_s = time.monotonic()
        tasks, executor = tasks_and_executor(self.who, initial_tasks, executor)
        made, generator = copy.copy(self), f"{self.kind}_id_generator.json"
        if tasks:
            made.input_path = absolute(files_of(tasks))
        if self.cache_path is not None:
            os.makedirs(self.cache_path, exist_ok=True)
        if settings.get("fresh") and self.ids_folder:
            forget_ids(self.output_path, self.ids_folder, generator)
        with environment(self.env_vars):
            found = made.find(executor, progress, dict(settings))
        identified_s = time.monotonic() - began_s
        metadata: dict[str, Any] = {"num_duplicates": found.n_duplicates, "identification_time": identified_s}
        written = {}
        if self.ids_folder and not self.perform_removal:
            folder, source = os.path.join(found.output, self.ids_folder), made._input()
            shared = {k: v for k, v in settings.items() if k not in ("fresh", "watch")}
            written["identification"] = write_ids(folder, found.duplicates, source, self.id_field, shared, executor)
            if self.assign_id:
                path = os.path.join(found.output, generator)
                of_files([os.fsdecode(p) for p in source.files().paths]).to_disk(path)
                metadata["id_generator_path"] = path
        metadata["total_time"] = time.monotonic() - began_s
        return DocumentedResult(f"{self.kind}_deduplication", found, written, metadata)


def tasks_and_executor(who: str, first: Any, second: Any) -> tuple[list[FileGroupTask], Any]:
    """`run(initial_tasks, executor)` in either order. Tasks must be groups of files."""
    tasks, executor = (second, first) if hasattr(first, "make_workers") else (first, second)
    for task in tasks or ():
        if not isinstance(task, FileGroupTask):
            raise UsageError(f"{who}: initial_tasks must be FileGroupTask, got {type(task).__name__}")
    return list(tasks or ()), executor


@contextlib.contextmanager
def environment(variables: Mapping[str, Any] | None) -> Iterator[None]:
    """Variables that worker processes inherit."""
    before = {name: os.environ.get(name) for name in variables or {}}
    os.environ.update({name: str(value) for name, value in (variables or {}).items()})
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def files_of(tasks: Sequence[FileGroupTask]) -> list[str]:
    return list(dict.fromkeys(path for task in tasks for path in task.data))


class DocumentedResult(WorkflowRunResult):
    """A WorkflowRunResult that also has everything a DedupResult tells (`summary`, `n_duplicates`, `peak_bytes`, ...)."""

    def __init__(
        self, name: str, inner: DedupResult, tasks: dict[str, list[Task[Any]]], metadata: dict[str, Any]
    ) -> None:
        super().__init__(name, tasks, metadata)
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)


# -- ids of duplicates, as files -------------------------------------------------------------------------------------------
@dataclass(repr=False)
class IdNumbers(ProcessingStage[DocumentBatch, DocumentBatch]):
    """`000003_12345` of the table of duplicates -> the whole number that names the same document."""

    name: str = "id_numbers"
    columns_in = ("id",)
    columns_out = (CURATOR_DEDUP_ID_STR,)

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        files, offsets = _places(batch)
        return batch.with_column(CURATOR_DEDUP_ID_STR, pa.array(numbers_of(files, offsets)))


@dataclass(repr=False)
class OwnIds(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Of all documents those that the table of duplicates lists; what is written of them is their own id.

    A worker holds 16 bytes for each duplicate. `called`: the column that they are written to, if it has another name.
    """

    duplicates: str
    id_field: str
    name: str = "own_ids"
    called: str = ""
    columns_in = ("id_field",)

    def setup(self, worker_metadata: Any = None) -> None:
        from tamis.formats.whole_file import read_whole_file

        names = sorted(n for n in os.listdir(self.duplicates) if n.endswith(".parquet"))
        batches = [read_whole_file(os.path.join(self.duplicates, n)).select(["id"]) for n in names]
        self._listed = np.sort(np.concatenate([np.empty(0, np.int64), *(numbers_of(*_places(b)) for b in batches)]))

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        batch = batch.filter(np.isin(numbers_of(*batch.places()), self._listed))
        return batch.with_column(self.called, batch.column(self.id_field)) if self.called else batch


def _places(batch: DocumentBatch) -> tuple[Any, Any]:
    parts = [text.split("_") for text in batch.texts("id").to_pylist()]
    return np.array([int(a) for a, _ in parts], np.int64), np.array([int(b) for _, b in parts], np.int64)


def forget_ids(output: str, folder: str, generator: str | None = None) -> None:
    """Starting over: what an earlier call wrote beside its run directory goes; anything else stays, and is refused later."""
    if not os.path.isdir(os.path.join(output, "_tamis")):
        return
    ids = os.path.join(output, folder)
    if os.path.isdir(os.path.join(ids, "_tamis")) or (os.path.isdir(ids) and not os.listdir(ids)):
        shutil.rmtree(ids)
    if generator is not None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(output, generator))


def write_ids(
    folder: str, duplicates: str, source: Any, id_field: str | None, settings: Mapping[str, Any], executor: Any, called: str | None = None,
) -> list[Task[Any]]:  # fmt: skip
    """The ids of the documents to remove, as Parquet in `folder`: numbers by file and place, or values of `id_field` of the
    documents of the input `source`. `called`: the column, if it is to have another name."""
    from tamis.stages.text.io.reader import ParquetReader
    from tamis.stages.text.io.writer import ParquetWriter

    if not is_bucket(folder):
        os.makedirs(folder, exist_ok=True)
    if not any(name.endswith(".parquet") for name in os.listdir(duplicates)):
        return []  # there are none
    column = called or id_field or CURATOR_DEDUP_ID_STR
    stages: list[Any] = (
        [ParquetReader(duplicates, fields=["id"]), IdNumbers()]
        if id_field is None
        else [source.reader(), OwnIds(duplicates, id_field, called="" if column == id_field else column)]
    )
    stages.append(ParquetWriter(folder, fields=[column], mode="overwrite"))
    return Pipeline(f"ids of duplicates: {os.path.basename(folder)}", stages=stages).run(
        executor, progress=False, **settings
    )
