"""The results of commands as plain values: what `--json` prints, and what summaries for the terminal are made from.

Imported by type checkers alone.
"""

from __future__ import annotations

from typing import TypedDict

from tamis.dedup.state import Summary
from tamis.engine.run_record import RunCost
from tamis.engine.schema import AlertCounts
from tamis.forecast.prediction import Prediction
from tamis.formats.input_files.skipped import SkippedReport
from tamis.observe.drops import DropSummary


class StageSummary(TypedDict):
    """One stage in the summary of a run."""

    name: str
    n_in: int
    n_out: int
    dropped: dict[str, int]  # documents by rule
    n_quarantined: int
    n_consumed: int
    n_derived: int
    seconds: float
    metrics: dict[str, float]


class RunSummary(RunCost, total=False):
    """A finished run as `--json` prints it, and as the summary for the terminal is made from."""

    status: str
    exit_code: int
    message: str
    output: str
    run_dir: str
    report: str
    share: float
    n_files: int
    n_records: int
    n_written: int
    n_dropped: int
    n_quarantined: int
    n_unread: int
    n_unwritten: int
    n_bad_ranges: int
    lost_bytes: int
    n_not_sampled: int
    n_blank_lines: int
    skipped_records: dict[str, int]  # by reason
    written_bytes: int
    content_hash: str
    stages: list[StageSummary]
    budget_bytes: int
    caller_bytes: int
    seconds_now: float  # of this session
    read_bytes_now: int
    counters: dict[str, int]
    prediction: Prediction
    skipped_files: list[SkippedReport]
    drops: list[DropSummary]
    alerts: AlertCounts


class PassSummary(TypedDict):
    """One pass or decision of a run, as the run record has it."""

    label: str
    title: str
    weight: float
    status: str
    share: float
    seconds: float
    peak_bytes: int
    read_bytes: int
    written_bytes: int
    documents: int


class PlantedCheck(TypedDict):
    """A number that a demo planted, and what the run counted."""

    what: str
    planted: int
    found: int


class CurationSummary(RunSummary, total=False):
    """A curation as `--json` prints it: its last pass, which covers all steps, and the figures of the whole."""

    deduplications: dict[str, Summary]  # by step
    passes: list[PassSummary]
    scratch_bytes: int
    left_out: list[str]  # sentences on steps and sources that were left out
    n_documents: int  # of a shard
    n_tokens: int
    n_sequences: int
    n_padding: int
    checks: list[PlantedCheck]  # of a demo


class DedupSummary(Summary, RunCost, total=False):
    """A deduplication or decontamination as `--json` prints it: the figures of its kind, its cost and its alarms."""

    status: str
    output: str
    duplicates: str
    alarms: list[str]
    alerts: AlertCounts
    # of what is cut from documents
    unit: str
    cut_bytes: int
    n_dropped: int
