"""Decontamination: find what a corpus shares with evaluation sets and remove it, in one call."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tamis import files
from tamis.dedup import state
from tamis.dedup.contamination.limits import ACTIONS, REPORT, Common, Limits
from tamis.dedup.contamination.sets import EvaluationSet, evaluation_sets, stat_of
from tamis.dedup.contamination.stages import FindOverlaps, RemoveContamination
from tamis.dedup.contamination.tasks import BuildTask, IndexFacts, index_folder
from tamis.dedup.kinds import CONTAMINATION
from tamis.dedup.options import UserWorkflow, absolute
from tamis.errors import RunConflict, UsageError, check_choice
from tamis.sizes import check_integer, is_integer, parse_fraction

if TYPE_CHECKING:
    from tamis.dedup.passes import KeyPass, Passes
    from tamis.dedup.workflow import Workflow

_MOST_WORDS = 60


@dataclass
class DecontaminationWorkflow(UserWorkflow):
    """Find runs of words that documents share with evaluation items, and remove them; `run()` does all passes.

    `against`: evaluation sets: a path, several, or mappings with `path`, `name` and `fields` (JSONL, JSON, Parquet,
    Arrow, or the folder of a dataset). `fields`: those that count, of sets that name none. Case, accents, punctuation
    and line breaks do not count. `words`: of an n-gram; items with fewer words match as a whole, from `short_words` on
    (0: never). A document is contaminated by an item if they share a run of at least `min_words` words (by default as
    many as an n-gram), and if it holds at least `min_share` of the item's n-grams. `common`: n-grams that more
    documents hold than this (a number, or a share, at least 100 documents; None: none) are excepted, and listed.
    `action`: "drop" contaminated documents, "cut" the runs out of them, or only "report". A document of which fewer
    than `min_left_chars` characters are left is dropped. `max_source_loss`: stop before anything is removed where a
    folder (or file) would lose more than this share of its documents.
    """

    output_path: str
    input_path: Any = None
    against: Any = None
    input_filetype: str | None = None
    input_blocksize: str | int | None = None
    input_file_extensions: Sequence[str] | None = None
    read_kwargs: Mapping[str, Any] | None = None
    text_field: str = "text"
    fields: Sequence[str] = ()
    words: int = 13
    short_words: int = 8
    min_words: int | None = None
    min_share: float | str = 0.0
    common: float | int | str | None = "0.01%"
    action: str = "drop"
    min_left_chars: int = 1
    perform_removal: bool = True
    output_filetype: str | None = None
    max_source_loss: float | str = 0.95

    def __post_init__(self) -> None:
        owner = CONTAMINATION.title
        self.output_path = absolute(self.output_path, "output_path")
        self.input_path = None if self.input_path is None else absolute(self.input_path, "input_path") or None
        self.max_source_loss = parse_fraction(self.max_source_loss, "max_source_loss")
        check_choice(f"{owner}: action", self.action, ACTIONS)
        check_integer(self.words, f"{owner}: words", 1)
        check_integer(self.short_words, f"{owner}: short_words", 0)
        check_integer(self.min_left_chars, f"{owner}: min_left_chars", 1)
        if not self.short_words <= self.words <= _MOST_WORDS:
            raise UsageError(
                f"{owner}: words must be at most {_MOST_WORDS}, and short_words no more than words; "
                f"got {self.words} and {self.short_words}"
            )
        if self.min_words is not None:
            check_integer(self.min_words, f"{owner}: min_words", self.words)
        share = parse_fraction(self.min_share, f"{owner}: min_share") if self.min_share else 0.0
        self.limits = Limits(self.words if self.min_words is None else self.min_words, share)
        self._common = _parse_common(self.common)
        self.sets: list[EvaluationSet] = evaluation_sets(self.against, self.fields)
        self._input()

    def _removes(self) -> bool:
        return self.perform_removal and self.action != REPORT

    def passes(self) -> Passes:
        from tamis.dedup.key_comparison import KeyComparison
        from tamis.dedup.passes import Passes
        from tamis.dedup.solver_task import DecideContamination

        identity = {
            "input": self.input_path,
            "input_filetype": self.input_filetype,
            "text_field": self.text_field,
            "sets": [[s.name, s.path, s.fields] for s in self.sets],
            "files_of_sets": stat_of(self.sets),
            "words": self.words,
            "short_words": self.short_words,
            "limits": vars(self.limits),
            "common": vars(self._common),
            "action": self.action,
            "min_left_chars": self.min_left_chars,
            "perform_removal": self.perform_removal,
        }
        return Passes(
            CONTAMINATION.title,
            self._input().reader,
            [(FindOverlaps("", self.text_field), [])],
            self.output_path,
            DecideContamination(self.limits, self._common, self.text_field, self.action),
            self._input().writer(self.output_path, self.output_filetype) if self._removes() else None,
            CONTAMINATION,
            identity=identity,
            max_source_loss=float(self.max_source_loss) if self.action == "drop" else 1.0,
            remove=self.removal,
            procedure=KeyComparison(self._prepare),
        )

    def removal(self, table: str, _paths: str) -> RemoveContamination:
        """Return the stage of the last pass, which drops or cuts what a table lists."""
        index = index_folder(os.path.dirname(table))
        facts = _read_facts(index)
        return RemoveContamination(
            table,
            index,
            self.limits,
            self.text_field,
            self.action,
            self.min_left_chars,
            facts.fingerprint if facts is not None else "",
        )

    def _prepare(self, workflow: Workflow) -> list[KeyPass]:
        """Have the index built, unless an earlier call did; return the stage that uses it."""
        folder = index_folder(workflow.work.path)
        facts = _read_facts(folder)
        if facts is None:
            files.own_folder(folder, "start over with fresh (--fresh)")
            task = BuildTask(self.sets, self.words, self.short_words, workflow.settings.budget_bytes())
            workflow.runner.run_task(folder, task, "tamis.dedup.contamination.build", "evaluation")
            facts = _read_facts(folder)
            assert facts is not None
        elif facts.stat != stat_of(self.sets):
            raise RunConflict(
                f"{self.output_path}: the evaluation sets changed since this run began; restore them, or start over "
                "with fresh (--fresh)"
            )
        return [(FindOverlaps(folder, self.text_field, facts.fingerprint), [])]


def _read_facts(folder: str) -> IndexFacts | None:
    path = os.path.join(folder, "index.json")
    data = files.read_json(path)
    return None if data is None else state.from_dict(IndexFacts, data, path)


def _parse_common(value: Any) -> Common:
    if value is None or value in ("none", "off"):
        return Common()
    if is_integer(value) or (isinstance(value, str) and value.isdecimal()):
        check_integer(int(value), f"{CONTAMINATION.title}: common", 1)
        return Common(n_documents=int(value))
    return Common(share=parse_fraction(value, f"{CONTAMINATION.title}: common"))
