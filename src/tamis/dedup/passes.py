"""The passes of a workflow, and the result of running them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING, Any

from tamis._dataclasses import dataclass
from tamis.dedup.kinds import DedupKind, ShippedFigures
from tamis.engine.schema import AlertCounts, LeakReport
from tamis.forecast.prediction import Prediction
from tamis.pipeline.pass_progress import describe_cost
from tamis.stages.base import ProcessingStage
from tamis.stages.io import ReadHints, Writer

if TYPE_CHECKING:
    from tamis.dedup.nemo_compat.id_files import IdFiles
    from tamis.dedup.planning import DedupPlan
    from tamis.dedup.solver_task import SolverStep
    from tamis.dedup.state import Summary
    from tamis.dedup.workflow import Procedure
    from tamis.engine.run_record import RunRecord
    from tamis.formats.input_files.listing import FileList

KeyPass = tuple[ProcessingStage[Any, Any], list[int]]
"""A stage that makes keys, and the numbers of its bands."""


@dataclass
class Passes:
    """The passes of a workflow.

    `source` makes a fresh reader for each pass; `kind` is None where documents are not compared. `keys`: stages of the
    first passes (several where not all bands fit on the disk at once), each with the numbers of its bands; none for
    exact deduplication. `decision`: the step of the solver that decides; None where its own procedure does.
    `texts`: the stage that collects the texts to be compared, made from the folder with their positions; None where
    nothing is compared. `procedure`: runs the passes; None for that of key_comparison.py. What a kind of deduplication
    does in another way is in its procedure.
    """

    name: str
    source: Callable[[], ProcessingStage[Any, Any]]
    keys: list[KeyPass]
    output: str
    decision: SolverStep | None
    writer: Callable[[], Writer] | None  # None: nothing is removed
    kind: DedupKind | None = None
    texts: Callable[[str], ProcessingStage[Any, Any]] | None = None
    # Bands per pass, from the folder they go to; `keys_of` makes the stages then.
    choose: Callable[[str], int] | None = None
    keys_of: Callable[[int], list[KeyPass]] = field(default=lambda _: [])
    threshold: float | None = None
    max_source_loss: float = 1.0
    identity: dict[str, Any] = field(default_factory=dict)
    counted: str = "documents"  # what max_source_loss is a share of
    # Makes the last pass's stage, of the removal table and the file with the input files by number.
    remove: Callable[[str, str], ProcessingStage[Any, Any]] | None = None
    procedure: Procedure | None = None
    # Plans, from the files, the budget and the folder for scratch; None: by the number of documents and bands.
    plan: Callable[[FileList, int, str], DedupPlan] | None = None
    against: str | None = None  # an index whose documents stay (index/index.py)
    index: str | None = None  # the index that gets what stays
    index_parameters: dict[str, Any] = field(default_factory=dict)
    # Makes the stages of a pass over the input whose records the index gets, of the removal table and the file with the
    # paths by number; None: it gets those of the first pass.
    kept: Callable[[str, str], list[ProcessingStage[Any, Any]]] | None = None
    step: CurationStep | None = None  # where it is one step of a curation (tamis/curation)
    # Between the reader and the first stage of `keys`.
    before: list[ProcessingStage[Any, Any]] = field(default_factory=list)
    ids: IdFiles | None = None  # ids of what is removed, next to the run directory
    instead_of_sample: str = "deduplicate what a run with --sample wrote"  # the end of a message

    @property
    def index_kind(self) -> str:
        """The kind of its index."""
        return self.kind.name if self.kind is not None else ""

    @property
    def figures(self) -> ShippedFigures:
        """The figures that a first run on a machine is assumed to have."""
        return self.kind.figures if self.kind is not None else ShippedFigures()


@dataclass
class CurationStep:
    """The surroundings of a deduplication that is one step of a curation: a later pass uses its tables to remove.

    `output`: where that pass writes. `before`: stages between the reader and the one that makes keys, by the name of
    the pass (keys-0 runs the steps before it; later passes replay what these did). `first_steps`: steps of the solver
    after the first pass. `is_as_read`: whether the texts compared are those of the input, so that they can be read
    from there. `hints`: how a pass reads, by its name.
    """

    output: str
    before: Callable[[str], list[ProcessingStage[Any, Any]]]
    first_steps: list[SolverStep] = field(default_factory=list)
    is_as_read: bool = True
    hints: Callable[[str], ReadHints] = lambda _: ReadHints()


@dataclass
class DedupResult:
    """The result of a deduplication.

    `duplicates`: the folder with one row per duplicate; `run`: the result of the removal; `counted`: what its
    duplicates are (documents, or lines or paragraphs of them).
    """

    status: str
    output: str
    duplicates: str
    summary: Summary
    seconds: float = 0.0
    peak_bytes: int = 0
    scratch_bytes: int = 0
    run: Any = None
    counted: str = "documents"
    prediction: Prediction = field(default_factory=Prediction)  # expected against measured (expected.py)
    leaks: list[LeakReport] = field(default_factory=list)  # events `leak` of all passes
    record: RunRecord | None = None  # of the whole run, all passes and sessions; None for a shard
    alerts: AlertCounts = field(default_factory=lambda: AlertCounts())

    def in_one_line(self, is_removed: bool) -> str:
        """Summarize the run in one line for a caller from Python."""
        n = self.summary.get("n_duplicates")
        counted = self.counted.removesuffix("s") if n == 1 else self.counted
        what = "contaminated" if "sets" in self.summary else "duplicate"
        removed = "cut" if self.summary.get("action") == "cut" else "removed"
        duplicates = "" if n is None else f"{n:,} {what} {counted} {removed if is_removed else 'found'}; "
        if self.status == "already":
            return f"finished earlier, nothing to do ({duplicates}{self.output})"
        whole = self.record or self
        cost = describe_cost(whole.seconds, whole.peak_bytes)
        return f"{self.summary.get('n_documents', 0):,} documents read, {duplicates}{cost}"

    @property
    def n_documents(self) -> int:
        return int(self.summary["n_documents"])

    @property
    def n_duplicates(self) -> int:
        return int(self.summary["n_duplicates"])
