"""`tamis profile RECIPE`: try budgets and block sizes on a sample; and the commands for machine profiles beside it."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tamis import files
from tamis.cli.jobs.request import Request, find_recipe
from tamis.cli.parsing import options
from tamis.cli.parsing.arguments import Commands, Exit, Option, echo
from tamis.cli.profile import files as profile_files
from tamis.errors import BudgetError, UsageError

if TYPE_CHECKING:
    from tamis.observe.profiling import Row

app = Commands(
    "profile",
    help="Try budgets and block sizes on a sample of the input: tamis profile RECIPE (tamis profile try --help). "
    "The other commands manage what this machine has learned from its runs.",
    fallback="try",
)


@app.command("try")
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
    workers: options.Workers = None,
    set_: options.Sets = None,
    allow_module: options.AllowModules = None,
    plot: Annotated[Path | None, Option(metavar="FILE", help="Write a picture: .svg or .html.")] = None,
    write: Annotated[
        bool, Option("--write", help="Put the recommendation into the recipe's settings; comments stay.")
    ] = False,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
) -> None:
    """Run a sample of the input under each configuration, and recommend one. `tamis profile RECIPE` is short for it.

    These are real runs, each in a process of its own under its own budget, into a temporary folder that is removed. A budget that
    is too small is a row that says so. Exit code 4 if no configuration works.

    Example: tamis profile recipe.yaml --budgets 512MB,1GB,2GB --blocksizes auto,32MB,128MB
    """
    from tamis.cli.profile.trying import configurations, try_all
    from tamis.cli.terminal.interrupts import sigterm_interrupts
    from tamis.cli.terminal.show import print_json
    from tamis.observe.profiling import recommend

    if sample is not None and limit_bytes is not None:
        raise UsageError("give --sample or --limit-bytes, not both")
    _check_plot(plot)
    asked = configurations(budgets, blocksizes, repeat)
    path = find_recipe(recipe)
    if write:
        from tamis.recipe.edit import check_writable

        check_writable(path)
    request = Request(recipe, options.parse_sets(set_), tuple(allow_module or ()), options.given(workers=workers))

    def tell(text: str) -> None:
        if not quiet and not as_json:
            echo(text, err=True)

    with sigterm_interrupts():
        rows, n_bytes = try_all(request, asked, repeat, sample, limit_bytes, tell)
    best, why = recommend(rows)
    if plot is not None:
        _write_plot(plot, rows, os.path.basename(path))
    if write and best is not None:
        from tamis.recipe.edit import write_settings

        write_settings(path, _settings(best))
    if as_json:
        chosen = None if best is None else {**asdict(best), "settings": _settings(best)}
        print_json(
            {
                "recipe": path,
                "sample_bytes": n_bytes,
                "configurations": [asdict(r) for r in rows],
                "recommended": chosen,
            }
            | {"why": why, "written": bool(write and best is not None)}
        )
    else:
        _print(rows, best, why, n_bytes, path, write, plot)
    if best is None:
        raise Exit(BudgetError.exit_code)


app.command("list")(profile_files.list_)
app.command("show")(profile_files.show)
app.command("export")(profile_files.export)
app.command("import")(profile_files.import_)
app.command("pin")(profile_files.pin)
app.command("unpin")(profile_files.unpin)


def _settings(best: Row) -> dict[str, str | None]:
    """What to write into a recipe; None: no such setting, so that the measured peak decides."""
    n = best.budget_bytes
    memory = f"{n // 10**9}GB" if n % 10**9 == 0 else f"{n // 10**6}MB" if n % 10**6 == 0 else str(n)
    return {"memory": memory, "blocksize": None if best.blocksize == "auto" else best.blocksize}


def _check_plot(plot: Path | None) -> None:
    if plot is None:
        return
    if plot.suffix.lower() not in (".svg", ".html"):
        raise UsageError(f"--plot {plot}: expected a name that ends in .svg or .html")
    if not os.path.isdir(plot.absolute().parent):
        raise UsageError(f"--plot {plot}: there is no folder {plot.absolute().parent}")


def _write_plot(plot: Path, rows: list[Row], name: str) -> None:
    from tamis.observe.profiling import page, svg

    text = (svg if plot.suffix.lower() == ".svg" else page)(rows, f"{name}: memory and speed")
    try:
        files.write_text(plot, text)
    except OSError as exc:
        echo(f"no picture: {plot}: {exc.strerror}", err=True)


def _print(
    rows: list[Row], best: Row | None, why: str, n_bytes: int, path: str, written: bool, plot: Path | None
) -> None:
    from tamis.cli.terminal.show import print_lines, print_table
    from tamis.observe.profiling import bars
    from tamis.sizes import format_size

    columns = ["budget", "block", "peak", "", "MB/s", "seconds", "CPU s", "workers", "partitions", "splits", "recycled", "failures"]  # fmt: skip
    table: list[tuple[Any, ...]] = []
    for r in rows:
        head = (format_size(r.budget_bytes), r.blocksize)
        if r.status != "ok":
            table.append((*head, r.status, *([""] * 9)))
            continue
        share = f"{r.peak_bytes / r.budget_bytes:.0%}"
        counts = (r.n_workers, f"{r.n_partitions:,}", r.splits, r.recycled, r.failures)
        table.append(
            (
                *head,
                format_size(r.peak_bytes),
                share,
                f"{r.mb_per_s:,.0f}",
                f"{r.seconds:.1f}",
                f"{r.cpu_s:.1f}",
                *counts,
            )
        )
    print_table(f"{os.path.basename(path)} on {format_size(n_bytes)}", columns, table, right=tuple(range(2, 12)))
    width = 30 if sys.stdout.isatty() else 20
    lines = [*bars(rows, width), ""]
    lines += [f"{r.label}: {r.status}: {r.message}" for r in rows if r.status != "ok"]
    if best is None:
        lines.append(why)
    else:
        lines.append(f"recommended: --memory {_settings(best)['memory']}" + _block_option(best))
        lines.append(f"because: {why}")
        if written:
            lines.append(f"written to {path}")
    if plot is not None:
        lines.append(f"picture: {plot}")
    print_lines(lines)


def _block_option(best: Row) -> str:
    return "" if best.blocksize == "auto" else f" --blocksize {best.blocksize}"
