"""The plan of a curation: its passes, and what each will cost: bytes read and written, what it holds, seconds.

From the names of the input files, a little of some of them to guess how many documents there are, and the shipped table
of rates.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from tamis.cli.data.sampling import take_sample
from tamis.cli.parsing.arguments import CommandExit
from tamis.cli.plan.machine import Dataset, PlannedMachine, this_machine
from tamis.cli.plan.mix import PlannedMix, plan_mix, plan_sources
from tamis.cli.plan.show import budget_words, too_small_line
from tamis.cli.plan.smallest import smallest_of_curation
from tamis.cli.terminal.show import print_json, print_lines, print_table
from tamis.curation import Curation
from tamis.curation.planner import CurationPlan
from tamis.curation.result import CurationSizes
from tamis.curation.steps import Deduplication
from tamis.errors import BudgetError, TamisError
from tamis.forecast import shipped_table
from tamis.memory.budget import find_budget
from tamis.sizes import format_size

_READER, _WRITER = "tamis.stages.text.io.reader.", "tamis.stages.text.io.writer."
_NUMBER_BYTES = 24  # of each document, where sources have max_documents
_TEXT_SHARE = 0.05  # of the texts, which are compressed, where candidates are compared
_PARTITION_BYTES = 32 << 20
_TOKEN_SAMPLE_BYTES, _TOKEN_FILES = 2 << 20, 16
_HELD = 3  # what a worker holds of its partition: text, columns and what stages make of them
_ON_NODES = (
    "rates are those of the shipped table, taken to hold on every node; deciding between passes is done by one "
    "process on the driver's node "
    "(docs/guides/cluster.md), and is not in these times"
)


@dataclass(frozen=True)
class PassCost:
    """At most, where every document is left.

    `cpu_s`: of one core; `seconds`: on all of them. `held_bytes`: of memory, all processes of a node.
    """

    name: str
    read_bytes: int
    written_bytes: int
    held_bytes: int
    cpu_s: float
    seconds: float

    def describe(self, where: PlannedMachine) -> str:
        each, nodes = (" on each node", f"{where.nodes:,} nodes of ") if where.nodes > 1 else ("", "")
        return (
            f"reads {format_size(self.read_bytes)}, writes at most {format_size(self.written_bytes)}, holds "
            f"{format_size(self.held_bytes)}{each}, about "
            f"{self.seconds:,.1f} s on {nodes}{where.cores} cores"
        )


def show_passes(curation: Curation, as_json: bool) -> None:
    """Show the passes alone; estimates of documents and bytes are available for texts only."""
    _show(curation, curation.plan(), {"output": curation.output_path}, [], [], as_json)


def show_plan(
    curation: Curation,
    as_json: bool,
    settings: Mapping[str, Any],
    where: PlannedMachine | None = None,
    dataset: Dataset | None = None,
    may_run_trials: bool = True,
    may_try_mix: bool = True,
) -> None:
    """Print the plan of a curation; `settings`: of its run (memory and workers); `where`: the machines planned for.

    `dataset`: for data that is only imagined; `may_run_trials`: whether processes may be started to find the smallest
    budget, and models loaded; `may_try_mix`: to find out what a mix will be. Exit code 4 where the budget is smaller
    than that.
    """
    passes, sizes, where = curation.plan(), curation.sizes(), where or this_machine()
    memory, machine = settings.get("memory"), str(where)
    if settings.get("workers"):
        where = replace(where, cores=min(where.cores, int(settings["workers"])))
    if dataset is not None:
        sizes = _imagined_sizes(sizes, dataset)
    is_own = memory is not None or where.is_this_machine
    budget_bytes = find_budget(memory, os.environ).bytes if is_own else where.budget_bytes
    is_real = where.is_this_machine and dataset is None
    smallest = smallest_of_curation(curation, may_run_trials and is_real)
    fits = budget_bytes >= smallest.n_bytes
    costs = _costs(curation, passes, sizes, budget_bytes, where, dataset)
    tokens = _tokens(curation, sizes, may_run_trials)
    mixes = _mixes(curation, settings, may_run_trials) if may_try_mix and is_real and fits else {}
    each, remarks = (" on each node", [_ON_NODES]) if where.nodes > 1 else ("", [])
    lines = _input_lines(sizes, tokens, is_imagined=dataset is not None)
    lines.append(f"memory budget: {budget_words(budget_bytes, *smallest)}{each}")
    lines += [line for mix in mixes.values() for line in mix.lines()]
    if curation.writing.is_packed:
        lines.append("then files are put together anew: one more read and write of what stays")
    figures = {
        **sizes,
        "costs": [asdict(c) for c in costs],
        "output": curation.output_path,
        "tokens": None if tokens is None else asdict(tokens),
        "machine": machine,
        "nodes": where.nodes,
        "budget_bytes": budget_bytes,
        "fits": fits,
        "smallest_budget_bytes": smallest.n_bytes,
        "smallest_is_measured": smallest.is_measured,
        **{name: mix.to_dict() for name, mix in mixes.items()},
    }
    cost_texts = [cost.describe(where) for cost in costs]
    remarks += [] if fits else [too_small_line(smallest.n_bytes)]
    _show(curation, passes, figures, cost_texts, lines, as_json, remarks)
    if not fits:
        raise CommandExit(BudgetError.exit_code)


def _mixes(curation: Curation, settings: Mapping[str, Any], may_load_models: bool) -> dict[str, PlannedMix]:
    """Return what will be written of each group and of each source, as far as a curation mixes them."""
    mixes = {
        "mix": plan_mix(curation, settings, may_load_models),
        "sources": plan_sources(curation, settings, may_load_models),
    }
    return {name: mix for name, mix in mixes.items() if mix is not None}


def _input_lines(sizes: CurationSizes, tokens: PlannedTokens | None, is_imagined: bool) -> list[str]:
    """Return the lines on the input and on the keys made of it."""
    files = "" if is_imagined else f" in {sizes['n_files']:,} files"
    lines = [f"input: {format_size(sizes['input_bytes'])}{files}, about {sizes['n_documents']:,} documents"]
    lines += [] if tokens is None else [tokens.line()]
    return lines + [f"keys of {name}: at most {format_size(n)} on the disk" for name, n in sizes["key_bytes"].items()]


@dataclass(frozen=True)
class PlannedTokens:
    """The tokens of the input, estimated from a sample. `tokenizer`: "" for a quarter of the bytes."""

    n_tokens: int
    tokenizer: str

    def line(self) -> str:
        by = f"by the tokenizer {self.tokenizer}" if self.tokenizer else "a quarter of the bytes of texts"
        return f"tokens of the input: about {self.n_tokens:,}, {by}"


def _tokens(curation: Curation, sizes: CurationSizes, may_load: bool) -> PlannedTokens | None:
    """Estimate the tokens of the input; None if no document can be looked at. `may_load`: a tokenizer, too."""
    from tamis.stages.text.tokens.tokenizer import text_counter

    files, count = curation.files(), curation.token_count() if may_load else None
    try:
        counter = _quarter if count is None else text_counter(count.tokenizer)
        sample = take_sample(
            files.paths, list(files.sizes), _TOKEN_SAMPLE_BYTES, curation.text_field, _TOKEN_FILES, counter
        )
    except (TamisError, OSError):  # the run says what is wrong
        return None
    if not sample.n_documents:
        return None
    n_tokens = round(sample.n_tokens / sample.n_documents * int(sizes["n_documents"]))
    return PlannedTokens(n_tokens, "" if count is None else os.path.basename(count.tokenizer.rstrip("/")))


def _quarter(words: str) -> int:
    return (len(words.encode("utf-8", "surrogatepass")) + 3) // 4


def _imagined_sizes(sizes: CurationSizes, dataset: Dataset) -> CurationSizes:
    """Return the sizes for data that is only imagined: keys grow with the documents."""
    n = max(1, dataset.decoded_bytes // max(1, dataset.document_bytes or shipped_table.DOCUMENT_BYTES))
    keys = {name: n_bytes * n // max(1, int(sizes["n_documents"])) for name, n_bytes in sizes["key_bytes"].items()}
    return {"n_files": 0, "input_bytes": dataset.decoded_bytes, "n_documents": n, "key_bytes": keys}


def _show(
    curation: Curation,
    plan: CurationPlan,
    figures: dict[str, Any],
    costs: Sequence[str],
    lines: Sequence[str],
    as_json: bool,
    remarks: Sequence[str] = (),
) -> None:
    if as_json:
        print_json({**plan.to_dict(), **figures})
        return
    rows: list[tuple[str, str, str]] = []
    for i, planned_pass in enumerate(plan.passes):
        facts = [
            ("runs", ", ".join(planned_pass.runs)),
            ("uses earlier results of", ", ".join(planned_pass.remembers)),
            ("does again", ", ".join(planned_pass.redoes)),
            ("reads", planned_pass.reads),
            ("writes", planned_pass.writes),
            ("holds", planned_pass.holds),
            ("why", planned_pass.why),
            ("costs", costs[i] if costs else ""),
        ]
        cells = [(what, text) for what, text in facts if text]
        rows += [(f"{i + 1}. {planned_pass.name}" if not k else "", what, text) for k, (what, text) in enumerate(cells)]
    print_table(f"{curation.name}: {plan.n_reads} passes over the input", ["pass", "", ""], rows)
    print_lines(
        [
            *lines,
            *(f"warning: {remark}" for remark in (*plan.remarks, *curation.left_out)),
            *remarks,
            f"output: {curation.output_path}",
        ]
    )


def _costs(
    curation: Curation,
    plan: CurationPlan,
    sizes: CurationSizes,
    budget_bytes: int,
    where: PlannedMachine,
    dataset: Dataset | None,
) -> list[PassCost]:
    """Return one cost entry per pass of the plan."""
    files, n_cores = curation.files(), where.cores
    decoded = shipped_table.decoded_bytes(files.paths, files.sizes)
    decoded = dataset.decoded_bytes if dataset is not None else decoded
    held_bytes = shipped_table.WORKER_BYTES + _HELD * min(_PARTITION_BYTES, max(1, decoded // max(1, n_cores)))
    held_bytes = min(budget_bytes, shipped_table.FIXED_BYTES + n_cores * held_bytes)
    kinds = {step.name: _class_of(step) for step in curation.steps}
    keys, groups = iter(sizes["key_bytes"].values()), iter(plan.groups)
    costs = []
    for planned_pass in plan.passes:
        names = [_READER, *(kinds[name] for name in (*planned_pass.runs, *planned_pass.redoes))]
        if planned_pass.name.startswith("keys for "):
            names.append(_class_of(curation.steps[next(groups).decides[-1]]))
            written = int(next(keys))
        elif planned_pass.name.startswith("texts for "):
            written = int(decoded * _TEXT_SHARE)
        elif planned_pass.name == "write":
            names.append(_WRITER)
            written = decoded
        else:
            written = int(sizes["n_documents"]) * _NUMBER_BYTES
        cpu_s = decoded * shipped_table.seconds_per_byte(names)
        seconds = round(cpu_s / n_cores / where.nodes, 2)
        costs.append(PassCost(planned_pass.name, decoded, written, held_bytes, round(cpu_s, 2), seconds))
    return costs


def _class_of(step: Any) -> str:
    """Return the class name of a step as the shipped table spells it."""
    if isinstance(step, Deduplication):
        return f"tamis.dedup.{step.kind.name}."
    return f"{type(step).__module__}.{type(step).__qualname__}"
