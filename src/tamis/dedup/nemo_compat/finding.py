"""The base of workflows that users of NeMo Curator know: parameters about GPUs, id files, and results."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import os
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from tamis.dedup import planning
from tamis.dedup.exact.gpu_hash import BACKENDS
from tamis.dedup.kinds import DedupKind
from tamis.dedup.nemo_compat.id_files import IdFiles
from tamis.dedup.options import UserWorkflow, absolute
from tamis.errors import UsageError
from tamis.memory.budget import find_budget
from tamis.pipeline import WorkflowBase, WorkflowRunResult
from tamis.sizes import parse_fraction
from tamis.stages.text.io.reader.ids import CURATOR_DEDUP_ID_STR
from tamis.stores.urls import is_bucket, is_remote
from tamis.tasks import FileGroupTask, Task

if TYPE_CHECKING:
    from tamis.dedup.passes import DedupResult
    from tamis.dedup.planning import DedupPlan
    from tamis.formats.input_files.listing import FileList

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


class FindingWorkflow(UserWorkflow, WorkflowBase):
    """The base of workflows that find duplicates.

    Subclasses are dataclasses with these fields, and say their passes.
    """

    kind: ClassVar[DedupKind]
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
        """Validate and normalize the options that all workflows share.

        Warns once for each parameter given that is handled in another way here; file options that cannot have a
        meaning are rejected.
        """
        usual = {f.name: f.default for f in dataclasses.fields(self)}  # type: ignore[arg-type]
        for name, why in DONE_OTHERWISE.items():
            if name in usual and getattr(self, name) not in (usual[name], None):
                warnings.warn(f"{self.owner}: {name} {why}", stacklevel=5)
        self._refuse_write_options()
        for name, bound in self.as_the_budget_allows.items():
            if getattr(self, name) == bound:
                setattr(self, name, None)
        self.output_path = absolute(self.output_path, "output_path")
        self.input_path = None if self.input_path is None else absolute(self.input_path, "input_path") or None
        if self.ids_folder and not self.perform_removal and is_bucket(self.output_path):
            raise UsageError(
                f"{self.owner}: ids of duplicates are written to a folder of this machine, got {self.output_path}; "
                "give a local output_path, or perform_removal=True, which writes the documents that stay"
            )
        self.max_source_loss = parse_fraction(self.max_source_loss, "max_source_loss")
        if self.backend not in BACKENDS:
            raise UsageError(f"backend: expected one of {', '.join(BACKENDS)}, got {self.backend!r}")
        self.index_options()
        self._input()

    def _refuse_write_options(self) -> None:
        """Raise UsageError for `write_kwargs`: only empty storage options are accepted."""
        unknown = sorted(k for k, v in (self.write_kwargs or {}).items() if not (k == "storage_options" and not v))
        if unknown:
            raise UsageError(
                f"{self.owner}: write_kwargs has {unknown}: ids are written to a local folder, as Parquet; leave it out"
            )

    def index_options(self) -> dict[str, Any]:
        """Return `against`, the index to compare with, and `index`, the one that gets the documents that stay."""
        if not self.kind.has_index and (self.index_path is not None or self.against is not None):
            raise UsageError(
                f"{self.owner}: there are no indexes for {self.kind.title}; leave index_path and against out"
            )
        return index_options(self.owner, self.index_path, self.against, self.append)

    def bands(self) -> tuple[int, int, int | None]:
        """Return the number of bands, the values per band and the bands per pass; 0 where there are none."""
        return 0, 0, None

    def profile_parameters(self) -> dict[str, Any]:
        """Return the parameters of a run, as far as the machine profile distinguishes runs by them (expected.py)."""
        return {"perform_removal": self.perform_removal}

    def ids(self) -> IdFiles | None:
        if not self.ids_folder:
            return None
        generator = os.path.join(self.output_path, f"{self.kind.name}_id_generator.json") if self.assign_id else None
        column, folder = self.id_field or CURATOR_DEDUP_ID_STR, os.path.join(self.output_path, self.ids_folder)
        return IdFiles(folder, self.id_field, column, generator, is_asked=not self.perform_removal)

    def plan(self, memory: str | int | None = None, work: str | None = None) -> DedupPlan:
        """Estimate from a small sample what a run would take, without writing anything.

        `work`: its scratch folder.
        """
        budget_bytes = find_budget(memory, os.environ).bytes
        return self.plan_of(self._input().files(), budget_bytes, work or self.cache_path or self.output_path)

    def plan_of(self, files: FileList, budget_bytes: int, work: str, with_all_bands: bool = False) -> DedupPlan:
        """Estimate what a run over these files would take. `with_all_bands`: in one pass, whatever disk is free."""
        bands, rows, per_pass = self.bands()
        if with_all_bands:
            per_pass = per_pass or bands
        return planning.make_plan(files, bands, rows, per_pass, budget_bytes, work)

    def run(  # type: ignore[override]  # as users of the original call it, in either order
        self, initial_tasks: Any = None, executor: Any = None, *, progress: Any = True, **settings: Any
    ) -> DocumentedResult:
        """Run the workflow. `initial_tasks`: groups of files instead of input_path.

        `settings` are those of a run: memory="1GB", workers, scratch, fresh.
        """
        started_s = time.monotonic()
        tasks, executor = tasks_and_executor(self.owner, initial_tasks, executor)
        workflow = copy.copy(self)
        if tasks:
            workflow.input_path = absolute(files_of(tasks))
        if self.cache_path is not None and not self.is_cache_in_output:
            os.makedirs(self.cache_path, exist_ok=True)
        with environment(self.env_vars):
            result = workflow.find(executor, progress, dict(settings))
        identified_s = time.monotonic() - started_s
        metadata: dict[str, Any] = {"num_duplicates": result.n_duplicates, "identification_time": identified_s}
        written, ids = {}, self.ids()
        if ids is not None and ids.is_asked and result.status != "shard":
            written["identification"] = ids.tasks()
            if ids.generator is not None:
                metadata["id_generator_path"] = ids.generator
        metadata["total_time"] = time.monotonic() - started_s
        return DocumentedResult(f"{self.kind.name}_deduplication", result, written, metadata)


def index_options(where: str, index_path: str | None, against: str | None, append: bool) -> dict[str, Any]:
    """Check the options of an index and return them as the passes expect them. `where` begins messages."""
    for name, path in (("index_path", index_path), ("against", against)):
        if path is not None and is_remote(path):
            raise UsageError(f"{where}: {name}: an index is a folder of this machine, got {path}")
    if append and against is None:
        raise UsageError(
            f"{where}: append adds to the index that `against` names; give it, or index_path for a new index"
        )
    if append and index_path is not None:
        raise UsageError(
            f"{where}: give append=True to add to the index `against`, or index_path for a new one, not both"
        )
    if index_path is not None and against is not None and os.path.abspath(index_path) == os.path.abspath(against):
        raise UsageError(f"{where}: index_path and against are the same folder; to add to that index give append=True")
    compared = absolute(against, "against") if against is not None else None
    return {
        "against": compared,
        "index": compared if append else absolute(index_path, "index_path") if index_path is not None else None,
    }


def tasks_and_executor(owner: str, first: Any, second: Any) -> tuple[list[FileGroupTask], Any]:
    """Accept `run(initial_tasks, executor)` in either order; tasks must be groups of files."""
    tasks, executor = (second, first) if hasattr(first, "make_workers") else (first, second)
    for task in tasks or ():
        if not isinstance(task, FileGroupTask):
            raise UsageError(f"{owner}: initial_tasks must be FileGroupTask, got {type(task).__name__}")
    return list(tasks or ()), executor


@contextlib.contextmanager
def environment(variables: Mapping[str, Any] | None) -> Iterator[None]:
    """Set environment variables that worker processes inherit."""
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
    """A WorkflowRunResult, as code for NeMo Curator expects it, with everything of a DedupResult (`summary`, ...)."""

    def __init__(
        self, name: str, inner: DedupResult, tasks: dict[str, list[Task[Any]]], metadata: dict[str, Any]
    ) -> None:
        super().__init__(name, tasks, metadata)
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)
