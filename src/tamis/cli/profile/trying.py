"""`tamis profile RECIPE`: budgets and block sizes of a recipe, tried on a sample of its input.

Nothing is written but to a temporary folder, the image and, where it is asked for, the settings of the recipe.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tamis import files
from tamis.cli.jobs.jobs import Consent, RecipeJob, find_recipe
from tamis.cli.jobs.request import Request, file_source
from tamis.cli.parsing import options
from tamis.cli.parsing.arguments import CommandExit, Option, echo
from tamis.cli.terminal.show import print_json, print_lines, print_table
from tamis.errors import BudgetError, TamisError, UsageError
from tamis.sizes import format_size, parse_fraction, parse_size

if TYPE_CHECKING:
    from tamis.cli.plan.trial import Trial
    from tamis.observe.profiling import TrialRun

_MIN_SAMPLE_BYTES = 64_000_000
_MAX_SAMPLE_BYTES = 2_000_000_000
_MAX_FILES = 64
_MAX_CONFIGURATIONS = 200

Configuration = tuple[int, str | None]  # a budget and a block size; None is "auto"


def try_(
    recipe: options.RecipePath,
    budgets: Annotated[
        str, Option(metavar="SIZES", help="Memory budgets to try, separated by commas.")
    ] = "512MB,1GB,2GB",
    blocksizes: Annotated[
        str, Option(metavar="SIZES", help="Block sizes to try; auto: the measured peak decides.")
    ] = "auto,32MB,128MB",
    sample: Annotated[str | None, Option(help="Share of the input to try it on, e.g. 1%.")] = None,
    limit_bytes: Annotated[
        str | None,
        Option(metavar="SIZE", help="Decoded size of the sample; default: three of the largest blocks per core."),
    ] = None,
    repeat: Annotated[int, Option(min=1, max=20, help="Runs of each configuration; the median counts.")] = 1,
    set_: options.Sets = None,
    allow_module: options.AllowModules = None,
    trust_remote_code: options.TrustRemoteCode = False,
    plot: Annotated[Path | None, Option(metavar="FILE", help="Write an image: .svg or .html.")] = None,
    write: Annotated[
        bool, Option("--write", help="Put the recommendation into the recipe's settings; comments stay.")
    ] = False,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
    *,
    work: options.TrialOptions,
) -> None:
    """Run a sample of the input under each configuration, and recommend one. `tamis profile RECIPE` is short for it.

    These are real runs, each in a process of its own under its own budget, into a temporary folder that is removed. A
    budget that is too small is a row that says so. Exit code 4 if no configuration works.

    Example: tamis profile recipe.yaml --budgets 512MB,1GB,2GB --blocksizes auto,32MB,128MB
    """
    from tamis.cli.terminal.interrupts import sigterm_interrupts
    from tamis.observe.profiling import recommend
    from tamis.recipe.edit import check_writable, write_settings

    if sample is not None and limit_bytes is not None:
        raise UsageError("give --sample or --limit-bytes, not both")
    if plot is not None:
        _check_plot(plot)
    planned = configurations(budgets, blocksizes, repeat)
    path = find_recipe(recipe)
    if write:
        check_writable(path)
    consent = Consent(tuple(allow_module or ()), trust_remote_code)
    request = Request(RecipeJob(os.path.abspath(path), options.parse_sets(set_)), work.settings, consent=consent)

    def show_progress(text: str) -> None:
        if not quiet and not as_json:
            echo(text, err=True)

    with sigterm_interrupts():
        rows, n_bytes = _try_all(request, planned, repeat, sample, limit_bytes, show_progress)
    best, why = recommend(rows)
    if plot is not None:
        _write_plot(plot, rows, os.path.basename(path))
    if write and best is not None:
        write_settings(path, _settings(best))
    if as_json:
        _print_json(rows, best, why, n_bytes, path, write)
    else:
        _print(rows, best, why, n_bytes, path, write, plot)
    if best is None:
        raise CommandExit(BudgetError.exit_code)


def configurations(budgets: str, blocksizes: str, repeat: int = 1) -> list[Configuration]:
    """Return every combination of a budget and a block size.

    >>> configurations("512MB,1GB", "auto, 32MB")
    [(512000000, None), (512000000, '32MB'), (1000000000, None), (1000000000, '32MB')]
    """
    budget_sizes = sorted({parse_size(b.strip(), "--budgets") for b in budgets.split(",") if b.strip()})
    blocks: dict[str | None, None] = {}
    for text in (b.strip() for b in blocksizes.split(",") if b.strip()):
        if text.lower() != "auto":
            parse_size(text, "--blocksizes")
        blocks[None if text.lower() == "auto" else text] = None
    if not budget_sizes or not blocks:
        raise UsageError("give at least one budget and one block size, e.g. --budgets 512MB,1GB --blocksizes auto,32MB")
    pairs = [(budget, block) for budget in budget_sizes for block in blocks]
    if len(pairs) * repeat > _MAX_CONFIGURATIONS:
        raise UsageError(
            f"{len(pairs) * repeat} runs are too many; give fewer budgets and block sizes (at most "
            f"{_MAX_CONFIGURATIONS})"
        )
    return pairs


def _try_all(
    request: Request,
    planned: list[Configuration],
    repeat: int,
    sample: str | None,
    limit_bytes: str | None,
    show_progress: Callable[[str], None],
) -> tuple[list[TrialRun], int]:
    """Return a row for every configuration, in order, and the decoded bytes of the sample.

    `show_progress` receives a line before each run.
    """
    from tamis.cli.plan.trial import copy_heads, run_trial_in_process, spread
    from tamis.engine.job import make_job
    from tamis.engine.run.compiling import compile_missing
    from tamis.engine.run.inputs import files_of
    from tamis.forecast.shipped_table import decoded_bytes
    from tamis.memory.budget import find_budget
    from tamis.stages.io import Writer

    pipeline, settings = request.build()
    stages = pipeline.build()
    with tempfile.TemporaryDirectory(prefix="tamis-profile-") as folder:
        show_progress("taking a sample of the input")
        inputs = files_of(file_source(stages, "profile"), stages[-1].path if isinstance(stages[-1], Writer) else None)
        if limit_bytes is not None:
            sample_bytes = parse_size(limit_bytes, "--limit-bytes")
        elif sample is not None:
            sample_bytes = max(1, int(decoded_bytes(inputs.paths, inputs.sizes) * parse_fraction(sample, "--sample")))
        else:  # enough for a few of the largest partitions on every core
            largest = max((parse_size(block) for _, block in planned if block is not None), default=0)
            sample_bytes = min(max(_MIN_SAMPLE_BYTES, 3 * largest * len(os.sched_getaffinity(0))), _MAX_SAMPLE_BYTES)
        free = shutil.disk_usage(folder).free
        if free < 3 * sample_bytes:  # the sample, its output, and blocks between processes
            raise TamisError(
                f"{folder} has {format_size(free)} free, a sample of {format_size(sample_bytes)} needs three times its "
                "size; give a smaller "
                "--limit-bytes, or set TMPDIR to a larger disk"
            )
        readable = [p for p, size in zip(inputs.paths, inputs.sizes, strict=True) if size > 0]
        copies = copy_heads(pipeline, spread(readable, _MAX_FILES), folder, sample_bytes, packed=True)
        paths, n_bytes = [one["copy"] for one in copies], sum(one["n_bytes"] for one in copies)
        # Compiling happens once, and would count as slowness of the first configuration.
        job = make_job(pipeline.name, stages, str(settings.get("mode", "streaming")))
        compile_missing(job.kernel_groups(), find_budget(None, os.environ).bytes, count_caller=False)
        rows, n = [], 0
        for budget, block in planned:
            trials: list[Trial] = []
            while len(trials) < repeat and (not trials or trials[-1].status == "ok"):
                n += 1
                show_progress(
                    f"[{n}/{len(planned) * repeat}] {format_size(budget)}, {block or 'auto'} on {format_size(n_bytes)}"
                )
                # Not 100%: that would also switch off the early end of a run whose stage fails on everything.
                how = {"memory": budget, "blocksize": block, "quarantine_limit": "5%"}
                trials.append(run_trial_in_process(request, paths, os.path.join(folder, f"out-{n}"), **how))
            rows.append(_row(trials, budget, block or "auto"))
        return rows, n_bytes


def _row(trials: list[Trial], budget: int, block: str) -> TrialRun:
    from tamis.observe.profiling import TrialRun

    last = trials[-1]
    if last.status != "ok":
        return TrialRun(budget, block, last.status, message=last.message)
    middle = statistics.median_low([f.seconds for f in trials])
    median = next(f for f in trials if f.seconds == middle)

    def most(*names: str) -> int:
        """Return the highest sum of these failure counters over all runs: the worst run counts."""
        return max(sum(f.counters.get(name, 0) for name in names) for f in trials)

    n_workers = median.prediction.get("conditions", {}).get("n_workers", 0)
    return TrialRun(
        budget,
        block,
        "ok",
        max(f.peak_bytes for f in trials),
        round(middle, 3),
        round(median.read_bytes / 1e6 / median.work_s, 2),
        round(median.cpu_s, 3),
        n_workers,
        median.counters.get("committed", 0),
        most("splits"),
        most("recycled"),
        most("memory_failures", "kills", "crashes"),
        repeats=[round(f.seconds, 3) for f in trials],
    )


def _settings(best: TrialRun) -> dict[str, str | None]:
    """Return the settings to write into a recipe.

    None: leave the setting out, so that the measured peak decides.
    """
    n = best.budget_bytes
    memory = f"{n // 10**9}GB" if n % 10**9 == 0 else f"{n // 10**6}MB" if n % 10**6 == 0 else str(n)
    return {"memory": memory, "blocksize": None if best.blocksize == "auto" else best.blocksize}


def _check_plot(plot: Path) -> None:
    if plot.suffix.lower() not in (".svg", ".html"):
        raise UsageError(f"--plot {plot}: expected a name that ends in .svg or .html")
    if not os.path.isdir(plot.absolute().parent):
        raise UsageError(f"--plot {plot}: there is no folder {plot.absolute().parent}")


def _write_plot(plot: Path, rows: list[TrialRun], name: str) -> None:
    from tamis.observe.profiling import page, svg

    text = (svg if plot.suffix.lower() == ".svg" else page)(rows, f"{name}: memory and speed")
    try:
        files.write_text(plot, text)
    except OSError as exc:
        echo(f"no image: {plot}: {exc.strerror}", err=True)


def _print_json(rows: list[TrialRun], best: TrialRun | None, why: str, n_bytes: int, path: str, write: bool) -> None:
    best_values = None if best is None else {**asdict(best), "settings": _settings(best)}
    about = {"recipe": path, "sample_bytes": n_bytes, "configurations": [asdict(r) for r in rows]}
    print_json({**about, "recommended": best_values, "why": why, "written": write and best is not None})


def _print(
    rows: list[TrialRun], best: TrialRun | None, why: str, n_bytes: int, path: str, written: bool, plot: Path | None
) -> None:
    from tamis.observe.profiling import bars

    columns = [
        "budget", "block", "peak", "", "MB/s", "seconds", "CPU s", "workers", "partitions", "splits", "recycled",
        "failures",
    ]  # fmt: skip
    table: list[tuple[Any, ...]] = []
    for r in rows:
        figures: tuple[Any, ...] = (r.status, *([""] * 9))
        if r.status == "ok":
            figures = (
                format_size(r.peak_bytes),
                f"{r.peak_bytes / r.budget_bytes:.0%}",
                f"{r.mb_per_s:,.0f}",
                f"{r.seconds:.1f}",
                f"{r.cpu_s:.1f}",
                r.n_workers,
                f"{r.n_partitions:,}",
                r.splits,
                r.recycled,
                r.failures,
            )
        table.append((format_size(r.budget_bytes), r.blocksize, *figures))
    print_table(f"{os.path.basename(path)} on {format_size(n_bytes)}", columns, table, right=tuple(range(2, 12)))
    width = 30 if sys.stdout.isatty() else 20
    lines = [*bars(rows, width), ""]
    lines += [f"{r.label}: {r.status}: {r.message}" for r in rows if r.status != "ok"]
    if best is None:
        lines.append(why)
    else:
        block = "" if best.blocksize == "auto" else f" --blocksize {best.blocksize}"
        lines += [f"recommended: --memory {_settings(best)['memory']}{block}", f"because: {why}"]
        lines += [f"written to {path}"] if written else []
    if plot is not None:
        lines.append(f"image: {plot}")
    print_lines(lines)
