"""Id files next to a run directory: the documents that a later removal is to remove."""

from __future__ import annotations

import contextlib
import copy
import glob
import os
from collections.abc import Callable
from typing import Any

from tamis import files
from tamis._dataclasses import dataclass
from tamis._lazy import np, pa, pc
from tamis.dedup.nemo_compat.id_generator import of_files
from tamis.dedup.state import RecordedIds
from tamis.engine.schema import Manifest, ResultStatus
from tamis.errors import RunConflict, UsageError
from tamis.pipeline import Pipeline
from tamis.stages.base import ProcessingStage
from tamis.stages.text.io.reader.ids import CURATOR_DEDUP_ID_STR, ids_of
from tamis.stores.urls import is_bucket
from tamis.tasks import DocumentBatch, Task


@dataclass(frozen=True)
class IdFiles:
    """Parquet in `folder` with one `column`: numbers by file and place, or values of `id_field` of the documents.

    `generator`: the file that gets to know which file has which numbers. Not `is_asked`: none is to be written, and
    starting over removes the one of an earlier call. Not `is_required`: documents may have no such field, which is
    not needed to find duplicates; then no table is written, and that is reported.
    """

    folder: str
    id_field: str | None
    column: str
    generator: str | None = None
    is_asked: bool = True
    is_required: bool = True

    def recorded(self) -> RecordedIds:
        """Return what distinguishes these ids from others of the same duplicates."""
        return RecordedIds(self.id_field, self.column)

    def is_whole(self, n_duplicates: int) -> bool:
        """Return True if a call that wrote the ids completed.

        Files in a bucket are assumed to be what was recorded of them.
        """
        if is_bucket(self.folder):
            return True
        from tamis.engine.run.output.directory import RunDir

        if self.generator is not None and not os.path.exists(self.generator):
            return False
        if self._manifest() is None:
            return not n_duplicates and os.path.isdir(self.folder)
        return all(
            os.path.exists(os.path.join(self.folder, file.name)) for file in RunDir(self.folder).files().written()
        )

    def _manifest(self) -> Manifest | None:
        from tamis.engine.run.output.directory import RunDir

        return RunDir(self.folder).read_manifest()

    def tasks(self) -> list[Task[Any]]:
        """Return the written files as tasks, as the run that wrote them returned them."""
        from tamis.engine.ledger import Ledger
        from tamis.engine.run.results import load_results
        from tamis.engine.run.run_result import RunResult

        manifest = self._manifest()
        if manifest is None:
            return []
        ledger = manifest.ledger or Ledger()
        return load_results(RunResult(ResultStatus.ALREADY, "", self.folder, ledger), self._name)

    @property
    def _name(self) -> str:
        return f"ids of duplicates: {os.path.basename(self.folder)}"

    def write(self, duplicates: str, source: Any, paths: list[str], execute: Callable[[Pipeline, str], Any]) -> None:
        """Write the ids from the table of `duplicates`, or from the documents that `source` reads.

        `paths` are the files of `source`; `execute` runs a pass.
        """
        from tamis.stages.text.io.reader import ParquetReader
        from tamis.stages.text.io.writer import ParquetWriter

        if not is_bucket(self.folder):
            os.makedirs(self.folder, exist_ok=True)
        if any(name.endswith(".parquet") for name in os.listdir(duplicates)):
            parts: list[Any] = (
                [ParquetReader(duplicates, fields=["id"]), IdNumbers()]
                if self.id_field is None
                else [
                    self._narrowed(source, paths),
                    OwnIds(duplicates, self.id_field, called="" if self.column == self.id_field else self.column),
                ]
            )
            # Next to files of the user's: what an earlier call wrote is gone. A bucket has only what Tamis wrote.
            mode = "overwrite" if is_bucket(self.folder) else "append"
            self.forget()
            parts.append(ParquetWriter(self.folder, fields=[self.column], mode=mode))
            try:
                execute(Pipeline(self._name, stages=parts), "ids")
            except UsageError:
                self.forget()  # an empty one would say that there are none
                raise
        if self.generator is not None:
            of_files(paths).to_disk(self.generator)

    def _narrowed(self, source: Any, paths: list[str]) -> Any:
        """Return the source without the columns that are not needed, if they are stored apart from the ids."""
        if self.column == self.id_field and source.fields is None and all(p.endswith(".parquet") for p in paths):
            source = copy.copy(source)
            source.fields = [self.id_field]
        return source

    def forget(self) -> None:
        """Remove the files that an earlier call wrote, by its commit log; everything else in the folder stays.

        Raises RunConflict if Parquet files remain (a removal that reads the folder would take their ids, too), or
        anything where no ids are to be written: documents are not written next to files of others.
        """
        from tamis.engine.run.output.directory import RunDir, remove_own_folder

        if not is_bucket(self.folder):
            place = RunDir(self.folder)
            if os.path.isdir(place.path):
                with place.open():
                    place.forget()
                remove_own_folder(place.path)
            foreign = sorted(
                glob.glob("*.parquet" if self.is_asked else "*", root_dir=self.folder, include_hidden=True)
            )
            if foreign:
                why = ", and a removal of duplicates would read it as a list of ids" if self.is_asked else ""
                raise RunConflict(
                    f"{self.folder}/{foreign[0]} was not written by Tamis{why}; move it to another folder, then run "
                    "the same command again"
                )
            with contextlib.suppress(OSError):  # missing, or it holds files of the user's
                os.rmdir(self.folder)
        if self.generator is not None:
            files.remove(self.generator)


@dataclass(repr=False)
class IdNumbers(ProcessingStage[DocumentBatch, DocumentBatch]):
    """`000003_12345` of the table of duplicates -> the whole number that names the same document."""

    name: str = "id_numbers"
    columns_in = ("id",)
    columns_out = (CURATOR_DEDUP_ID_STR,)

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        files, offsets = _places(batch)
        return batch.with_column(CURATOR_DEDUP_ID_STR, pa.array(ids_of(files, offsets)))


@dataclass(repr=False)
class OwnIds(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Select the documents that the table of duplicates lists; their own ids are written.

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
        self._listed = np.sort(np.concatenate([np.empty(0, np.int64), *(ids_of(*_places(b)) for b in batches)]))

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        ids = ids_of(*batch.places())
        positions = np.searchsorted(self._listed, ids)
        batch = batch.filter(np.append(self._listed, -1)[positions] == ids)
        return batch.with_column(self.called, batch.column(self.id_field)) if self.called else batch


def _places(batch: DocumentBatch) -> tuple[Any, Any]:
    parts = pc.list_flatten(pc.split_pattern(batch.texts("id"), "_")).cast(pa.int64()).to_numpy()
    return parts[0::2], parts[1::2]
