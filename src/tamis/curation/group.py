"""Deduplications of a curation that are decided together, as a workflow that keeps its tables for the passes behind it."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tamis.backends.alerting import OFF
from tamis.curation.result import pass_facts
from tamis.curation.steps import Deduplication
from tamis.dedup.kinds import DedupKind
from tamis.dedup.passes import Passes, StepOf
from tamis.dedup.workflow import Workflow
from tamis.errors import TamisError
from tamis.pipeline import Pipeline
from tamis.sizes import parse_fraction
from tamis.stages.base import ProcessingStage
from tamis.stages.io import ReadHints, with_hints

if TYPE_CHECKING:
    from tamis.curation.runner import CurationRun

_EQUAL = "duplicates_equal"


class GroupWorkflow(Workflow):
    """`steps`: the deduplications, one, or an exact one and the fuzzy one behind it; `labels`: of the steps before them, whose verdicts are
    remembered."""

    def __init__(
        self, run: CurationRun, number: int, passes: Passes, steps: Sequence[Deduplication], labels: list[str]
    ) -> None:
        settings = {k: v for k, v in run.settings.items() if k != "keep_rejected"}
        settings["alerts"] = OFF  # the watch is that of the curation
        super().__init__(passes, settings, lambda state: run.progress({**state, "step": number}), run.executor)
        self.number, self.steps, self.labels, self._run = number, list(steps), labels, run
        self.took: list[dict[str, Any]] = []
        self._guard = run.guard

    @property
    def name(self) -> str:
        return "+".join(self.step_names)

    @property
    def step_names(self) -> list[str]:
        return [step.name for step in self.steps]

    @property
    def kind(self) -> DedupKind:
        return self.steps[-1].kind

    # -- for the passes behind it ---------------------------------------------------------------------------------------------
    def find_work(self) -> None:
        """Locate the group's tables, possibly in the scratch folder, including those that an earlier call wrote."""
        self.work, self.far = self._told_work() or self.work, self._told_far()

    def remembered(self, label: str) -> str:
        """Return the table of the documents that the step with this label dropped."""
        return self.table_of(f"remembered/{self.labels.index(label)}")

    def aside(self) -> str | None:
        """Return the table of documents on which a step failed, or None if there are none."""
        return self.table_of("remembered/aside") if (self._told("remembered.json") or {}).get("aside") else None

    def removals(self) -> list[ProcessingStage[Any, Any]]:
        paths = os.path.join(self.work, "paths.json")
        tables = ["removal"] if len(self.steps) == 1 else ["equal_removal", "removal"]
        pairs = zip(self.steps, tables, strict=True)
        return [step.removal(self.table_of(table), paths) for step, table in pairs]

    def tables_of_duplicates(self) -> dict[str, str]:
        folders = [self.duplicates] if len(self.steps) == 1 else [os.path.join(self.run_dir, _EQUAL), self.duplicates]
        return dict(zip(self.step_names, folders, strict=True))

    def summary_of_equal(self) -> dict[str, Any]:
        return {k: v for k, v in (self._told("equal_removal.json") or {}).items() if not k.endswith("_by_file")}

    def is_clean(self) -> bool:
        return bool(self._told("checked.json"))

    def has_commits(self) -> bool:
        self.find_work()
        return super().has_commits()

    # -- running ----------------------------------------------------------------------------------------------------------------
    def run(self) -> Any:
        result = super().run()
        self.find_work()
        return result

    @contextlib.contextmanager
    def _processes(self) -> Iterator[None]:
        """Use the processes of the whole curation, which also ends them."""
        self.warm_process = self._run.warm_process
        yield

    def _execute(self, pipeline: Pipeline, label: str, **more: Any) -> Any:
        began_s = time.monotonic()
        result = super()._execute(pipeline, label, **more)
        self.took.append(pass_facts(f"{label} of {self.name}", result, time.monotonic() - began_s))
        return result

    def _same(self, earlier: dict[str, Any] | None) -> None:
        super()._same(None if earlier is None else without_limit(earlier))

    def _check_loss(self, summary: dict[str, Any]) -> None:
        """Check each step against its own limit.

        Where two steps are decided together, the limit of the second is a share of what the first one leaves.
        """
        folders, limit = self.tables_of_duplicates(), self.passes.max_source_loss
        if len(self.steps) == 1:
            self._refuse_loss(summary, limit, folders[self.name], self.name)
            return
        (first, second), equal = self.step_names, self._told("equal_removal.json")
        first_step: Any = self.steps[0]
        self._refuse_loss(equal, parse_fraction(first_step.max_source_loss, first), folders[first], first)
        left = [n - gone for n, gone in zip(summary["documents_by_file"], equal["duplicates_by_file"], strict=True)]
        self._refuse_loss({**summary, "documents_by_file": left}, limit, folders[second], second)


def without_limit(identity: dict[str, Any]) -> dict[str, Any]:
    """Return the identity of a group without the loss limit of its exact deduplication.

    The limit changes no decision; earlier versions recorded it.
    """
    if "exact" not in identity:
        return identity
    return {**identity, "exact": {k: v for k, v in identity["exact"].items() if k != "max_source_loss"}}


def make_group(run: CurationRun, number: int) -> GroupWorkflow:
    group = run.plan.groups[number]
    steps: list[Any] = [run.curation.steps[i] for i in group.decides]
    folder = os.path.join(run.work, str(number))
    workflow = steps[-1].workflow(folder)
    passes: Passes = workflow.passes()
    labels = run.replay.remembered_labels(group.before)

    def before(name: str) -> list[ProcessingStage[Any, Any]]:
        own: list[Any] = [run.curation.steps[i] for i in group.before]
        if name == "keys-0":
            return [*run.replay.stages(), *own]
        if name == "texts":
            return run.replay.text_stages(made.table_of("candidates"), group.text_makers)
        return run.replay.stages(made)

    task = {
        **passes.task,
        "remember": labels,
        "judges": [stage.name for stage, _ in passes.keys if stage.traits.judges_input],
    }
    identity = {k: v for k, v in passes.identity.items() if k not in ("input", "input_filetype", "perform_removal")}
    if len(steps) == 2:
        task["equal_apart"] = os.path.join(folder, "_tamis", _EQUAL)
        identity = without_limit(identity | {"exact": steps[0].parameters()})
    passes = replace(
        passes, source=_source(run), task=task, writer=None, identity={"steps": [s.name for s in steps], **identity},
        step=StepOf(run.output, before, ["remember"], group.is_as_read),
        choose=_choose(run, workflow) if passes.choose is not None else None,
    )  # fmt: skip
    made = GroupWorkflow(run, number, passes, steps, labels)
    return made


def _source(run: CurationRun) -> Callable[[], Any]:
    """Makes the reader of each pass, whose verdicts are to tell later passes where records lie."""

    def make() -> Any:
        return with_hints(run.curation.source(), ReadHints(keep_hashes=True))

    return make


def _choose(run: CurationRun, workflow: Any) -> Any:
    """Bands per pass: all, or as many as the disk of the folder has room for."""
    from tamis.dedup import planning
    from tamis.memory.budget import find_budget

    def choose(work: str) -> int:
        found = run.curation.files()
        budget = find_budget(run.settings.get("memory"), os.environ).bytes
        bands, rows, per_pass = workflow.bands()
        return planning.make_plan(found, bands, rows, per_pass, budget, work).bands_per_pass

    return choose


def decided(group: GroupWorkflow, summary: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Counts of each deduplication of the group, by the name of its step."""
    if len(group.steps) == 1:
        return {group.step_names[0]: summary}
    equal = group.summary_of_equal()
    if not equal:
        raise TamisError(f"{group.name}: the decision on equal documents is gone; start over with fresh (--fresh)")
    n_equal = int(equal["n_duplicates"])
    return {
        group.step_names[0]: equal,
        group.step_names[1]: {**summary, "n_documents": int(summary["n_documents"]) - n_equal},
    }
