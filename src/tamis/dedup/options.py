"""Options that all workflows accept: where documents come from, and in which format they are written."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, cast

from tamis._dataclasses import dataclass
from tamis.errors import UsageError
from tamis.formats.input_files.skipped import checked_paths
from tamis.sizes import parse_size
from tamis.stages.base import ProcessingStage
from tamis.stages.io import Writer
from tamis.stages.text.io.formats import check_file_type
from tamis.stages.text.io.options import read_options
from tamis.stores import urls
from tamis.stores.urls import path_of

if TYPE_CHECKING:
    from tamis.dedup.nemo_compat.id_files import IdFiles
    from tamis.dedup.passes import DedupResult, Passes
    from tamis.formats.input_files.listing import FileList


def absolute(path: str | os.PathLike[str] | Iterable[str], name: str = "path") -> Any:
    """Return a folder, glob or file as an absolute path; several of them as a list.

    `name`: the parameter, for error messages.
    """
    path = checked_paths(path, name)
    if isinstance(path, (str, os.PathLike)):
        return urls.absolute(path_of(os.fspath(path)))
    return [urls.absolute(path_of(os.fspath(p))) for p in path]


@dataclass(frozen=True)
class Input:
    """The input of a workflow as its user gave it.

    `filetype`: one of FILE_TYPES (formats/registry.py), or None for all formats; `more`: other parameters of the
    reader. `owner` begins messages.
    """

    owner: str
    path: Any
    filetype: str | None = None
    blocksize: str | int | None = None
    extensions: Sequence[str] | None = None
    read_kwargs: Mapping[str, Any] | None = None
    more: Mapping[str, Any] = field(default_factory=dict)
    one_per_file: bool = False  # the partitions, where no size is given

    def __post_init__(self) -> None:
        if read_options(self.owner, self.read_kwargs)[1] is not None:
            raise UsageError(
                f"{self.owner}: read_kwargs: columns is refused: all fields of documents that stay are kept"
            )
        check_file_type(self.owner, "input_filetype", self.filetype)
        if self.blocksize is not None:
            parse_size(self.blocksize, f"{self.owner}: input_blocksize")

    def reader(self) -> ProcessingStage[Any, Any]:
        """Return a fresh reader; every pass has its own."""
        from tamis.stages.text.io.formats import reader_of

        if not self.path:
            raise UsageError(f"{self.owner}: input_path must name a folder, a glob or files")
        more = dict(self.more)
        if self.blocksize is not None:
            more["blocksize"] = self.blocksize
        if self.extensions is not None:
            more["file_extensions"] = list(self.extensions)
        stage: Any = reader_of(self.filetype)(self.path, **more)
        stage.one_per_file = self.one_per_file
        return cast("ProcessingStage[Any, Any]", stage)

    def suffixes(self) -> tuple[str, ...]:
        """Return the accepted endings of file names."""
        partitioning: Any = self.reader().decompose()[0]  # type: ignore[attr-defined]
        accepted: tuple[str, ...] = partitioning.suffixes()
        return accepted

    def writer(self, output: str, filetype: str | None, extension: str | None = None, **more: Any) -> WriterFactory:
        """Return the function that makes writers, in the format of the input or the one named.

        Parameters are checked now.
        """
        from tamis.stages.text.io.formats import output_format, writer_of

        check_file_type(self.owner, "output_filetype", filetype)
        kind, usual_extension = output_format(self.path, self.suffixes(), output)
        if filetype is not None and kind is not writer_of(filetype):
            kind, usual_extension = writer_of(filetype), filetype
        kind(output, file_extension=extension or usual_extension, **more)
        return lambda: kind(output, file_extension=extension or usual_extension, **more)

    def files(self) -> FileList:
        from tamis.formats.input_files.listing import list_files

        return list_files(self.path, self.suffixes())


WriterFactory = Callable[[], Writer]


class UserWorkflow(ABC):
    """The input and the `run` of workflows that users call.

    Subclasses are dataclasses with these fields; they define their passes.
    """

    output_path: str
    input_path: Any
    input_filetype: str | None
    input_blocksize: str | int | None
    input_file_extensions: Sequence[str] | None
    read_kwargs: Mapping[str, Any] | None
    perform_removal: bool
    output_filetype: str | None
    cache_path: str | None = None

    @property
    def owner(self) -> str:
        """Begins messages."""
        return type(self).__name__

    @abstractmethod
    def passes(self) -> Passes:
        """Return the passes, and what is decided between them (passes.py)."""

    def run(self, executor: Any = None, *, progress: Any = True, **settings: Any) -> DedupResult:
        """Run all passes; the same call again resumes where it was stopped."""
        return self.find(executor, progress, settings)

    def find(self, executor: Any, progress: Any, settings: dict[str, Any]) -> DedupResult:
        """Run all passes.

        `settings` are those of a run: memory="1GB", workers, scratch, timeout, fresh. `executor` runs the passes over
        documents.
        """
        from tamis.backends.slurm_array import array_shard
        from tamis.dedup.workflow import Workflow

        if self.cache_path is not None and not self.is_cache_in_output:
            settings.setdefault("scratch", self.cache_path)
        passes = self.passes()
        passes.ids = self.ids()
        with array_shard(settings) as shard:
            if shard is not None:
                settings["shard"] = shard
            return Workflow(passes, settings, progress, executor).run()

    @property
    def is_cache_in_output(self) -> bool:
        """True if `cache_path` is the output or a folder of it.

        Scratch is then where it is by default, in the run directory of the output.
        """
        if self.cache_path is None or urls.is_remote(str(self.output_path)) or urls.is_remote(self.cache_path):
            return False
        cache, output = (os.path.realpath(str(path)) for path in (self.cache_path, self.output_path))
        return os.path.commonpath([cache, output]) == output

    def ids(self) -> IdFiles | None:
        """Return where the ids of removed documents are written for a separate removal; None if they are not."""
        return None

    def _input(self) -> Input:
        return Input(
            self.owner,
            self.input_path,
            self.input_filetype,
            self.input_blocksize,
            self.input_file_extensions,
            self.read_kwargs,
        )

    def _writer(self) -> WriterFactory | None:
        """Return the function that makes writers of the documents to keep; None where duplicates are only found."""
        return self._input().writer(self.output_path, self.output_filetype) if self.perform_removal else None
