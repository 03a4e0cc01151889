"""The task of the solver: steps, each a type with its parameters, and the files they work on.

A step is registered in STEPS with the function that performs it, `handler(step, run)` with the step and a
solver.SolverRun. A new kind of deduplication adds its step here, and the handler to its own package.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, NamedTuple

from tamis._dataclasses import dataclass
from tamis.dedup.contamination.limits import Common, Limits
from tamis.dedup.quantiles.choice import ScoreChoice, TopLimit
from tamis.dedup.quantiles.mixing import MixRule
from tamis.dedup.state import IndexPin
from tamis.engine import wire
from tamis.errors import UsageError
from tamis.memory.device_limits import HOST_BYTES
from tamis.memory.gpu import count_gpus


@dataclass(frozen=True)
class Preparation:
    """Work that a process of the solver begins while a pass over the input still runs.

    `function`: "module:function", called with the bytes of GPU memory; `host_bytes`: its share of the budget meanwhile.
    """

    function: str
    host_bytes: int


@dataclass(frozen=True)
class SolverStep:
    """One step of the solver."""

    def preparation(self) -> Preparation | None:
        """Return what takes long to start and can start before the pass that makes its records ends."""
        return None

    def files(self) -> list[str]:
        """Return the files of passes that it reads in addition to those of the first pass."""
        return []


class RangeResults(NamedTuple):
    """Folders with what workers found in ranges of keys: equal texts, and links by shared bands where there are any."""

    equal: str
    bands: str | None = None


@dataclass(frozen=True)
class DecideEqual(SolverStep):
    """Keep one document of every group with equal hashes. `facts`: entries of the summary that are known beforehand."""

    keep_by: str | None = None
    facts: dict[str, str] = field(default_factory=dict)
    ranges: RangeResults | None = None


@dataclass(frozen=True)
class LinkBands(SolverStep):
    """Link documents that share a key of one of these bands; the first such step finds equal texts, too."""

    records: list[str]
    bands: list[int]
    ranges: RangeResults | None = None

    def files(self) -> list[str]:
        return self.records


@dataclass(frozen=True)
class FindCandidates(SolverStep):
    """List the components of linked documents, and the positions of the texts to be compared."""


@dataclass(frozen=True)
class CompareCandidates(SolverStep):
    """Decide the components: a document is removed against one that stays and that it resembles.

    `threshold` None: without comparing texts. `texts`: files with the texts of candidates; None: each is read from the
    input by its position. `equal_tables`: the folder for the table of equal documents, where they are decided apart.
    """

    threshold: float | None
    shingle_length: int
    shingle_unit: str
    seed: int
    keep: str
    keep_by: str | None
    text_field: str
    normalize_text: str
    facts: dict[str, str] = field(default_factory=dict)
    texts: list[str] | None = None
    equal_tables: str | None = None

    def files(self) -> list[str]:
        return self.texts or []


@dataclass(frozen=True)
class CutLines(SolverStep):
    """Decide which lines or paragraphs are cut.

    Those with at least `min_count` occurrences are cut, all but the first one if `keep_first`.
    """

    min_count: int
    keep_first: bool


@dataclass(frozen=True)
class DecideContamination(SolverStep):
    """Decide which documents are contaminated by evaluation items. See DecontaminationWorkflow."""

    limits: Limits
    common: Common
    text_field: str
    action: str


@dataclass(frozen=True)
class DecideBuckets(SolverStep):
    """Find the edges of `n` buckets, by the values of a field or of all documents, or take those of a file."""

    choice: ScoreChoice
    by: str | None
    n: int
    edges: str | None = None


@dataclass(frozen=True)
class KeepScores(SolverStep):
    """List the scores of every document, from records or from the table of an earlier run."""

    choice: ScoreChoice


@dataclass(frozen=True)
class DecideTop(SolverStep):
    """Find which documents with the highest scores fit into a limit."""

    choice: ScoreChoice
    limit: TopLimit


@dataclass(frozen=True)
class DecideMix(SolverStep):
    """Find how often the documents of each group are written."""

    rule: MixRule


@dataclass(frozen=True)
class GroupSelections(SolverStep):
    """Group selections with equal k-grams, and decide those groups that need no texts.

    `indexed`: files with the selections of the documents of an index, which come before all others.
    """

    min_bytes: int
    indexed: list[str] = field(default_factory=list)

    def files(self) -> list[str]:
        return self.indexed


@dataclass(frozen=True)
class CompareWindows(SolverStep):
    """Compare the windows of the other groups, and write down which passages are repeated.

    `texts`: files with the texts of candidates, once a pass has written them; `indexed_texts`: of those in an index.
    `keep_first`: the first copy stays.
    """

    min_bytes: int
    keep_first: bool
    texts: list[str] = field(default_factory=list)
    indexed_texts: list[str] = field(default_factory=list)

    def files(self) -> list[str]:
        return [*self.texts, *self.indexed_texts]


@dataclass(frozen=True)
class CompareVectors(SolverStep):
    """Cluster vectors, and keep one document of each group of similar ones within a cluster."""

    n_clusters: int | None
    max_iter: int
    tol: float
    seed: int
    init: str
    oversampling: float
    fit_data_fraction: float | None
    which_to_keep: str
    pairwise_batch_size: int
    eps: float
    order_seed: int
    backend: str = "cpu"

    def preparation(self) -> Preparation | None:
        if self.backend == "cpu" or not count_gpus():
            return None
        return Preparation("tamis.dedup.semantic.products:start_device", HOST_BYTES)


@dataclass(frozen=True)
class BuildIdTable(SolverStep):
    """Sort the hashes of listed ids into a table. `id_paths`: the files that list them."""

    field: str
    id_paths: list[str]


@dataclass(frozen=True)
class WriteReplayTables(SolverStep):
    """Write tables of what the steps with these labels dropped, for later passes.

    `judges`: stages that make keys, whose quarantine holds for all passes.
    """

    labels: list[str]
    judges: list[str]


@dataclass(frozen=True)
class AppendToIndex(SolverStep):
    """Add the documents that stay to an index. `input` and `output`: of the run that adds them."""

    path: str
    kind: str
    parameters: dict[str, Any]
    input: Any
    output: str


STEPS: Mapping[type[SolverStep], str] = {
    DecideEqual: "tamis.dedup.exact.solver:decide_equal",
    LinkBands: "tamis.dedup.fuzzy.solver:link_bands",
    FindCandidates: "tamis.dedup.fuzzy.solver:list_candidates",
    CompareCandidates: "tamis.dedup.fuzzy.solver:compare_candidates",
    CutLines: "tamis.dedup.lines.solver:decide_lines",
    DecideContamination: "tamis.dedup.contamination.solver:decide_contamination",
    DecideBuckets: "tamis.dedup.quantiles.solver:decide_buckets",
    DecideMix: "tamis.dedup.quantiles.solver:decide_mix",
    KeepScores: "tamis.dedup.quantiles.solver:keep_scores",
    DecideTop: "tamis.dedup.quantiles.solver:decide_top",
    GroupSelections: "tamis.dedup.substrings.grouping:group_selections",
    CompareWindows: "tamis.dedup.substrings.comparing:compare_windows",
    CompareVectors: "tamis.dedup.semantic.solver:compare_vectors",
    BuildIdTable: "tamis.dedup.ids.table:build_table",
    WriteReplayTables: "tamis.dedup.replay_tables.tables:write_tables_of_steps",
    AppendToIndex: "tamis.dedup.index.entries:append",
}

_TYPES = {kind.__name__: kind for kind in STEPS}


@dataclass(frozen=True)
class NamedStep:
    """A step as it is stored: the name of its type, and its parameters."""

    name: str
    parameters: dict[str, Any]

    @classmethod
    def of(cls, step: SolverStep) -> NamedStep:
        return cls(type(step).__name__, wire.to_json(step))

    def step(self) -> SolverStep:
        """Return the step itself; raise UsageError if its type is not registered."""
        if self.name not in _TYPES:
            raise UsageError(f"deduplication: unknown step {self.name!r}")
        return wire.from_json(_TYPES[self.name], self.parameters)


@dataclass(frozen=True)
class SolverTask:
    """Steps for the solver, in order.

    `records`: of the first pass; `checks`: files with the checksums they must have.
    """

    steps: list[NamedStep]
    records: list[str]
    duplicates: str
    room_bytes: int
    n_threads: int = 1
    gpu_bytes: int = 0
    checks: dict[str, str] = field(default_factory=dict)
    index_pins: list[IndexPin] = field(default_factory=list)
