"""What a run did, for whoever asked for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tamis.engine.ledger import Ledger
from tamis.engine.run.output.directory import RunDir

Progress = Callable[[dict[str, Any]], None]
"""Called with the state of a run some times a second."""


@dataclass
class RunResult:
    """What a run did. `status`: finished, sampled (a share was delivered), or already (nothing was left to do)."""

    status: str
    run_dir: str
    output: str
    ledger: Ledger = field(default_factory=Ledger)
    share: float = 1.0
    budget_bytes: int = 0
    peak_bytes: int = 0  # as somebody outside counts it (sum of PSS): all processes of the run, from first to last
    caller_bytes: int = 0  # of a program that called the run: told, not counted; 0 where it is counted
    seconds: float = 0.0
    counters: dict[str, int] = field(default_factory=dict)
    exit_code: int = 0
    message: str = ""
    has_writer: bool = True
    n_files: int = 0  # output files; `files` describes them, but reads the whole log for it
    prediction: dict[str, Any] = field(default_factory=dict)  # expected against measured (budget/expectation.py)
    read_bytes: int = 0  # decoded, by this attempt; the ledger has those of all attempts
    report: str = ""  # the page that tells all this; nothing where none was written
    passed_over: list[dict[str, Any]] = field(default_factory=list)  # found and not read: reason, n, examples
    leaks: list[dict[str, Any]] = field(default_factory=list)  # events `leak`: text, stage, kind, proven, ...
    alerts: dict[str, Any] = field(default_factory=dict)  # n, by rule, undelivered, log; empty where they are off
    first_failure: str = ""  # the first document on which a stage raised: stage, exception, place, line of code

    @property
    def files(self) -> list[dict[str, Any]]:
        """What was written: name, rows, bytes and content hash of every file, in input order."""
        return list(RunDir(self.output).files().written())
