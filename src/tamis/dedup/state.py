"""State of a deduplication that passes and the solver leave for each other: one schema, one reader and one writer.

Every file is one value with the version of the schema, written whole or not at all. A file that is damaged, or of
another version, raises RunConflict. A file that is absent means that its step is not done. The paths of input files by
number (`paths.json`, `all_paths.json`) are plain lists, because stages of later passes read them, too.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import field
from typing import Any, Generic, NamedTuple, TypedDict, TypeVar, cast

from tamis._dataclasses import dataclass
from tamis.engine import wire
from tamis.engine.schema import InputIdentity
from tamis.errors import RunConflict
from tamis.files import read_json, write_json
from tamis.formats.input_files.skipped import SkippedEntry, SkippedReport

VERSION = 1
REPLAY_FOLDER = "replay"  # tables of what the steps of a first pass dropped, by the number of the step ...
QUARANTINED = "quarantined"  # ... and of the documents that are in its quarantine
T = TypeVar("T")


class Summary(TypedDict, total=False):
    """The figures of a deduplication. Which keys there are depends on its kind."""

    n_documents: int
    n_duplicates: int
    n_without_text: int
    duplicate_text_bytes: int
    n_groups: int
    largest_group: int
    group_sizes: dict[str, int]  # by a range of sizes
    documents_by_file: list[int]
    duplicates_by_file: list[int]
    n_without_number: int  # in the column of keep_by
    n_quarantined: int
    n_bad_ranges: int
    n_not_compared: int
    skipped_files: list[SkippedReport]  # input files that were found and not read
    # compared with an index
    n_indexed: int
    n_duplicates_of_indexed: int
    # fuzzy
    hashed_on: str
    sketched_on: str
    n_edges: int
    n_heavy_buckets: int
    largest_bucket: int
    n_candidates: int
    phase_seconds: dict[str, float]  # of a semantic deduplication whose vectors stay on a GPU
    n_components: int
    largest_component: int
    component_sizes: dict[str, int]
    n_compared: int
    n_beyond_leaders: int
    n_equal: int
    n_similar: int
    # lines
    n_units: int
    n_long_enough: int
    n_edited: int
    # contamination
    action: str
    n_spans: int
    n_overlaps: int
    n_excepted: int
    sets: list[dict[str, Any]]  # of each evaluation set: its items, and those that were found
    # buckets and the best documents
    n_without_score: int
    scores: list[dict[str, Any]]  # of each score: how many, its range and mean
    buckets: list[dict[str, Any]]  # of each group: documents and weight by bucket
    lowest_score: float | None
    weight_of_all: int
    weight_kept: int
    mix: list[dict[str, Any]]  # of each group: documents, tokens and epochs
    tokens_written: int
    # substrings
    n_selections: int
    n_passages: int
    n_text_bytes: int
    n_repeated_documents: int
    n_passages_of_indexed: int
    # semantic
    n_clusters: int
    dimension: int
    n_sample: int
    largest_cluster: int
    backend: str
    backend_why: str
    # removal by ids
    n_ids: int
    n_rows: int
    n_rows_without_id: int
    n_by_shared_ids: int
    # joining
    n_ranges: int
    n_segments: int
    scratch_bytes: int


@dataclass(frozen=True)
class FirstPass:
    """Facts of the first pass over the input.

    `is_clean`: it quarantined nothing, so that later passes need not check records.
    """

    n_records: int = 0
    n_quarantined: int = 0
    is_clean: bool = False
    skipped_files: list[SkippedEntry] = field(default_factory=list)


class BandChoice(NamedTuple):
    """Number of bands per pass over the input: chosen once, so that a resumed run does not choose again."""

    bands_per_pass: int


class SolverRoom(NamedTuple):
    """The memory that the files of decisions so far were cut for."""

    room_bytes: int


class RangeRoom(NamedTuple):
    """The memory of a worker that key ranges were cut for; a run resumed with other workers keeps these ranges."""

    room_bytes: int


class LinkedPass(NamedTuple):
    """The bands of one pass that the solver has linked."""

    bands: list[int]


class PassageGroups(NamedTuple):
    """Division of a substring deduplication: parts of the key space, and the first document of each range.

    `n_indexed`: how many documents of an index come before the new ones; `n_indexed_candidates`: how many of the
    selections that are compared by their texts are in these.
    """

    n_parts: int
    ranges: list[int]
    n_indexed: int = 0
    n_indexed_candidates: int = 0


class IndexPin(NamedTuple):
    """An entry of an index that the run is compared with, as it was when the run began. `data`: its file."""

    folder: str
    data: str
    n_bytes: int
    bands: int
    sketch_version: int


@dataclass(frozen=True)
class IndexPins:
    pins: list[IndexPin] = field(default_factory=list)


class ReplayCounts(NamedTuple):
    """Numbers of documents that the steps before a deduplication dropped, by label, and of those in quarantine."""

    dropped: dict[str, int]
    n_quarantined: int


class RecordedIds(NamedTuple):
    """The ids of duplicates that were written: the field they are from and the column they are in."""

    id_field: str | None
    column: str


class DedupRecord(NamedTuple):
    """The record that a deduplication is done.

    `inputs`: where the plan in the output does not have them: for writing ids of duplicates later, and to notice a
    change. `compared`: entries of an index that the input was compared with.
    """

    identity: dict[str, Any]
    summary: dict[str, Any]
    inputs: InputIdentity | None = None
    ids: RecordedIds | None = None
    compared: IndexPins = IndexPins()


class _StoredSummary(NamedTuple):
    summary: dict[str, Any]


class StateFile(Generic[T]):
    """One file of a state folder, holding one value."""

    def __init__(self, path: str, kind: type[T]) -> None:
        self.path, self._kind = path, kind

    def exists(self) -> bool:
        return os.path.exists(self.path)

    def read(self) -> T | None:
        """Return the value; None where there is no file, RunConflict where it is damaged or of another version."""
        data = read_json(self.path)
        return None if data is None else from_dict(self._kind, data, self.path)

    def write(self, value: T) -> None:
        """Store the value, in place of an earlier one."""
        write_json(self.path, to_dict(value))


class SummaryFile:
    """A file with a summary, complete or of one step."""

    def __init__(self, path: str) -> None:
        self._file = StateFile(path, _StoredSummary)
        self.path = path

    def exists(self) -> bool:
        return self._file.exists()

    def read(self) -> Summary | None:
        stored = self._file.read()
        return None if stored is None else cast("Summary", stored.summary)

    def write(self, summary: Summary) -> None:
        self._file.write(_StoredSummary(dict(summary)))


class State:
    """The state of one deduplication, in the folder of its files between passes."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.paths_file = os.path.join(folder, "paths.json")  # input files by number
        self.all_paths_file = os.path.join(folder, "all_paths.json")  # and after them those of an index
        self.inputs_file = os.path.join(folder, "inputs.json")  # of engine.run.input_identity.InputGuard
        self._identity_file = os.path.join(folder, "identity.json")
        self.first_pass = StateFile(os.path.join(folder, "first_pass.json"), FirstPass)
        self.band_choice = StateFile(os.path.join(folder, "chosen.json"), BandChoice)
        self.index_pins = StateFile(os.path.join(folder, "older.json"), IndexPins)
        self.solver_room = StateFile(os.path.join(folder, "room.json"), SolverRoom)
        self.range_room = StateFile(os.path.join(folder, "range_room.json"), RangeRoom)
        self.replay_counts = StateFile(os.path.join(folder, "replay_counts.json"), ReplayCounts)
        self.passage_groups = StateFile(os.path.join(folder, "passages.json"), PassageGroups)
        self.candidates = SummaryFile(os.path.join(folder, "candidates.json"))
        self.equal_summary = SummaryFile(os.path.join(folder, "equal_removal.json"))
        self.summary = SummaryFile(os.path.join(folder, "summary.json"))

    def linked(self, number: int) -> StateFile[LinkedPass]:
        """Return the file that says that the bands of this pass are linked."""
        return StateFile(os.path.join(self.folder, f"linked-{number}.json"), LinkedPass)

    @property
    def removal_paths_file(self) -> str:
        """The paths that file numbers of the removal table mean: those of the input, and of an index after them."""
        pins = self.index_pins.read()
        return self.all_paths_file if pins is not None and pins.pins else self.paths_file

    # -- plain values -------------------------------------------------------------------------------------------------
    def read_identity(self) -> dict[str, Any] | None:
        """Return the parameters of the deduplication that this state belongs to."""
        identity: dict[str, Any] | None = read_json(self._identity_file)
        return identity

    def write_identity(self, identity: dict[str, Any]) -> None:
        write_json(self._identity_file, identity)

    def paths(self) -> list[str]:
        """Return the input files by number; none before the first pass."""
        return read_json(self.paths_file) or []

    def write_paths(self, paths: Sequence[str]) -> None:
        write_json(self.paths_file, list(paths))

    def undecided_names(self) -> set[str]:
        """Return the names of files that hold no decision: they stay when decisions are taken again."""
        files = (self.paths_file, self.inputs_file, self._identity_file, self.first_pass.path, self.band_choice.path)
        return {os.path.basename(path) for path in (*files, self.index_pins.path)}


def to_dict(value: Any) -> dict[str, Any]:
    """Return the value of a state file as JSON values, with the version of the schema."""
    return {"version": VERSION, **wire.to_json(value)}


def from_dict(kind: type[T], data: Any, path: str) -> T:
    """Return the value that `to_dict` made JSON values of; RunConflict for anything else. `path`: for messages."""
    remedy = "start over with fresh (--fresh)"
    if not isinstance(data, dict) or data.pop("version", None) != VERSION:
        raise RunConflict(f"{path} is damaged or was written by another version of Tamis; {remedy}")
    try:
        return wire.from_json(kind, data)
    except wire.Garbled as exc:
        raise RunConflict(f"{path} is damaged ({exc}); {remedy}") from None
