"""The typed contents of a run directory: a class for each JSON file and each kind of commit log line.

plan.json       `RunPlan`: what the run is            manifest.json   `Manifest`: how it ended
steps.json      `SamplingSteps`                     commit.log      `LogRecord`: one line per commit
column_types.json  `ColumnScan`: types of frames
run.sqlite      `RunFacts`: the table `about`; rows of `events` have an `EventKind` (monitor/database.py)

Covers: the classes, and `read_fields`, by which every JSON object becomes one of them. Does not cover: reading and
writing the files (run/output/directory.py for a run, observe/ for others). Settings and predictions have their own
owners (run/settings.py, forecast/prediction.py).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, field, fields
from enum import StrEnum
from typing import Any, NamedTuple, Self, TypedDict, TypeVar

from tamis._dataclasses import dataclass
from tamis.engine.histograms import HistogramTable
from tamis.engine.ledger import Ledger
from tamis.engine.wire import field_readers
from tamis.forecast.prediction import Prediction
from tamis.formats.input_files.skipped import SkippedEntry

VERSION = 1
ID_FIELD = "id"  # by which verdicts name a document
_T = TypeVar("_T")


class CoveredRange(NamedTuple):
    """A range of an input file that is done."""

    file: int
    start: int
    end: int
    at_end: bool  # the file ends there


def read_fields(kind: type[_T], data: Mapping[str, Any], problems: list[str] | None = None, name: str = "") -> _T:
    """Build a dataclass from a JSON object, whose keys are its fields; keys that it does not have are ignored.

    A field that is missing has its default. One that cannot be read raises ValueError; with `problems` it has its
    default, too, and the problem is noted there (`name`: of the file).
    """
    values: dict[str, Any] = {}
    readers = field_readers(kind)  # type: ignore[arg-type]
    for f in fields(kind):  # type: ignore[arg-type]
        if f.name not in data:
            continue
        try:
            values[f.name] = readers[f.name](data[f.name])
        except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as exc:
            if problems is None:
                raise ValueError(f"{f.name}: {type(exc).__name__}: {exc}"[:300]) from exc
            problems.append(f"{name} is damaged: {f.name} cannot be read ({type(exc).__name__})")
    try:
        return kind(**values)
    except TypeError as exc:  # a field without a default is missing
        raise ValueError(str(exc)) from None


def read_plan(path: str | os.PathLike[str]) -> RunPlan:
    """Read a plan file; raise OSError or ValueError if that is not possible."""
    with open(path, "rb") as file:
        data = json.load(file)
    if not isinstance(data, dict):
        raise ValueError("expected an object")
    return read_fields(RunPlan, data)


# -- the run database -------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class GpuUseFigures:
    """Use of GPUs by a run so far. `busy`: mean share by device, once its workers were warm."""

    busy: dict[str, float] = field(default_factory=dict)
    out_of_memory: int = 0  # batches that went through in parts
    cut: int = 0  # batches that were cut to fit


@dataclass(frozen=True)
class RunFacts:
    """Facts about one run, or one pass of a workflow: a row of the table `about` for each."""

    run_id: str = ""
    name: str = ""
    host: str = ""
    began_at: float = 0.0  # this attempt; 0: unknown
    budget_bytes: int = 0
    workers: int = 1
    input_bytes: int = 0
    n_files: int = 0
    stages: list[str] = field(default_factory=list)
    duplicate_stages: list[str] = field(default_factory=list)  # those that remove duplicates
    shows_documents: bool = True  # pages may show parts of documents (setting no_samples)
    redacts: bool = False  # a stage removes values that must not be shown
    text_field: str = "text"
    first_output_s: float | None = None
    gpu: GpuUseFigures | None = None
    monitor_cpu_s: float = 0.0


# -- the plan ---------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class InputIdentity:
    """Input files with what identifies a changed one.

    Size, modification time and, if they are few, a fingerprint of each.
    """

    paths: list[str] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    mtimes_ns: list[int] = field(default_factory=list)
    prints: list[str] = field(default_factory=list)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> InputIdentity:
        """Read without looking at each value: there may be a hundred thousand files."""
        return cls(data["paths"], data.get("sizes", []), data.get("mtimes_ns", []), data.get("prints", []))

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))

    def planned(self) -> dict[str, tuple[int, int]]:
        """Return size and modification time by path."""
        return {p: (s, m) for p, s, m in zip(self.paths, self.sizes, self.mtimes_ns, strict=True)}

    def changes(self, now: InputIdentity) -> list[str]:
        """Return what differs in `now`, one clause for each file."""
        positions = {p: i for i, p in enumerate(self.paths)}
        new = {p: i for i, p in enumerate(now.paths)}
        clauses = [f"{p} is new" for p in new if p not in positions] + [
            f"{p} is gone" for p in positions if p not in new
        ]
        for path, i in new.items():
            if path not in positions:
                continue
            j = positions[path]
            if self.sizes[j] != now.sizes[i]:
                clauses.append(f"{path} had {self.sizes[j]} bytes and has {now.sizes[i]}")
            elif self.mtimes_ns[j] != now.mtimes_ns[i]:
                clauses.append(f"{path} was modified")
            elif self.prints and now.prints and self.prints[j] != now.prints[i]:
                clauses.append(f"{path} has other contents")
        if not clauses and self.paths != now.paths:
            clauses.append("the files come in another order")
        return clauses


@dataclass(frozen=True)
class StageDescription:
    """A stage apart from its execution: class, parameters, hashes of the user's source code (run/identity.py)."""

    stage: str
    params: dict[str, Any] = field(default_factory=dict)
    source: str = ""
    uses: dict[str, str] = field(default_factory=dict)  # source hash by name, of code of the user's that the stage uses
    lines: dict[str, list[str]] = field(default_factory=dict)  # of that code (its own: ""), to name what was edited

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, without what is empty."""
        values = {"stage": self.stage, "params": self.params, "source": self.source}
        return values | {name: value for name, value in (("uses", self.uses), ("lines", self.lines)) if value}


@dataclass(frozen=True)
class RecordedRule:
    """A rule by which a stage may drop documents (stages/base.py); `name` "": the stage names no rules.

    `at_least`, `at_most`: which of the limits a score must reach, and must not exceed. `in_recipe`: how a recipe sets a
    limit, with {} for its value; by default under its own name.
    """

    stage: str
    name: str = ""
    score: str = ""
    limits: dict[str, Any] = field(default_factory=dict)
    at_least: str | None = None
    at_most: str | None = None
    inverted: bool = False
    meaning: str = ""  # what the score is, in words
    in_recipe: dict[str, str] = field(default_factory=dict)

    def recipe_text(self, limit: str) -> str:
        """Return how a recipe sets a limit, with {} for its value."""
        return self.in_recipe.get(limit) or f"{limit}: {{}}"

    def parameter(self, limit: str) -> str:
        """Return the name of the parameter that sets a limit.

        >>> rule = RecordedRule("web", "short", in_recipe={"minimum": "min_words: {}"})
        >>> rule.parameter("minimum"), rule.parameter("maximum")
        ('min_words', 'maximum')
        """
        return self.recipe_text(limit).partition(":")[0]

    @property
    def compared(self) -> list[Any]:
        """The limits that scores are compared with."""
        return [self.limits.get(side) for side in (self.at_least, self.at_most) if side]


@dataclass
class RunPlan:
    """The plan of a run: its inputs, formats, stages and rules. A resumed run must have the same plan."""

    run_id: str = ""
    name: str = ""
    inputs: InputIdentity = field(default_factory=InputIdentity)
    formats: list[str] = field(default_factory=list)
    stages: list[StageDescription] = field(default_factory=list)
    rules: list[RecordedRule] = field(default_factory=list)
    shard: str = ""
    version: int = VERSION

    def to_dict(self) -> dict[str, Any]:
        return {
            **vars(self),
            "inputs": self.inputs.to_dict(),
            "stages": [s.to_dict() for s in self.stages],
            "rules": [asdict(r) for r in self.rules],
        }


@dataclass
class SamplingSteps:
    """Upper ends of the shares of documents that the sampling steps of a run deliver, one after the other."""

    steps: list[float] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        return {"steps": self.steps}


@dataclass
class ColumnScan:
    """column_types.json: the types of JSON fields in frames, and a hash of the input that was scanned for them."""

    input: str
    types: dict[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


# -- the commit log ---------------------------------------------------------------------------------------------------
class FileKind(StrEnum):
    """The purpose of a committed file.

    All but output and listed ones are in a folder of the run directory with this name.
    """

    OUTPUT = "output"
    QUARANTINE = "quarantine"
    LISTED = "listed"  # a stage of the user's wrote it
    VERDICTS = "verdicts"
    REJECTED = "rejected"
    SCORES = "scores"
    SAMPLES = "samples"  # joined to one file, not committed (run/output/sample_store.py)


class CommittedFile(NamedTuple):
    """A file as the commit log names it. What is None is unknown for files of its kind."""

    name: str
    kind: FileKind
    rows: int = 0
    n_bytes: int | None = None
    content: str | None = None  # sum of the content hashes of its records, as 32 hex digits
    schema: str | None = None
    observed: str | None = None  # facts about values that a schema does not express
    check: str | None = None
    upload: tuple[str, str, list[str]] | None = None  # what completes it in a bucket (stores/uploads.py)
    data_bytes: int | None = None  # of its records before compression: lines with their ends, or values of rows
    is_sized: bool = False  # its ends are those that the file size of the run asks for (output/file_size.py)
    partition: str | None = None  # values of `partition_by` that all of its documents have, as JSON

    @property
    def is_output(self) -> bool:
        return self.kind is FileKind.OUTPUT

    @property
    def content_sum(self) -> int:
        """The sum of the content hashes of its records as a number, 0 if it has none."""
        return int(self.content or "0", 16)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, without what is None."""
        values = {
            "bytes": self.n_bytes,
            "content": self.content,
            "schema": self.schema,
            "observed": self.observed,
            "check": self.check,
            "upload": self.upload,
            "data": self.data_bytes,
            "sized": self.is_sized or None,
            "partition": self.partition,
            "name": self.name,
        }
        return {"kind": self.kind, "rows": self.rows} | {k: v for k, v in values.items() if v is not None}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Read a file of the log; raise LookupError, TypeError or ValueError if it is none."""
        get, n_bytes = data.get, data.get("bytes")
        name = data["name"]
        if not isinstance(name, str):
            raise TypeError("name of a file")
        return cls(
            name,
            _FILE_KINDS[data["kind"]],
            int(get("rows", 0)),
            None if n_bytes is None else int(n_bytes),
            get("content"),
            get("schema"),
            get("observed"),
            get("check"),
            get("upload"),
            int(data["data"]) if "data" in data else None,
            bool(get("sized", False)),
            get("partition"),
        )


_FILE_KINDS = {str(kind): kind for kind in FileKind}


class CommitRecord(NamedTuple):
    """A committed partition of a sampling step.

    The input that it covers, its files, and its books (as `Ledger.to_dict` returns them).
    """

    sampling_step: int
    covered: list[CoveredRange]
    files: list[CommittedFile]
    books: dict[str, Any]

    def ledger(self, histograms: bool = True) -> Ledger:
        return Ledger.from_dict(self.books, histograms)

    def to_dict(self) -> dict[str, Any]:
        files = [f.to_dict() for f in self.files]
        return {"t": "commit", "step": self.sampling_step, "cover": self.covered, "files": files, "ledger": self.books}


class ReplaceRecord(NamedTuple):
    """Output files that follow each other are replaced by others with the same documents in the same order.

    `content`: of the old files, if fields of the documents were left out in the new ones (`partition_by`).
    """

    old: list[str]
    files: list[CommittedFile]
    content: str | None = None

    def to_dict(self) -> dict[str, Any]:
        plain = {"t": "replace", "old": self.old, "files": [f.to_dict() for f in self.files]}
        return plain if self.content is None else {**plain, "content": self.content}


class RetractRecord(NamedTuple):
    """A sampling step does not count any more (log of a bucket only)."""

    sampling_step: int

    def to_dict(self) -> dict[str, Any]:
        return {"t": "retract", "step": self.sampling_step}


class WriterRecord(NamedTuple):
    """A random mark by which a writer recognizes its own object (log of a bucket only)."""

    mark: str

    def to_dict(self) -> dict[str, Any]:
        return {"t": "by", "mark": self.mark}


CommitOrReplace = CommitRecord | ReplaceRecord
LogRecord = CommitOrReplace | RetractRecord | WriterRecord


def log_record(data: Mapping[str, Any]) -> LogRecord:
    """Build a record of the commit log from JSON values; raise LookupError, TypeError or ValueError if it is none."""
    match data["t"]:
        case "commit":
            covered = [
                CoveredRange(int(f), int(start), int(end), bool(at_end)) for f, start, end, at_end in data["cover"]
            ]
            return CommitRecord(
                int(data["step"]), covered, [CommittedFile.from_dict(f) for f in data["files"]], data["ledger"]
            )
        case "replace":
            return ReplaceRecord(
                [str(name) for name in data["old"]],
                [CommittedFile.from_dict(f) for f in data["files"]],
                data.get("content"),
            )
        case "retract":
            return RetractRecord(int(data["step"]))
        case "by":
            return WriterRecord(str(data["mark"]))
    raise ValueError(f"no record of a commit log: {str(data['t'])[:80]!r}")


# -- the end ----------------------------------------------------------------------------------------------------------
class ResultStatus(StrEnum):
    """The outcome of a run that did not fail."""

    FINISHED = "finished"
    SAMPLED = "sampled"  # a share was delivered
    ALREADY = "already"  # nothing was left to do


@dataclass
class Manifest:
    """The outcome of a run: written at its end, read by reports and by the next attempt.

    A new figure of reports is a field here.
    """

    run_id: str = ""
    steps: list[float] = field(default_factory=list)
    status: str = ResultStatus.FINISHED
    share: float = 1.0
    exit_code: int = 0
    message: str = ""
    ledger: Ledger | None = None
    content_hash: str = ""
    seconds: float = 0.0
    budget_bytes: int = 0
    peak_bytes: int = 0
    caller_bytes: int = 0
    counters: dict[str, int] = field(default_factory=dict)
    read_bytes: int = 0
    n_files: int = 0
    histograms: list[HistogramTable] = field(default_factory=list)
    prediction: Prediction = field(default_factory=Prediction)
    skipped_files: list[SkippedEntry] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)  # sentences for the summary, the report and the card

    def agrees_with(self, ledger: Ledger) -> bool:
        """Return True if these books still hold what was written.

        A run whose log was lost does not count as finished.
        """
        return self.ledger is None or self.ledger.written == ledger.written

    def to_dict(self) -> dict[str, Any]:
        ledger = self.ledger.to_dict() if self.ledger is not None else None
        return {**vars(self), "ledger": ledger, "skipped_files": [vars(s) for s in self.skipped_files]}


class LeakReport(TypedDict):
    """Memory or handles that workers keep of every partition: an event `leak`, and an entry of `RunResult.leaks`."""

    text: str
    who: str
    stage: str
    kind: str
    segment: int
    worker: int
    n_partitions: int
    partitions_left: int | None  # until a worker would have used up what it has
    proven: bool


class MemoryLeak(LeakReport):
    python_type: str
    arrow_type: str
    variable: str
    workers: list[int]
    bytes_per_partition: int
    low_bytes: int
    p: float
    growth_bytes: int
    replaced_every: int
    cap_bytes: int
    python_bytes: int
    arrow_bytes: int
    native_bytes: int
    shared_bytes: int
    unexplained_bytes: int


class HandleLeak(LeakReport):
    """A leak of descriptors or threads."""

    handles_per_partition: float
    n_kept: int
    limit: int | None


class AlertCounts(TypedDict, total=False):
    """The alerts of a run: how many, by rule, those not delivered by sink, and the log. Empty where alerts are off."""

    n: int
    rules: dict[str, int]
    undelivered: dict[str, int]
    log: str


class EventKind(StrEnum):
    """Events of a run, as the run database and reports name them."""

    UNIT = "unit"  # done
    COMMIT = "commit"
    FAILED = "failed"
    DIED = "died"
    KILL = "kill"
    RECOVERY = "recovery"
    DEVICE = "device"
    RECYCLE = "recycle"
    PRESSURE = "pressure"
    LEAK = "leak"
    LEAK_OVER = "leak_over"
    REMEDY = "remedy"
    STOP = "stop"
    NODE = "node"
    REFUSED = "refused"  # memory that a worker wanted to map
    UNBOUNDED = "unbounded"  # the memory of a worker is only watched
    REMOVED = "removed"  # files that a worker left in shared memory
    MONITOR = "monitor"  # an error of the monitor itself
