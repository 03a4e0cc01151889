"""`tamis plan`: what a run would take, before it starts, as intervals. Nothing is written to the output.

Where the figures come from, best first: earlier runs of the same pipeline on this machine (the machine profile); a probe, which
runs the recipe's stages on the beginning of some input files with real workers under the real budget; the shipped table.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from tamis.cli.jobs.request import Request, file_source, output_of
from tamis.cli.parsing import options
from tamis.cli.parsing.arguments import Argument, Exit, Option
from tamis.cli.plan.cluster import cluster_figures
from tamis.cli.plan.machine import Machine, parse_machine, this_machine
from tamis.errors import BudgetError, UsageError
from tamis.stores.homes import local_of
from tamis.stores.urls import is_bucket

if TYPE_CHECKING:
    from tamis.cli.plan.probe import Probe
    from tamis.engine.job import Job
    from tamis.forecast.prediction import Conditions, Measured
    from tamis.formats.input_files.listing import FileList
    from tamis.memory.predictor import Predictor

MachineSpec = Annotated[
    str | None, Option("--machine", metavar="SPEC", help="Plan for another machine, e.g. 64GB,32cores,4gpus.")
]
ClusterSpec = Annotated[
    str | None,
    Option("--cluster", metavar="SPEC", help="Plan for several equal machines, e.g. '8x(64cpu,512GB,8gpu)'."),
]
DatasetBytes = Annotated[
    str | None, Option(metavar="SIZE", help="Plan without data: the decoded size, e.g. 8TB. Reads nothing.")
]
DocumentBytes = Annotated[
    str | None, Option(metavar="SIZE", help="With --dataset-bytes: the mean size of a document; default 4kB.")
]


@dataclass(frozen=True)
class Dataset:
    """`n_files` is 0 for one that is only imagined."""

    n_files: int
    kinds: dict[str, int]
    input_bytes: int
    decoded_bytes: int
    document_bytes: int | None = None


@dataclass
class Plan:
    """Sizes in bytes. Everything but the files is an estimate; `forecast` holds the intervals."""

    n_files: int
    kinds: dict[str, int]
    input_bytes: int
    decoded_bytes: int
    output: str
    budget_bytes: int
    smallest_budget_bytes: int
    fits: bool
    n_workers: int
    block_bytes: int
    n_partitions: int
    peak_bytes: int
    output_bytes: int
    free_bytes: int | None  # None: it is another machine's disk
    scratch_free_bytes: int | None
    seconds: float
    kept_share: float | None
    probe_bytes: int
    probe_documents: int
    basis: str
    machine: str
    nodes: int
    gpu_seconds: float
    forecast: dict[str, Any] = field(default_factory=dict)
    guide: dict[str, str] = field(default_factory=dict)
    passed_over: list[dict[str, Any]] = field(default_factory=list)
    cluster: dict[str, Any] = field(default_factory=dict)  # plan_cluster.ClusterFigures, for several nodes


def plan(
    recipe: Annotated[
        str, Argument(metavar="RECIPE", help="A recipe file, the name of a shipped recipe, or the word dedup.")
    ],
    rest: Annotated[
        list[str] | None, Argument(metavar="[WHICH [IN]]", help="After dedup: exact or fuzzy, and its input.")
    ] = None,
    memory: options.Memory = None,
    workers: options.Workers = None,
    scratch: options.Scratch = None,
    blocksize: options.Blocksize = None,
    max_record: options.MaxRecord = None,
    machine: MachineSpec = None,
    cluster: ClusterSpec = None,
    dataset_bytes: DatasetBytes = None,
    avg_doc_bytes: DocumentBytes = None,
    set_: options.Sets = None,
    allow_module: options.AllowModules = None,
    probe: Annotated[
        bool, Option("--probe", help="Try the recipe on a little data, even if it has run here before.")
    ] = False,
    no_probe: Annotated[bool, Option("--no-probe", help="Try nothing, even if it has not run here yet.")] = False,
    probe_mb: Annotated[float, Option(min=0.1, max=1000, help="Decoded MB to try the recipe on.")] = 8,
    as_json: Annotated[bool, Option("--json", help="Print one JSON object instead of text.")] = False,
) -> None:
    """Tell what a run would take: partitions, smallest budget, peak memory, scratch, output, time. Writes nothing to the output.

    Ranges are meant to hold nine times in ten: they are as wide as earlier predictions on this machine were off.
    After `dedup`, --set gives parameters of the workflow. Exit code 4 if the budget is too small.

    Example: tamis plan recipe.yaml --memory 2GB
    """
    from tamis.cli.plan.show import lines
    from tamis.cli.terminal.show import print_json, print_lines

    if machine is not None and cluster is not None:
        raise UsageError("give --machine or --cluster, not both")
    if avg_doc_bytes is not None and dataset_bytes is None:
        raise UsageError("--avg-doc-bytes is for --dataset-bytes")
    if probe and no_probe:
        raise UsageError("give --probe or --no-probe, not both")
    where = parse_machine(cluster, "--cluster") if cluster else parse_machine(machine) if machine else this_machine()
    asked = _imagined(dataset_bytes, avg_doc_bytes) if dataset_bytes is not None else None
    if recipe == "dedup" or rest:
        from tamis.cli.plan.dedup import show, workflow_of

        if recipe != "dedup":
            raise UsageError(f"one recipe at a time: {' '.join(rest or ())!r} is too much")
        workflow = workflow_of(rest or [], options.parse_sets(set_), asked is not None)
        show(workflow, memory, workers, where, asked, as_json, scratch)
        return
    settings = options.given(
        memory=memory, workers=workers, scratch=scratch, blocksize=blocksize, max_record=max_record
    )
    overrides = options.parse_sets(set_)
    if asked is not None:
        overrides = {**_placeholders(recipe), **overrides}
    request = Request(recipe, overrides, tuple(allow_module or ()), settings)
    if (found := request.workflow()) is not None and hasattr(found[0], "steps"):
        from tamis.cli.jobs.curate import show_plan

        show_plan(found[0], as_json, memory, where, asked)
        return
    if found is not None:
        from tamis.cli.plan.dedup import show

        asked_for = found[1]
        show(
            found[0], asked_for.get("memory"), asked_for.get("workers"), where, asked, as_json, asked_for.get("scratch")
        )  # fmt: skip
        return
    made = make_plan(request, int(probe_mb * 1e6), where, asked, True if probe else False if no_probe else None)
    if as_json:
        print_json(asdict(made))
    else:
        print_lines(lines(made))
    if not made.fits:
        raise Exit(BudgetError.exit_code)


def _imagined(dataset_bytes: str, document_bytes: str | None) -> Dataset:
    from tamis.forecast.shipped_table import DOCUMENT_BYTES
    from tamis.sizes import parse_size

    size = parse_size(dataset_bytes, "--dataset-bytes")
    each = parse_size(document_bytes, "--avg-doc-bytes") if document_bytes else DOCUMENT_BYTES
    return Dataset(0, {}, size, size, each)


def _placeholders(recipe: str) -> dict[str, str]:
    """Values for what a recipe leaves open: a plan without data needs no input."""
    from tamis.cli.jobs.request import find_recipe
    from tamis.recipe.yaml_text import MISSING, fields_of

    root = fields_of(find_recipe(recipe))
    planned = {k: "planned" for k, n in root.items() if n.value == MISSING and n.plain}
    if "steps" in root and "input" in planned:  # a curation looks for its input; one document stands for it
        folder = tempfile.mkdtemp(prefix="tamis-plan-")
        atexit.register(shutil.rmtree, folder, True)
        with open(os.path.join(folder, "planned.jsonl"), "w", encoding="utf-8") as file:
            file.write('{"text": ""}\n')
        planned["input"] = folder
    return planned


def make_plan(
    request: Request,
    probe_bytes: int,
    where: Machine | None = None,
    asked: Dataset | None = None,
    probe: bool | None = None,
) -> Plan:
    from tamis.engine.job import make_job
    from tamis.engine.run.budget.expectation import basis_of, models_of, profile_key, stage_names
    from tamis.engine.run.identity import describe_job
    from tamis.engine.run.inputs import files_of
    from tamis.engine.run.preparing import DEFAULT_BLOCK_BYTES
    from tamis.engine.run.settings import DEFAULT_MAX_RECORD
    from tamis.forecast import profiles, ranges, shipped_table
    from tamis.forecast.prediction import predict, runs_of
    from tamis.memory.budget import find_budget
    from tamis.sizes import parse_size

    where = where or this_machine()
    pipeline, settings = request.build()
    flat = pipeline.build()
    source = file_source(flat, "plan")
    output = output_of(pipeline, settings)
    job = make_job(pipeline.name, flat, str(settings.get("mode", "streaming")))
    stages = describe_job(job, {"max_record": parse_size(settings.get("max_record", DEFAULT_MAX_RECORD))})
    most = settings.get("blocksize") or source.blocksize
    block = parse_size(most) if most else DEFAULT_BLOCK_BYTES

    here = find_budget(settings.get("memory"), os.environ).bytes
    budget = here if where.is_here or settings.get("memory") else where.budget_bytes
    profile = profiles.load(key := profile_key(stages))
    past = runs_of(profile)
    models, known = models_of(profile, len(job.segments), block)
    files = None if asked is not None else files_of(source, output)
    tried: Probe | None = None
    basis = basis_of(past)
    if probe and files is None:
        raise UsageError("--probe needs data, and --dataset-bytes plans without: leave one of them out")
    if files is not None and (probe or (probe is None and not past)):
        from tamis.cli.plan.probe import probe as try_it

        with tempfile.TemporaryDirectory(prefix="tamis-plan-") as folder:
            most = budget if where.is_here else min(budget, here)
            tried = try_it(pipeline, settings, files, probe_bytes, folder, most)
        if not past:
            models, basis = [_taught(tried, block)], "a probe: this pipeline has not run on this machine yet"
            past = [tried.measured]
    data = asked or _dataset(files, tried, past)
    conditions = _conditions(job, settings, data, past, budget, where, block)
    start_s = shipped_table.seconds_per_byte(stage_names(stages))
    kind = ranges.PROFILE if runs_of(profile) else ranges.PROBE if tried is not None else ranges.TABLE
    known_ranges = ranges.load()
    found = predict(
        conditions, models, past, start_s, elsewhere=not where.is_here, nodes=where.nodes, learned=any(known), kind=kind,
        ranges=known_ranges,
    )  # fmt: skip
    if kind == ranges.PROBE and where.is_here:  # the run will tell how far this was off
        ranges.plan_of(key, {"conditions": vars(conditions).copy(), **found.to_dict()})
    fits, smallest = _judge(conditions, tried if where.is_here else None)
    gpu = shipped_table.gpu_seconds_per_document(stage_names(stages)) * _documents(data, past)
    told = ranges.with_command(found.to_dict(), known_ranges) if where.is_here else found.to_dict()
    seconds = float(told["seconds"]["expected"])
    if gpu and where.gpus:  # GPU and CPU work overlap: the slower one decides
        seconds = max(seconds, gpu / (where.gpus * where.nodes))
    cluster: dict[str, Any] = {}
    if where.nodes > 1:
        cluster = asdict(cluster_figures(where.nodes, seconds, data.decoded_bytes, found.n_partitions))
        seconds = float(cluster["seconds"])
    row = shipped_table.text_sizing(data.decoded_bytes)
    return Plan(
        n_files=data.n_files, kinds=data.kinds, input_bytes=data.input_bytes, decoded_bytes=data.decoded_bytes, output=output,
        budget_bytes=budget, smallest_budget_bytes=smallest, fits=fits, n_workers=conditions.n_workers, block_bytes=found.block_bytes,
        n_partitions=found.n_partitions, peak_bytes=int(found.peak_bytes.expected), output_bytes=int(found.output_bytes.expected),
        free_bytes=_free(output) if where.is_here and not is_bucket(output) else None, scratch_free_bytes=_free_scratch(settings, output, where), seconds=round(seconds, 1), kept_share=round(tried.n_written / max(tried.measured.n_documents, 1), 4) if tried else None,
        probe_bytes=tried.measured.conditions.decoded_bytes if tried else 0,
        probe_documents=tried.measured.n_documents if tried else 0, basis=basis, machine=str(where), nodes=where.nodes,
        gpu_seconds=round(gpu, 1), forecast=told,
        guide={"size": row.size, "nodes": row.nodes, "gpus": row.gpus, "memory": row.memory, "notes": row.notes},
        passed_over=files.passed.to_list() if files is not None else [], cluster=cluster,
    )  # fmt: skip


def _taught(tried: Probe, block_bytes: int) -> Predictor:
    from tamis.memory.predictor import Predictor

    model = Predictor(block_bytes)
    for decoded, largest, peak, _ in tried.units:
        model.observe(decoded, largest, peak)
    return model


def _dataset(files: FileList | None, tried: Probe | None, past: list[Measured]) -> Dataset:
    from tamis.cli.plan.probe import kind_of
    from tamis.forecast.shipped_table import decoded_bytes

    assert files is not None
    kinds: dict[str, int] = {}
    decoded = 0.0
    for path, size in zip(files.paths, files.sizes, strict=True):
        kind = kind_of(path)
        kinds[kind] = kinds.get(kind, 0) + 1
        decoded += max(size, 0) * (tried.ratios.get(kind, 1.0) if tried else 1.0)
    stored = sum(max(s, 0) for s in files.sizes)
    if tried is None and any(k not in ("jsonl", "json") for k in kinds):
        last = past[-1].conditions if past else None
        known = last is not None and last.input_bytes > 0
        decoded = (
            stored * last.decoded_bytes / last.input_bytes
            if known and last is not None
            else decoded_bytes(files.paths, files.sizes)
        )
    return Dataset(len(files), kinds, stored, int(decoded))


def _conditions(
    job: Job, settings: dict[str, Any], data: Dataset, past: list[Measured], budget: int, where: Machine, block: int
) -> Conditions:
    from tamis.engine.run.budget.shares import GOOD_CAP_BYTES, USABLE, count_workers
    from tamis.engine.supervisor.state import MIN_CAP_BYTES
    from tamis.forecast import shipped_table
    from tamis.forecast.prediction import Conditions
    from tamis.sizes import parse_size

    last = past[-1].conditions if past else None
    fixed = last.fixed_bytes if last else shipped_table.FIXED_BYTES
    worker = last.worker_bytes if last else shipped_table.WORKER_BYTES
    pool = int(budget * USABLE) - fixed
    asked = int(max((s.resources.memory_gb for s in job.segments), default=0.0) * 1e9)
    wanted = settings.get("workers") or where.cores
    n = count_workers(
        int(wanted), pool, worker, max(asked, MIN_CAP_BYTES if settings.get("workers") else GOOD_CAP_BYTES)
    )
    streams = any(k not in ("jsonl", "json") for k in data.kinds)
    queue = data.decoded_bytes if settings.get("mode") == "batch" else parse_size(settings.get("queue", "256MB"))
    return Conditions(
        budget_bytes=budget, n_workers=n, fixed_bytes=fixed, worker_bytes=worker, cap_bytes=max(0, pool // n - worker),
        input_bytes=data.input_bytes, decoded_bytes=data.decoded_bytes, max_block_bytes=block,
        handover_bytes=queue if streams or len(job.segments) > 1 else 0,
    )  # fmt: skip


def _judge(conditions: Conditions, tried: Probe | None) -> tuple[bool, int]:
    """Whether the budget is enough, and the smallest that is."""
    from tamis.engine.run.budget.shares import budget_to_name

    if tried is not None:
        return tried.fits, tried.smallest_bytes
    smallest = budget_to_name(conditions.fixed_bytes, conditions.worker_bytes)
    return conditions.budget_bytes >= smallest, smallest


def _documents(data: Dataset, past: list[Measured]) -> float:
    from tamis.forecast.shipped_table import DOCUMENT_BYTES

    if data.document_bytes:
        return data.decoded_bytes / data.document_bytes
    last = next((m for m in reversed(past) if m.n_documents and m.conditions.decoded_bytes), None)
    each = last.conditions.decoded_bytes / last.n_documents if last else DOCUMENT_BYTES
    return data.decoded_bytes / each


def _free_scratch(settings: dict[str, Any], output: str, where: Machine) -> int | None:
    scratch = str(settings.get("scratch") or local_of(output))
    return _free(os.path.abspath(scratch)) if where.is_here and not is_bucket(scratch) else None


def _free(path: str) -> int:
    while not os.path.exists(path):
        path = os.path.dirname(path)
    return shutil.disk_usage(path).free
