"""Deduplications of a curation that are decided together, whose tables later passes use to remove and to replay."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tamis.curation.steps import CorpusStep
from tamis.dedup.alarms import LossLimit
from tamis.dedup.kinds import DedupKind
from tamis.dedup.pass_runner import PassRunner, WorkflowSettings
from tamis.dedup.passes import CurationStep, DedupResult, Passes
from tamis.dedup.solver_task import CompareCandidates, WriteReplayTables
from tamis.dedup.state import QUARANTINED, REPLAY_FOLDER, Summary
from tamis.dedup.workflow import Host, Workflow
from tamis.errors import TamisError
from tamis.sizes import parse_fraction
from tamis.stages.base import ProcessingStage
from tamis.stores.run_locations import run_dir_of

if TYPE_CHECKING:
    from tamis.curation.runner import CurationRun

_EQUAL_TABLES = "duplicates_equal"
_STEP_WEIGHT = 0.25  # of each step, in units of a pass that makes keys


class Group:
    """One deduplication, or an exact one and the fuzzy one after it, decided by one workflow.

    `labels`: of the steps before them, whose verdicts later passes replay.
    """

    def __init__(self, run: CurationRun, number: int) -> None:
        self.number = number
        self._plan = run.plan.groups[number]
        self.steps: list[CorpusStep] = [run.curation.steps[i] for i in self._plan.decides]  # type: ignore[misc]
        self.labels = run.replay.labels_of(self._plan.before)
        self.workflow = Workflow(self._passes(run), host=Host(self._runner(run), run.guard, self._check_loss))

    # -- the workflow -------------------------------------------------------------------------------------------------
    def _runner(self, run: CurationRun) -> PassRunner:
        whole = run.settings
        of_passes = {name: value for name, value in whole.of_passes.items() if name != "keep_rejected"}
        settings = WorkflowSettings(of_passes)
        if self.number == 0:  # shards and a merge are about the first pass
            settings.shard, settings.merge = whole.shard, whole.merge
            settings.fresh = whole.fresh and whole.shard is not None

        return PassRunner(run.session, settings, run.runner.progress, self.name if len(run.plan.groups) > 1 else "")

    def _passes(self, run: CurationRun) -> Passes:
        folder = os.path.join(run.work_path, str(self.number))
        workflow = self.steps[-1].workflow(folder)
        passes: Passes = workflow.passes()
        decision = passes.decision
        identity = {k: v for k, v in passes.identity.items() if k not in ("input", "input_filetype", "perform_removal")}
        if len(self.steps) == 2:
            assert isinstance(decision, CompareCandidates)
            decision = replace(decision, equal_tables=os.path.join(run_dir_of(folder), _EQUAL_TABLES))
            # The limit of loss changes no decision.
            exact = {k: v for k, v in self.steps[0].parameters().items() if k != "max_source_loss"}
            identity["exact"] = exact
        judges = [stage.name for stage, _ in passes.keys if stage.traits.judges_input]
        return replace(
            passes,
            source=run.reader_for_replay,
            decision=decision,
            writer=None,
            identity={"steps": self.step_names, **identity},
            step=CurationStep(
                run.output.path,
                lambda name: self._stages_before(run, name),
                [WriteReplayTables(self.labels, judges)],
                self._plan.is_as_read,
                lambda name: run.hints_of(self._plan, name),
            ),
            choose=None if passes.choose is None else _band_choice(run, workflow),
        )

    def _stages_before(self, run: CurationRun, name: str) -> list[ProcessingStage[Any, Any]]:
        """Return the stages between the reader and the last stage of a pass."""
        if name == "keys-0":
            before: list[Any] = [run.curation.steps[i] for i in self._plan.before]
            return [*run.replay.stages(), *before]
        if name == "texts":
            return run.replay.text_stages(self.workflow.work.table("candidates"), self._plan.text_makers)
        return run.replay.stages(self)

    def plan_passes(self, n_before: int) -> None:
        """Record which passes are to come. `n_before`: of the steps that the first one runs."""
        labels = self.workflow.procedure.plan(self.workflow)
        self.workflow.runner.plan(labels, {"keys-0": 1 + _STEP_WEIGHT * n_before})

    def decide(self) -> dict[str, Summary]:
        """Run all passes up to the decision; return the counts of each deduplication, by the name of its step."""
        summary = self.workflow.run_passes().summary
        self.workflow.work.locate()
        if len(self.steps) == 1:
            return {self.name: summary}
        equal = self._equal_summary()
        if equal is None:
            raise TamisError(f"{self.name}: the decision on equal documents is gone; start over with fresh (--fresh)")
        first, second = self.step_names
        remaining: Summary = {**summary, "n_documents": summary["n_documents"] - equal["n_duplicates"]}
        shown: Any = {k: v for k, v in equal.items() if not k.endswith("_by_file")}
        return {first: shown, second: remaining}

    def run_shard(self) -> DedupResult:
        """Compute the keys of one part of the input."""
        return self.workflow.run_shard()

    def _equal_summary(self) -> Summary | None:
        return self.workflow.work.state.equal_summary.read()

    def _check_loss(self, summary: Summary) -> None:
        """Check each step against its own limit.

        Where two steps are decided together, the limit of the second is a share of what the first one leaves.
        """
        passes, tables = self.workflow.passes, self.tables_of_duplicates()
        paths = self.workflow.work.state.paths()
        if len(self.steps) == 2:
            first, equal = self.step_names[0], self._equal_summary()
            assert equal is not None
            exact: Any = self.steps[0]
            share = parse_fraction(exact.max_source_loss, first)
            LossLimit(share, passes.counted, first).check(paths, equal, tables[first])
            summary = remaining_after(equal, summary)
        name = self.step_names[-1]
        LossLimit(passes.max_source_loss, passes.counted, name).check(paths, summary, tables[name])

    # -- for other parts of the curation ------------------------------------------------------------------------------
    @property
    def name(self) -> str:
        return "+".join(self.step_names)

    @property
    def step_names(self) -> list[str]:
        return [step.name for step in self.steps]

    @property
    def kind(self) -> DedupKind:
        return self.steps[-1].kind

    def has_commits(self) -> bool:
        """Return True if any pass of this or an earlier call committed something."""
        self.workflow.work.locate()
        return self.workflow.has_commits()

    def locate(self) -> None:
        """Find the tables, possibly in the scratch folder, including those that an earlier call wrote."""
        self.workflow.work.locate()

    def replay_table(self, label: str) -> str:
        """Return the table of the documents that the step with this label dropped."""
        return self.workflow.work.table(f"{REPLAY_FOLDER}/{self.labels.index(label)}")

    def quarantine_table(self) -> str | None:
        """Return the table of documents on which a step failed, or None if there are none."""
        counts = self.workflow.work.state.replay_counts.read()
        if counts is None or not counts.n_quarantined:
            return None
        return self.workflow.work.table(f"{REPLAY_FOLDER}/{QUARANTINED}")

    def removals(self) -> list[ProcessingStage[Any, Any]]:
        """Return the stages that remove what was decided, one for each step."""
        work = self.workflow.work
        tables = ["removal"] if len(self.steps) == 1 else ["equal_removal", "removal"]
        pairs = zip(self.steps, tables, strict=True)
        return [step.removal(work.table(table), work.state.paths_file) for step, table in pairs]

    def tables_of_duplicates(self) -> dict[str, str]:
        """Return the folder with the tables for people of each step, by its name."""
        last = self.workflow.duplicates
        folders = [last] if len(self.steps) == 1 else [os.path.join(os.path.dirname(last), _EQUAL_TABLES), last]
        return dict(zip(self.step_names, folders, strict=True))


def remaining_after(first: Summary, summary: Summary) -> Summary:
    """Return the summary with the documents by file that a deduplication before it leaves."""
    removed = zip(summary["documents_by_file"], first["duplicates_by_file"], strict=True)
    return {**summary, "documents_by_file": [n - n_removed for n, n_removed in removed]}


def _band_choice(run: CurationRun, workflow: Any) -> Callable[[str], int]:
    """Return the function that chooses bands per pass: all, or as many as the disk of the folder has room for."""
    from tamis.dedup import planning
    from tamis.memory.budget import find_budget

    def choose(folder: str) -> int:
        budget_bytes = find_budget(run.settings.of_passes.get("memory"), os.environ).bytes
        bands, rows, per_pass = workflow.bands()
        return planning.make_plan(run.curation.files(), bands, rows, per_pass, budget_bytes, folder).bands_per_pass

    return choose
