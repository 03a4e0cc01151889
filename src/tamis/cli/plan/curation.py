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
from tamis.cli.plan.show import budget_words, range_words, too_small_line
from tamis.cli.plan.show import sizes as span_of_sizes
from tamis.cli.plan.show import times as span_of_times
from tamis.cli.plan.smallest import smallest_of_curation
from tamis.cli.terminal.show import print_folded, print_json
from tamis.curation import Curation
from tamis.curation.costs import PassCost, pass_costs
from tamis.curation.expected import conditions, curation_key, forecast
from tamis.curation.planner import CurationPlan
from tamis.curation.result import CurationSizes
from tamis.errors import BudgetError, TamisError
from tamis.forecast import shipped_table
from tamis.forecast.experience import Experience
from tamis.forecast.prediction import Prediction
from tamis.memory.budget import find_budget
from tamis.sizes import format_size

_TOKEN_SAMPLE_BYTES, _TOKEN_FILES = 2 << 20, 16
_ON_NODES = (
    "rates are those of the shipped table, taken to hold on every node; deciding between passes is done by one "
    "process on the driver's node "
    "(docs/guides/cluster.md), and is not in these times"
)


def _cost_text(cost: PassCost, where: PlannedMachine) -> str:
    each, nodes = (" on each node", f"{where.nodes:,} nodes of ") if where.nodes > 1 else ("", "")
    return (
        f"reads {format_size(cost.read_bytes)}, writes at most {format_size(cost.written_bytes)}, holds "
        f"{format_size(cost.held_bytes)}{each}, about {cost.seconds:,.1f} s on {nodes}{where.cores} cores"
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
    machine, where = str(where), _with_workers(where, settings)
    if dataset is not None:
        sizes = _imagined_sizes(sizes, dataset)
    budget_bytes = _budget_bytes(settings.get("memory"), where)
    is_real = where.is_this_machine and dataset is None
    smallest = smallest_of_curation(curation, may_run_trials and is_real)
    fits = budget_bytes >= smallest.n_bytes
    costs = pass_costs(curation, sizes, budget_bytes, where.cores, where.nodes)
    experience = Experience(curation_key(curation))
    ranges = _ranges(curation, costs, sizes, budget_bytes, where, experience)
    tokens = _tokens(curation, sizes, may_run_trials)
    mixes = _mixes(curation, settings, may_run_trials) if may_try_mix and is_real and fits else {}
    each, remarks = (" on each node", [_ON_NODES]) if where.nodes > 1 else ("", [])
    lines = _input_lines(sizes, tokens, is_imagined=dataset is not None)
    lines.append(f"memory budget: {budget_words(budget_bytes, *smallest)}{each}")
    if fits:
        lines += _range_lines(ranges, experience, each)
    else:
        remarks.append(too_small_line(smallest.n_bytes))
    lines += _output_lines(curation, mixes)
    figures = {
        **sizes,
        "costs": [asdict(c) for c in costs],
        "forecast": ranges,
        "basis": experience.basis,
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
    cost_texts = [_cost_text(cost, where) for cost in costs]
    _show(curation, passes, figures, cost_texts, lines, as_json, remarks)
    if not fits:
        raise CommandExit(BudgetError.exit_code)


def _with_workers(machine: PlannedMachine, settings: Mapping[str, Any]) -> PlannedMachine:
    """Return the machine with no more cores than a run has workers."""
    workers = settings.get("workers")
    return replace(machine, cores=min(machine.cores, int(workers))) if workers else machine


def _output_lines(curation: Curation, mixes: Mapping[str, PlannedMix]) -> list[str]:
    """Return what is printed about the documents that are written."""
    lines = [line for mix in mixes.values() for line in mix.lines()]
    if curation.writing.is_packed:
        lines.append("then files are put together anew: one more read and write of what stays")
    return lines


def _budget_bytes(memory: Any, where: PlannedMachine) -> int:
    """Return the budget: the one given, or else that of the machine planned for."""
    is_own = memory is not None or where.is_this_machine
    return find_budget(memory, os.environ).bytes if is_own else where.budget_bytes


def _mixes(curation: Curation, settings: Mapping[str, Any], may_load_models: bool) -> dict[str, PlannedMix]:
    """Return what will be written of each group and of each source, as far as a curation mixes them."""
    mixes = {
        "mix": plan_mix(curation, settings, may_load_models),
        "sources": plan_sources(curation, settings, may_load_models),
    }
    return {name: mix for name, mix in mixes.items() if mix is not None}


def _ranges(
    curation: Curation,
    costs: Sequence[PassCost],
    sizes: CurationSizes,
    budget_bytes: int,
    where: PlannedMachine,
    experience: Experience,
) -> Prediction:
    """Return the forecast of the whole curation, by earlier runs on this machine or by the table."""
    request = conditions(costs, sizes, budget_bytes, where.cores)
    expected = forecast(
        curation, costs, sizes, request, experience, elsewhere=not where.is_this_machine, nodes=where.nodes
    )
    return experience.remember_planned(request, expected) if where.is_this_machine else expected.to_dict()


def _range_lines(ranges: Prediction, experience: Experience, each: str) -> list[str]:
    """Return the figures of the whole curation with their ranges, and what they are from."""
    scratch = ranges["scratch_bytes"]
    return [
        f"peak memory: {span_of_sizes(ranges['peak_bytes'])}{each}",
        *([f"scratch for keys: {span_of_sizes(scratch)}"] if scratch["high"] else []),
        f"size of the output: {span_of_sizes(ranges['output_bytes'])}",
        f"time: {span_of_times(ranges['seconds'])}",
        f"from {experience.basis}; {range_words(ranges)}",
    ]


def _input_lines(sizes: CurationSizes, tokens: PlannedTokens | None, is_imagined: bool) -> list[str]:
    """Return the lines on the input and on the keys made of it."""
    files = "" if is_imagined else f" in {sizes['n_files']:,} files"
    decoded = f", about {format_size(sizes['decoded_bytes'])} decoded"
    decoded = decoded if sizes["decoded_bytes"] != sizes["input_bytes"] else ""
    lines = [f"input: {format_size(sizes['input_bytes'])}{files}{decoded}, about {sizes['n_documents']:,} documents"]
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
    if not n_tokens:  # pages, which have no text yet
        return None
    return PlannedTokens(n_tokens, "" if count is None else os.path.basename(count.tokenizer.rstrip("/")))


def _quarter(words: str) -> int:
    return (len(words.encode("utf-8", "surrogatepass")) + 3) // 4


def _imagined_sizes(sizes: CurationSizes, dataset: Dataset) -> CurationSizes:
    """Return the sizes for data that is only imagined: keys grow with the documents."""
    n = max(1, dataset.decoded_bytes // max(1, dataset.document_bytes or shipped_table.DOCUMENT_BYTES))
    keys = {name: n_bytes * n // max(1, int(sizes["n_documents"])) for name, n_bytes in sizes["key_bytes"].items()}
    return {
        "n_files": 0,
        "input_bytes": dataset.decoded_bytes,
        "decoded_bytes": dataset.decoded_bytes,
        "n_documents": n,
        "key_bytes": keys,
    }


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
    passes: list[str] = []
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
        passes += [f"{i + 1}. {planned_pass.name}", *(f"   {what:<23}  {text}" for what, text in facts if text), ""]
    print_folded(
        [
            f"{curation.name}: {plan.n_reads} passes over the input",
            "",
            *passes,
            *lines,
            *(f"warning: {remark}" for remark in (*plan.remarks, *curation.left_out, *curation.ignored_sources())),
            *remarks,
            f"output: {curation.output_path}",
        ]
    )
