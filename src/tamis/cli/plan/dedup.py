"""`tamis plan dedup KIND [IN]`, and `tamis plan` for recipes with such a workflow."""

from __future__ import annotations

import os
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from tamis.cli.parsing.arguments import CommandExit
from tamis.cli.plan.machine import Dataset, PlannedMachine
from tamis.cli.plan.show import budget_words, free_words, guide_line, range_words, sizes, times, too_small_line
from tamis.cli.plan.smallest import SmallestBudget, smallest_of_dedup
from tamis.cli.terminal.show import print_folded, print_json, print_table
from tamis.dedup import planning
from tamis.dedup.expected import conditions, forecast, profile_key
from tamis.dedup.kinds import KINDS
from tamis.errors import BudgetError, UsageError
from tamis.forecast import shipped_table
from tamis.forecast.experience import Experience
from tamis.forecast.prediction import Prediction
from tamis.formats.input_files.listing import FileList
from tamis.formats.input_files.skipped import skipped_lines
from tamis.memory.budget import find_budget
from tamis.sizes import format_size
from tamis.stores.urls import absolute
from tamis.yaml_text import plain_scalar

_AMPLE = 1 << 60  # the disk of a machine that is only imagined


def workflow_of(words: Sequence[str], overrides: Mapping[str, str], imagined: bool) -> Any:
    """Return the workflow that `dedup WORDS` names; `overrides` are its parameters."""
    kinds = [name for name, kind in KINDS.items() if kind.has_plan]
    if not words or words[0] not in kinds or len(words) > 2:
        raise UsageError(f"expected: tamis plan dedup {'|'.join(kinds)} IN, or without IN and with --dataset-bytes")
    if len(words) == 1 and not imagined:
        raise UsageError(f"give the input (tamis plan dedup {words[0]} IN), or its size with --dataset-bytes")
    parameters = {k: plain_scalar(v) for k, v in overrides.items()}
    parameters = {"input_path": words[1] if len(words) == 2 else "planned", "output_path": "planned", **parameters}
    try:
        return KINDS[words[0]].load_workflow()(**parameters)
    except TypeError as exc:  # an unknown name
        raise UsageError(f"--set: {str(exc).rpartition(') ')[2] or exc}") from None


def show(
    workflow: Any,
    memory: Any,
    workers: int | None,
    where: PlannedMachine,
    dataset: Dataset | None,
    as_json: bool,
    scratch: str | os.PathLike[str] | None = None,
    may_run_trials: bool = True,
) -> None:
    """Show what a deduplication would need, next to the original's formula and guide.

    `scratch`: where its keys will be stored; `may_run_trials`: whether processes may be started to determine the
    smallest budget. Exit code 4 where the budget is smaller than that.
    """
    if not hasattr(workflow, "plan"):
        raise UsageError(f"{type(workflow).__name__} has no plan; run it")
    dedup_plan = _plan(workflow, memory, where, dataset, scratch)
    experience = Experience(profile_key(workflow.kind.title, workflow.profile_parameters()))
    decoded = dataset.decoded_bytes if dataset is not None else dedup_plan.input_bytes
    asked_for = conditions(dedup_plan, workers or where.cores, decoded)
    expected = forecast(
        dedup_plan, workflow.kind.figures, asked_for, experience, elsewhere=not where.is_this_machine, nodes=where.nodes
    )
    ranges = experience.remember_planned(asked_for, expected) if where.is_this_machine else expected.to_dict()
    smallest = smallest_of_dedup(workflow, may_run_trials and where.is_this_machine and dataset is None)
    fits = dedup_plan.budget_bytes >= smallest.n_bytes
    row = shipped_table.text_sizing(dedup_plan.input_bytes)
    guide = {"nodes": row.nodes, "gpus": row.gpus, "memory": row.memory}
    if as_json:
        figures = {
            "basis": experience.basis,
            "machine": str(where),
            "nodes": where.nodes,
            "forecast": ranges,
            "guide": guide,
        }
        figures |= {
            "smallest_budget_bytes": smallest.n_bytes,
            "smallest_is_measured": smallest.is_measured,
            "fits": fits,
        }
        print_json({**asdict(dedup_plan), **figures})
        _end(fits)
        return
    rows = _rows(dedup_plan, where, scratch, ranges, smallest, has_files=dataset is None)
    if not fits:
        rows = [r for r in rows if r[0] not in ("peak memory", "time")]
    print_table("Plan", ["", ""], rows)
    about = [f"from {experience.basis}; {range_words(ranges)}", guide_line(row.size, guide)]
    print_folded(
        [*about, *skipped_lines(dedup_plan.skipped_files), *([] if fits else [too_small_line(smallest.n_bytes)])]
    )
    _end(fits)


def _rows(
    plan: planning.DedupPlan,
    where: PlannedMachine,
    scratch: str | os.PathLike[str] | None,
    forecast: Prediction,
    smallest: SmallestBudget,
    has_files: bool,
) -> list[tuple[str, str]]:
    """Return the lines of the table; `has_files`: the input is not only imagined."""
    each = " on each node" if where.nodes > 1 else ""
    location = f" in {scratch}" if scratch else ""
    free = "" if plan.free_bytes >= _AMPLE else location + free_words(plan.free_bytes)
    n_passes = plan.n_key_passes + plan.n_other_passes
    rows = [
        ("input", format_size(plan.input_bytes) + (f" in {plan.n_files:,} files" if has_files else "")),
        ("documents", f"about {plan.n_documents:,}"),
        ("machine", str(where)),
        ("passes over the input", f"{n_passes} at most"),
        ("scratch for keys", sizes(forecast["scratch_bytes"]) + free),
        ("memory budget", budget_words(plan.budget_bytes, *smallest) + each),
        ("peak memory", sizes(forecast["peak_bytes"]) + each),
        ("memory to decide", f"about {format_size(plan.decision_bytes)}"),
        ("parts of the key space", f"{plan.n_parts_per_band}"),
        ("time", times(forecast["seconds"])),
    ]
    if plan.n_bands:
        rows.insert(4, ("bands per pass", _bands_words(plan)))
        shown = format_size(plan.original_formula_bytes)
        rows.append(
            ("GPU memory there", f"{shown}, by NeMo Curator's 8 bytes x hashes x documents x bands per pass / bands")
        )
    return rows


def _bands_words(plan: planning.DedupPlan) -> str:
    """Say how many bands one pass makes and, where that is not all of them, what it costs and saves."""
    words = f"{plan.bands_per_pass} of {plan.n_bands}"
    if plan.n_key_passes == 1:
        return words
    saved = plan.n_documents * planning.KEY_BYTES * (plan.n_bands - plan.bands_per_pass)
    return (
        f"{words}: reads the input {plan.n_key_passes} times for keys instead of once; saves {format_size(saved)} of "
        "disk, no memory"
    )


def _end(fits: bool) -> None:
    if not fits:
        raise CommandExit(BudgetError.exit_code)


def _plan(
    workflow: Any, memory: Any, where: PlannedMachine, dataset: Dataset | None, scratch: str | os.PathLike[str] | None
) -> planning.DedupPlan:
    budget = memory if memory is not None else None if where.is_this_machine else where.budget_bytes
    if dataset is None:
        dedup_plan: planning.DedupPlan = workflow.plan(budget, absolute(scratch) if scratch else None)
        return dedup_plan
    usual = planning.USUAL_DOCUMENT_BYTES  # as a file counts that is not there
    n_documents = max(1, dataset.decoded_bytes // (dataset.document_bytes or usual))
    files = FileList(["planned"], array("q", [n_documents * usual]))
    budget_bytes, folder = find_budget(budget, os.environ).bytes, absolute(scratch or ".")
    dedup_plan = workflow.plan_of(files, budget_bytes, folder, with_all_bands=not where.is_this_machine)
    free = dedup_plan.free_bytes if where.is_this_machine else _AMPLE
    return replace(dedup_plan, input_bytes=dataset.decoded_bytes, free_bytes=free)
