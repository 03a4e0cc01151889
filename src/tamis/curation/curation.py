"""Curation: steps in order, from an input to an output. Covers what it is; runner.py is how it is run."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from tamis.curation.downloads import take_downloads
from tamis.curation.facts import facts_of
from tamis.curation.mixing import Source, SourceMix, is_plain, sources_of
from tamis.curation.planner import CurationPlan, make_plan
from tamis.curation.result import CurationResult, CurationSizes
from tamis.curation.steps import Buckets, CorpusStep, KeepTop, LeftOut, Mix, Step
from tamis.curation.writing import make_writing
from tamis.dedup.options import Input, absolute
from tamis.errors import PipelineError, UsageError
from tamis.formats.input_files.skipped import ends_in
from tamis.formats.registry import record_name
from tamis.pipeline import Pipeline
from tamis.stages.base import CompositeStage, ProcessingStage
from tamis.stages.file_partitioning import JSONL_SUFFIXES, FilePartitioningStage
from tamis.stages.io import Writer
from tamis.stages.text.io.reader import DocumentReader
from tamis.stages.text.io.writer import ArrowWriter
from tamis.stages.text.tokens.options import TokenOptions
from tamis.stages.text.tokens.stages import IDENTITY, IDS, CountTokens, TokenFileWriter, Tokenize
from tamis.stages.text.tokens.tokenizer import tokenizer_path

if TYPE_CHECKING:
    from tamis.formats.input_files.listing import FileList

_WHO = "Curation"


class Curation:
    """Filters, rule sets, modifiers and other stages, and deduplications, in order.

    Deduplications are separate steps: ExactDuplicates, FuzzyDuplicates, DuplicateLines, RepeatedPassages,
    Decontaminate. `input_path`: a folder, a glob, a file or several, or what is downloaded first, a stage or
    {"wikipedia": {...}} (`arxiv`, `common_crawl`) with its parameters; or the first step is a reader. `output_path`: a
    folder, written in the format of the input or in `file_type` ("jsonl", "jsonl.zst", "parquet", "arrow", ...); or the
    last step is a writer. `shard_size`: files of about this size before compression. `split`:
    "train=99.9,validation=0.1", by the hash of each text. `shuffle`: a seed. `card`: a README.md that describes the
    data. `sources`: instead of `input_path`, several inputs with a weight, max_documents or upsample each; `wikipedia`
    and the like in place of their `path`, or `download`: a stage. `tokens`:
    token ids instead of documents (`TokenOptions`). `partition_by`: fields whose values name folders. `left_out`: steps
    of the recipe that cannot run here; they belong to the identity of the run, and summary, report and card name them.
    `run()` runs all passes, and resumes where it was stopped.
    """

    def __init__(
        self,
        steps: Sequence[Step],
        input_path: str | Sequence[str] | Mapping[str, Any] | ProcessingStage[Any, Any] | None = None,
        output_path: str | None = None,
        name: str = "curation",
        file_type: str | None = None,
        shard_size: str | int | None = None,
        split: str | Mapping[str, float] | None = None,
        shuffle: int | bool | None = None,
        card: bool = True,
        sources: Sequence[Source | Mapping[str, Any]] | None = None,
        left_out: Sequence[LeftOut] = (),
        tokens: TokenOptions | Mapping[str, Any] | None = None,
        partition_by: str | Sequence[str] | None = None,
    ) -> None:
        self.name, self.left_out = name, tuple(left_out)
        self.writing = make_writing(file_type, shard_size, split, shuffle, card, tokens, partition_by)
        remaining = list(steps)
        input_path, sources, self.downloads = take_downloads(input_path, sources)
        self.sources = [] if sources is None else sources_of(sources)
        if self.sources:
            if input_path is not None:
                raise UsageError(f"{_WHO}: give input_path or sources, not both")
            input_path = [s.path for s in self.sources]
        self._reader = self._take_reader(remaining, input_path)
        if isinstance(self._reader, DocumentReader):  # a step like any other: what it makes is kept for later passes
            self._reader, extraction = self._reader.taking_extraction()
            if not any(type(step) is type(stage) for step in remaining for stage in extraction):
                remaining = [*extraction, *remaining]
        self._writer = self._take_writer(remaining, output_path)
        self.output_path: str = self._writer.path
        self.steps: list[Step] = []
        for step in remaining:
            self.steps += self._flat(step)
        if self.writing.tokens is not None:
            self.steps.append(self._tokenizing(self.writing.tokens))
        self.steps = _counting_tokens(self.steps)
        names = [s.name for s in self.steps if isinstance(s, CorpusStep)]
        if len(set(names)) < len(names):
            raise UsageError(f"{_WHO}: two deduplications are called {max(names, key=names.count)!r}; give each a name")
        self._check()

    # -- parts --------------------------------------------------------------------------------------------------------
    def _take_reader(self, steps: list[Step], input_path: Any) -> ProcessingStage[Any, Any]:
        first = steps[0] if steps else None
        flat = first.decompose() if isinstance(first, CompositeStage) else [first]
        is_reader = bool(flat) and isinstance(flat[0], FilePartitioningStage)
        if is_reader == (input_path is not None):
            got = "both" if is_reader else "neither"
            raise UsageError(f"{_WHO}: give input_path, or a reader as the first step; got {got}")
        if is_reader:
            assert isinstance(first, ProcessingStage)
            if not isinstance(first, CompositeStage):
                raise UsageError(f"{_WHO}: the first step lists files; give a reader (DocumentReader) instead")
            return steps.pop(0)  # type: ignore[return-value]
        return Input(_WHO, absolute(input_path, "input_path")).reader()

    def _take_writer(self, steps: list[Step], output_path: str | None) -> Writer:
        last = steps[-1] if steps else None
        if isinstance(last, Writer) == (output_path is not None):
            got = "both" if output_path is not None else "neither"
            raise UsageError(f"{_WHO}: give output_path, or a writer as the last step; got {got}")
        if isinstance(last, Writer):
            writing = self.writing
            if writing.is_packed or writing.file_type is not None or writing.tokens is not None or writing.partition_by:
                raise UsageError(
                    f"{_WHO}: file_type, shard_size, split, shuffle, tokens and partition_by go with output_path; the "
                    "last step is a writer already"
                )
            if last.mode not in ("ignore", "error"):
                raise UsageError(
                    f"{_WHO}: the writer's mode must be 'ignore', got {last.mode!r}; start over with fresh"
                )
            steps.pop()
            return last
        self._partitioning().reach()
        if self.writing.tokens is not None:
            return TokenFileWriter(str(absolute(str(output_path))), self.writing.tokens.format)
        file_type = self.writing.file_type or ("jsonl" if self.downloads else None)
        writer = _writer_for(self.file_list_paths(), self._suffixes(), str(absolute(str(output_path))), file_type)
        writer.partition_by = self.writing.partition_by or None
        return writer

    def _tokenizing(self, tokens: TokenOptions) -> Tokenize:
        tokenizer_path(tokens.tokenizer)  # so that a wrong one is reported before the first pass
        stage = Tokenize(tokens.tokenizer, self.text_field, tokens.end_token, tokens.format)
        return stage.with_identity() if self.writing.is_packed else stage

    def _flat(self, step: Step) -> list[Step]:
        if isinstance(step, CorpusStep):
            return [step]
        if not isinstance(step, ProcessingStage):
            raise TypeError(f"{_WHO}: a step is a stage or a deduplication, got {type(step).__name__} ({step!r})")
        if step.is_source_stage or isinstance(step, Writer):
            raise PipelineError(f"{_WHO}: {step.name!r} can only be the first or the last step")
        return list(step.decompose_and_apply_with()) if isinstance(step, CompositeStage) else [step]

    def _check(self) -> None:
        """Check the order, columns and needs of the steps as a pipeline is checked.

        Deduplications request the columns they need.
        """
        plain = [s for s in self.steps if isinstance(s, ProcessingStage)]
        Pipeline(self.name, stages=[self.source(), *plain, self.writer()]).build()
        facts_of(self.steps)

    def source(self) -> ProcessingStage[Any, Any]:
        """Return a fresh reader; every pass has its own.

        The output is never part of the input.
        """
        reader: Any = copy.deepcopy(self._reader)
        reader.leave_out = (self.output_path,) if hasattr(self, "output_path") else ()
        return reader  # type: ignore[no-any-return]

    def writer(self) -> Writer:
        """Return a fresh writer for the last pass.

        Files that are packed afterwards are compressed at that point, not by this writer.
        """
        if self.writing.is_packed and self.writing.tokens is not None:
            return ArrowWriter(self.output_path, fields=[IDS, IDENTITY])
        stage: Any = copy.deepcopy(self._writer)
        if self.writing.is_packed and stage.format == "jsonl":
            stage.file_extension, stage.codec = "jsonl", None
        return stage  # type: ignore[no-any-return]

    @property
    def extension(self) -> str:
        """Extension of the output files, without a dot."""
        return self._writer.file_extension

    @property
    def text_field(self) -> str:
        """That of the first step that has one."""
        fields = [getattr(s, "text_field", None) for s in self.steps]
        named = [f[0] if isinstance(f, list) else f for f in fields if f]
        return str(named[0]) if named else "text"

    def _partitioning(self) -> FilePartitioningStage:
        parts: Any = self._reader
        first: FilePartitioningStage = parts.decompose()[0]
        return first

    def _suffixes(self) -> tuple[str, ...]:
        return self._partitioning().suffixes()

    def file_list_paths(self) -> Any:
        return self._partitioning().file_paths

    def files(self) -> FileList:
        """List the input files as they are now."""
        from tamis.formats.input_files.listing import list_files

        self._partitioning().reach()
        return list_files(self.file_list_paths(), self._suffixes(), leave_out=[self.output_path])

    def token_count(self) -> CountTokens | None:
        """Return the step that counts tokens, the last one; None if a quarter of the bytes stands for them."""
        return next((step for step in reversed(self.steps) if isinstance(step, CountTokens)), None)

    def mix(self) -> SourceMix | None:
        """Return the stage that gives each source its weight, or None if there is nothing to do."""
        if is_plain(self.sources):
            return None
        count = self.token_count()
        return SourceMix(
            self._file_numbers()[:-1],
            [s.weight for s in self.sources],
            self.text_field,
            most=[s.max_documents for s in self.sources],
            each=[s.upsample for s in self.sources] if any(s.upsample != 1 for s in self.sources) else [],
            tokens_field=None if count is None else count.count_field,
        )

    def _file_numbers(self) -> list[int]:
        """Return the number of the first file of each source, and of all files. A file is of the first that has it."""
        from tamis.formats.input_files.listing import list_files

        seen: set[str] = set()
        numbers = [0]
        for source in self.sources:
            seen |= set(list_files(absolute(source.path), self._suffixes(), leave_out=[self.output_path]).paths)
            numbers.append(len(seen))
        return numbers

    def ignored_sources(self) -> list[str]:
        """Return a sentence on each source whose files are all of sources before it, where that matters."""
        if is_plain(self.sources) or self._is_awaited():
            return []
        return [
            f"sources: all files of {source.path} belong to sources before it; its "
            f"{'max_documents' if source.max_documents is not None else 'weight'} is not used. Name narrower sources "
            "first"
            for source, (first, end) in zip(self.sources, pairwise(self._file_numbers()), strict=True)
            if first == end
        ]

    def into(self, output_path: str) -> Curation:
        """Return the same curation with another output folder.

        Running the copy leaves the steps of this one unchanged.
        """
        copied = copy.copy(self)
        copied.steps, copied._writer = copy.deepcopy(self.steps), copy.deepcopy(self._writer)
        copied._writer.path = copied.output_path = str(absolute(output_path))
        return copied

    # -- what it will do ----------------------------------------------------------------------------------------------
    def plan(self) -> CurationPlan:
        """Return the passes and the reasons for them; only the names of the input files are read.

        What is not downloaded yet will be JSONL.
        """
        paths = [] if self._is_awaited() else self.files().paths
        plain = all(ends_in(path, JSONL_SUFFIXES) for path in paths)
        has_records = any(record_name(path) for path in paths)
        return make_plan(facts_of(self.steps), plain, any(s.max_documents for s in self.sources), has_records)

    def _is_awaited(self) -> bool:
        """Return True if something of the input is not downloaded yet."""
        return any(not download.is_begun for download in self.downloads)

    def sizes(self) -> CurationSizes:
        """Estimate the size of the plan from a small sample of the input."""
        from tamis.dedup.planning import estimate_documents
        from tamis.forecast.input_size import measured_bytes

        if self._is_awaited():
            names = " and ".join(d.kind for d in self.downloads if not d.is_begun)
            raise UsageError(f"{_WHO}: the size of {names} is not known before it was downloaded, which a run does")
        files = self.files()
        n_bytes = measured_bytes(files.paths, files.sizes)
        n = estimate_documents(files, n_bytes)
        keys: dict[str, int] = {}
        for group in self.plan().groups:
            last: Any = self.steps[group.decides[-1]]
            keys["+".join(self.steps[i].name for i in group.decides)] = last.key_bytes(n, n_bytes)
        return {
            "n_files": len(files),
            "input_bytes": sum(files.sizes),
            "decoded_bytes": n_bytes,
            "n_documents": n,
            "key_bytes": keys,
        }

    def run(self, executor: Any = None, *, progress: Any = True, **settings: Any) -> CurationResult:
        """Run all passes; the same call again resumes where it was stopped.

        `settings` are those of a run: memory="1GB", workers, scratch, timeout, fresh. `executor` runs the passes.
        `progress`: each pass with a line while it runs, and a summary, on stderr; False for neither; or a function
        that receives the states.
        """
        from tamis.curation.runner import CurationRun
        from tamis.pipeline.pass_progress import print_line, progress_listener

        for download in self.downloads:
            download.fetch(self.name, executor, settings, progress is True)
        with progress_listener(progress) as show:
            result = CurationRun(self, settings, show, executor).run(progress is True)
        if progress is True:
            print_line(f"{self.name}: {result.in_one_line()}")
        return result

    def __repr__(self) -> str:
        return f"Curation({self.name!r}, steps=[{', '.join(s.name for s in self.steps)}])"


def _counting_tokens(steps: Sequence[Step]) -> list[Step]:
    """Return the steps; those that weigh by tokens and name no field of them take that of a step before."""
    linked: list[Step] = []
    field: str | None = None
    for step in steps:
        if isinstance(step, CountTokens):
            field = step.count_field
        if isinstance(step, Buckets | KeepTop | Mix) and step.tokens_field is None and field is not None:
            step = replace(step, tokens_field=field)
        linked.append(step)
    return linked


def _writer_for(paths: Any, suffixes: Sequence[str], output: str, file_type: str | None) -> Writer:
    """Return the writer for `file_type` (see `file_types`); None: as the input."""
    from tamis.stages.text.io.formats import output_format, writer_of

    if file_type is None:
        kind, extension = output_format(paths, suffixes, output)
    else:
        kind, extension = writer_of(file_type), file_type
    return kind(output, file_extension=extension)
