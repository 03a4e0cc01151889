"""The facts of a report, gathered from the run directory: manifest, settings, database, quarantine."""

from __future__ import annotations

from dataclasses import field
from pathlib import Path

from tamis._dataclasses import dataclass
from tamis.engine.ledger import Ledger
from tamis.errors import UsageError
from tamis.formats.input_files.skipped import SkippedEntry
from tamis.observe.drops import Drop, drops_of
from tamis.observe.quarantine import QuarantineEntry, read_entries
from tamis.observe.report.corpus import Corpus, read_corpus
from tamis.observe.snapshot import Snapshot, SnapshotLimits, read_snapshot
from tamis.observe.thumbnails.sheet import thumbnail_grids
from tamis.observe.verdicts import PlannedRule, input_paths, rules_of

MAX_ENTRIES = 100_000  # quarantine entries looked at
_EXAMPLES_PER_REASON = 3
_MAX_REASONS = 50
_MAX_PROBLEMS = 50


@dataclass
class Facts:
    """Everything the page shows."""

    run_dir: Path
    run: Snapshot
    ledger: Ledger | None = None
    drops: list[Drop] = field(default_factory=list)
    reasons: dict[tuple[str, str], list[QuarantineEntry]] = field(default_factory=dict)
    n_by_reason: dict[tuple[str, str], int] = field(default_factory=dict)
    n_entries: int = 0
    problems: list[str] = field(default_factory=list)
    skipped_files: list[SkippedEntry] = field(default_factory=list)
    thumbnails: str = ""  # grids of images or clips, as markup
    rules: list[PlannedRule] = field(default_factory=list)
    corpus: Corpus = field(default_factory=Corpus)

    @property
    def reads_texts(self) -> bool:
        """True if texts of the input may be shown."""
        return self.run.reads_texts

    @property
    def text_field(self) -> str:
        return self.run.about.text_field or "text"


def gather(folder: Path) -> Facts:
    facts = Facts(folder, read_snapshot(folder, SnapshotLimits(n_points=400, n_moments=150, n_events=150)))
    facts.problems = facts.run.problems
    facts.thumbnails = thumbnail_grids(folder) if facts.run.shows_documents else ""
    facts.rules = rules_of(folder) or []
    if facts.run.shows_documents:
        facts.corpus = read_corpus(folder, lambda: _input_paths(folder, facts.problems))
    manifest = facts.run.manifest
    if manifest is not None:
        facts.ledger, facts.skipped_files = manifest.ledger, manifest.skipped_files
    if facts.ledger is not None:
        facts.drops = drops_of(facts.ledger, lambda: _input_paths(folder, facts.problems))
    for entry in read_entries(folder / "quarantine", facts.problems):
        facts.n_entries += 1
        if facts.n_entries > MAX_ENTRIES:
            break
        key = (entry.reason, entry.stage)
        if key in facts.n_by_reason or len(facts.n_by_reason) < _MAX_REASONS:
            facts.n_by_reason[key] = facts.n_by_reason.get(key, 0) + 1
            examples = facts.reasons.setdefault(key, [])
            if len(examples) < _EXAMPLES_PER_REASON:
                examples.append(entry)
    if len(facts.problems) > _MAX_PROBLEMS:
        more = len(facts.problems) - _MAX_PROBLEMS
        facts.problems[_MAX_PROBLEMS:] = [f"and {more:,} more problems of this kind"]
    return facts


def _input_paths(folder: Path, problems: list[str]) -> list[str]:
    try:
        return input_paths(folder)
    except UsageError as exc:
        problems.append(str(exc))
        return []
