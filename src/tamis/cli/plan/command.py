"""`tamis plan`: what a run would take, before it starts, as intervals. Nothing is written to the output.

Where the figures come from, best first: earlier runs of the same pipeline on this machine (the machine profile); a
probe, which runs the recipe's stages on the beginning of some input files with real workers under the real budget; the
shipped table.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any

from tamis.cli.jobs.jobs import Consent, RecipeJob, find_recipe
from tamis.cli.jobs.request import Request
from tamis.cli.parsing import options
from tamis.cli.parsing.arguments import Argument, CommandExit, Option
from tamis.cli.plan.machine import Dataset, PlannedMachine, parse_machine, this_machine
from tamis.cli.terminal.show import print_folded, print_json
from tamis.dedup.kinds import KINDS
from tamis.errors import BudgetError, UsageError
from tamis.sizes import parse_size

_PROBE_MB = 8.0
MachineSpec = Annotated[
    str | None, Option("--machine", metavar="SPEC", help="Plan for another machine, e.g. 64GB,32cores,4gpus.")
]
ClusterSpec = Annotated[
    str | None,
    Option("--cluster", metavar="SPEC", help="Plan for several equal machines, e.g. '8x(64cpu,512GB,8gpu)'."),
]
DatasetBytes = Annotated[
    str | None, Option(metavar="SIZE", help="Plan without data, for an input of this size (uncompressed), e.g. 8TB.")
]
DocumentBytes = Annotated[
    str | None, Option(metavar="SIZE", help="With --dataset-bytes: the mean size of a document. Default: 4kB.")
]


def plan(
    recipe: Annotated[
        str, Argument(metavar="RECIPE", help="A recipe file, the name of a shipped recipe, or the word dedup.")
    ],
    rest: Annotated[
        list[str] | None,
        Argument(
            metavar="[WHICH [IN]]",
            help=f"After the word dedup: {' or '.join(k for k in KINDS if KINDS[k].has_plan)}, then the input.",
        ),
    ] = None,
    machine: MachineSpec = None,
    cluster: ClusterSpec = None,
    dataset_bytes: DatasetBytes = None,
    avg_doc_bytes: DocumentBytes = None,
    set_: options.Sets = None,
    allow_module: options.AllowModules = None,
    trust_remote_code: options.TrustRemoteCode = False,
    probe: Annotated[
        bool,
        Option("--probe", help="Try the recipe on a little of the data, even if it has run on this machine before."),
    ] = False,
    no_probe: Annotated[
        bool,
        Option(
            "--no-probe", help="Start no processes: estimate from earlier runs, or from a table that ships with Tamis."
        ),
    ] = False,
    probe_mb: Annotated[
        float | None,
        Option(min=0.1, max=1000, help="How many MB of the data (uncompressed) to try the recipe on. Default: 8."),
    ] = None,
    as_json: Annotated[bool, Option("--json", help="Print one JSON object instead of text.")] = False,
    *,
    work: options.PlanOptions,
) -> None:
    """Estimate what a run would take: partitions, smallest memory budget, peak memory, temporary files, output, time.

    The output is not touched.

    The ranges are expected to contain the true value in 9 of 10 runs; they get wider when earlier predictions on this
    machine were wrong. After `dedup`, --set gives parameters of the workflow. Exit code 4 if the budget is too
    small.

    Example: tamis plan recipe.yaml --memory 2GB
    """
    _check_combination(machine, cluster, dataset_bytes, avg_doc_bytes)
    may_probe = _may_probe(probe, no_probe, probe_mb)
    where = _planned_machine(machine, cluster)
    dataset = _imagined(dataset_bytes, avg_doc_bytes) if dataset_bytes is not None else None
    goal = _Goal(where, dataset, may_probe, as_json)
    overrides = options.parse_sets(set_)
    trying = {
        "--blocksize": work.get("blocksize"),
        "--max-record": work.get("max_record"),
        "--probe": probe or None,
        "--probe-mb": probe_mb,
    }
    if recipe == "dedup":
        from tamis.cli.plan import dedup

        _refuse(trying | {"--allow-module": allow_module, "--trust-remote-code": trust_remote_code or None}, "dedup")
        _plan_dedup(dedup.workflow_of(rest or [], overrides, dataset is not None), work.settings, goal)
        return
    if rest:
        raise UsageError(f"unexpected argument {' '.join(rest)!r}: give one recipe")
    if dataset is not None:
        overrides = {**_placeholders(recipe), **overrides}
    consent = Consent(tuple(allow_module or ()), trust_remote_code)
    request = Request(RecipeJob(recipe, overrides), work.settings, consent=consent)
    built = request.workflow()
    if built is None:
        _plan_stages(request, int((probe_mb or _PROBE_MB) * 1e6), goal)
        return
    workflow, settings = built
    if hasattr(workflow, "steps"):
        from tamis.cli.plan.curation import show_plan

        _refuse(trying | {"--scratch": work.get("scratch")}, "a recipe with steps")
        show_plan(workflow, as_json, settings, where, dataset, goal.may_run_trials, goal.may_run_trials)
    else:
        _refuse(trying, "a recipe with a workflow")
        _plan_dedup(workflow, settings, goal)


@dataclass(frozen=True)
class _Goal:
    """The target of a plan, and the form in which it is shown.

    `dataset`: data that is only imagined. `may_probe`: None where only what has not run here is tried.
    """

    where: PlannedMachine
    dataset: Dataset | None
    may_probe: bool | None
    as_json: bool

    @property
    def may_run_trials(self) -> bool:
        """True if processes may be started to find the smallest budget."""
        return self.may_probe is not False


def _plan_dedup(workflow: Any, settings: Mapping[str, Any], goal: _Goal) -> None:
    from tamis.cli.plan import dedup

    memory, workers, scratch = (settings.get(name) for name in ("memory", "workers", "scratch"))
    dedup.show(workflow, memory, workers, goal.where, goal.dataset, goal.as_json, scratch, goal.may_run_trials)


def _plan_stages(request: Request, probe_bytes: int, goal: _Goal) -> None:
    from tamis.cli.plan.stages import make_plan

    estimate = make_plan(request, probe_bytes, goal.where, goal.dataset, goal.may_probe)
    if goal.as_json:
        print_json(asdict(estimate))
    else:
        print_folded(estimate.lines())
    if not estimate.fits:
        raise CommandExit(BudgetError.exit_code)


def _check_combination(
    machine: str | None, cluster: str | None, dataset_bytes: str | None, avg_doc_bytes: str | None
) -> None:
    """Raise UsageError for options that do not go together."""
    if machine is not None and cluster is not None:
        raise UsageError("give --machine or --cluster, not both")
    if avg_doc_bytes is not None and dataset_bytes is None:
        raise UsageError("--avg-doc-bytes is for --dataset-bytes")


def _may_probe(probe: bool, no_probe: bool, probe_mb: float | None) -> bool | None:
    """Return what the options about probes mean; None: try only what has not run here."""
    if no_probe and (probe or probe_mb is not None):
        raise UsageError(f"give {'--probe' if probe else '--probe-mb'} or --no-probe, not both")
    return True if probe else False if no_probe else None


def _planned_machine(machine: str | None, cluster: str | None) -> PlannedMachine:
    if cluster:
        return parse_machine(cluster, "--cluster")
    return parse_machine(machine) if machine else this_machine()


def _refuse(options: Mapping[str, object], what: str) -> None:
    """Raise UsageError for an option that a plan of this kind would not follow."""
    for name, value in options.items():
        if value is not None:
            raise UsageError(f"tamis plan: {name} changes nothing in the plan of {what}; leave it out")


def _imagined(dataset_bytes: str, document_bytes: str | None) -> Dataset:
    from tamis.forecast.shipped_table import DOCUMENT_BYTES

    size = parse_size(dataset_bytes, "--dataset-bytes")
    each = parse_size(document_bytes, "--avg-doc-bytes") if document_bytes else DOCUMENT_BYTES
    return Dataset(0, {}, size, size, each)


def _placeholders(recipe: str) -> dict[str, str]:
    """Return values for the open settings of a recipe: a plan without data needs no input."""
    from tamis.yaml_text import MISSING, fields_of

    root = fields_of(find_recipe(recipe))
    planned = {k: "planned" for k, n in root.items() if n.value == MISSING and n.plain}
    if "steps" in root and "input" in planned:  # a curation looks for its input; one document represents it
        folder = tempfile.mkdtemp(prefix="tamis-plan-")
        atexit.register(shutil.rmtree, folder, True)
        with open(os.path.join(folder, "planned.jsonl"), "w", encoding="utf-8") as file:
            file.write('{"text": ""}\n')
        planned["input"] = folder
    return planned
