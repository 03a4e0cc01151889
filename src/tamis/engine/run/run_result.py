"""The result of a run, as its caller gets it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

from tamis._dataclasses import dataclass
from tamis.engine.ledger import Ledger
from tamis.engine.run.output.directory import RunDir
from tamis.engine.run_record import PassWork, RunRecord
from tamis.engine.schema import AlertCounts, CommitRecord, CommittedFile, LeakReport, ReplaceRecord
from tamis.forecast.prediction import Prediction
from tamis.formats.input_files.skipped import SkippedEntry

Show = Callable[[str], None]
"""Takes lines that a run prints besides its progress (console.py)."""


@dataclass
class RunResult:
    """The result of a run. `status`: finished, sampled (a share was delivered), or already (nothing was left to do)."""

    status: str
    run_dir: str
    output: str
    ledger: Ledger = field(default_factory=Ledger)
    share: float = 1.0
    budget_bytes: int = 0
    peak_bytes: int = 0  # as an observer outside counts it (sum of PSS): all processes of the run, from first to last
    caller_bytes: int = 0  # of a program that called the run: reported, not counted; 0 where it is counted
    seconds: float = 0.0
    counters: dict[str, int] = field(default_factory=dict)
    exit_code: int = 0
    message: str = ""
    has_writer: bool = True
    n_files: int = 0  # output files; `files` describes them, but reads the whole log for it
    prediction: Prediction = field(default_factory=Prediction)  # expected against measured (budget/expectation.py)
    read_bytes: int = 0  # decoded, by this attempt; the ledger has those of all attempts
    report: str = ""  # path of the report page, if one was written
    skipped_files: list[SkippedEntry] = field(default_factory=list)  # files that were not read: reason, n, examples
    leaks: list[LeakReport] = field(default_factory=list)
    alerts: AlertCounts = field(default_factory=lambda: AlertCounts())
    work: PassWork | None = None  # of the workers of this attempt
    record: RunRecord | None = None  # of the whole run, all sessions; None for one pass of a workflow
    first_failure: str = ""  # the first document on which a stage raised: stage, exception, location, line of code

    duplicate_labels: list[str] = field(default_factory=list)  # of the stages that remove duplicates
    # Names of what lists, reads and writes the files, "" where there is none; and the input files.
    io_names: tuple[str, str, str] = ("", "", "")
    input_paths: list[str] = field(default_factory=list)

    @property
    def files(self) -> list[CommittedFile]:
        """The files written, in input order: output files, and those that stages of the user listed."""
        return list(RunDir(self.output).files().written())

    def sources(self) -> dict[str, list[str]]:
        """Return the input files that the documents of each output file come from."""
        numbers: dict[str, set[int]] = {}
        for record in RunDir(self.output).log.read():
            if isinstance(record, CommitRecord):
                covered = {done.file for done in record.covered}
                numbers |= {file.name: covered for file in record.files}
            elif isinstance(record, ReplaceRecord):
                covered = set().union(*(numbers.pop(name, set()) for name in record.old))
                numbers |= {file.name: covered for file in record.files}
        n = len(self.input_paths)
        return {name: [self.input_paths[i] for i in sorted(files) if i < n] for name, files in numbers.items()}
