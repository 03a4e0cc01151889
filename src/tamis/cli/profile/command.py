"""`tamis profile RECIPE`: try budgets and block sizes on a sample; and the commands for machine profiles beside it."""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tamis import files
from tamis.cli.jobs.request import Request, find_recipe
from tamis.cli.parsing import options
from tamis.cli.parsing.arguments import Argument, Commands, Exit, Option, echo
from tamis.cli.terminal.show import print_json, print_lines, print_table
from tamis.cli.terminal.streams import put
from tamis.errors import BudgetError, TamisError, UsageError
from tamis.sizes import format_size

if TYPE_CHECKING:
    from tamis.forecast.profiles import Profile
    from tamis.observe.profiling import Row

Key = Annotated[str, Argument(metavar="KEY", help="The key of a profile, its beginning, or the name of its pipeline.")]
Json = Annotated[bool, Option("--json", help="Print one JSON object instead of text.")]

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
        about = {"recipe": path, "sample_bytes": n_bytes, "configurations": [asdict(r) for r in rows]}
        print_json({**about, "recommended": chosen, "why": why, "written": bool(write and best is not None)})
    else:
        _print(rows, best, why, n_bytes, path, write, plot)
    if best is None:
        raise Exit(BudgetError.exit_code)


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
    from tamis.observe.profiling import bars

    columns = ["budget", "block", "peak", "", "MB/s", "seconds", "CPU s", "workers", "partitions", "splits", "recycled", "failures"]  # fmt: skip
    table: list[tuple[Any, ...]] = []
    for r in rows:
        figures: tuple[Any, ...] = (r.status, *([""] * 9))
        if r.status == "ok":
            figures = (
                format_size(r.peak_bytes), f"{r.peak_bytes / r.budget_bytes:.0%}", f"{r.mb_per_s:,.0f}", f"{r.seconds:.1f}", f"{r.cpu_s:.1f}",
                r.n_workers, f"{r.n_partitions:,}", r.splits, r.recycled, r.failures,
            )  # fmt: skip
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
        lines.append(f"picture: {plot}")
    print_lines(lines)


# -- what this machine has learned (forecast/profiles.py) --------------------------------------------------------------------
@app.command("list")
def list_(as_json: Json = False) -> None:
    """List the profiles: one per pipeline and kind of machine, made by its runs.

    Example: tamis profile list
    """
    from tamis.forecast import profiles
    from tamis.forecast.prediction import runs_of

    found: list[dict[str, Any]] = []
    for one in profiles.list_profiles():
        about: dict[str, Any] = {"key": one.key, "machine": one.machine, "here": one.is_here}
        if one.damage:
            found.append({**about, "damaged": one.damage})
            continue
        runs = runs_of(one.numbers)
        last = runs[-1] if runs else None
        speed = round(last.conditions.decoded_bytes / last.seconds) if last and last.seconds else None
        about |= {"name": one.name, "pinned": one.pinned, "n_runs": len(runs), "saved_at": one.saved_at}
        found.append({**about, "peak_bytes": last.peak_bytes if last else None, "bytes_per_s": speed})
    off = profiles.is_off()
    if as_json:
        print_json({"folder": str(profiles.profile_dir()), "off": off, "profiles": found})
        return
    rows = [
        (
            f["key"], f.get("name", ""), "this one" if f["here"] else f["machine"], f.get("n_runs", ""),
            format_size(f["peak_bytes"]) if f.get("peak_bytes") else "", f"{f['bytes_per_s'] / 1e6:,.0f} MB/s" if f.get("bytes_per_s") else "",
            time.strftime("%Y-%m-%d %H:%M", time.localtime(f["saved_at"])) if "saved_at" in f else "",
            "damaged" if "damaged" in f else "pinned" if f["pinned"] else "",
        )
        for f in found
    ]  # fmt: skip
    if rows:
        columns = ["key", "pipeline", "machine", "runs", "last peak", "last speed", "saved", ""]
        print_table("Machine profiles", columns, rows, right=(3, 4, 5))
    else:
        print_lines(["no profiles yet: every run leaves one"])
    print_lines([f"in {profiles.profile_dir()}" + ("; switched off by TAMIS_PROFILES=off" if off else "")])


@app.command("show")
def show(key: Key, as_json: Json = False) -> None:
    """Show one profile: partition models, and the runs they were learned from.

    Example: tamis profile show 3f2a
    """
    from tamis.forecast import profiles
    from tamis.forecast.prediction import runs_of

    one = profiles.find(key)
    if as_json:
        print_json({"key": one.key, "machine": one.machine, "facts": one.facts, "pinned": one.pinned, **one.numbers})
        return
    facts = ", ".join(f"{k} {v}" for k, v in one.facts.items() if v not in ("", None))
    lines = [f"key       {one.key}" + (" (pinned)" if one.pinned else ""), f"pipeline  {one.name}"]
    lines += [f"machine   {one.machine}" + (f": {facts}" if facts else "")]
    print_lines([*lines, *_models(one)])
    rows = [
        (
            time.strftime("%Y-%m-%d %H:%M", time.localtime(m.at)), format_size(m.conditions.budget_bytes), m.conditions.n_workers,
            format_size(m.conditions.decoded_bytes), format_size(m.peak_bytes), f"{m.seconds:,.1f} s",
            f"{m.cpu_s / (m.conditions.decoded_bytes / 1e6):.4f}" if m.conditions.decoded_bytes else "",
            format_size(m.scratch_bytes), f"{m.n_partitions:,}",
        )
        for m in runs_of(one.numbers)
    ]  # fmt: skip
    if rows:
        columns = ["run", "budget", "workers", "decoded", "peak", "time", "CPU s/MB", "scratch", "partitions"]
        print_table("Runs", columns, rows, right=tuple(range(1, 9)))


def _models(one: Profile) -> list[str]:
    from tamis.memory.predictor import Predictor

    lines = []
    segments = one.numbers.get("segments")
    for i, data in enumerate(segments if isinstance(segments, list) else ()):
        try:
            model = Predictor.from_dict(data if isinstance(data, dict) else {})
        except TamisError:
            lines.append(f"segment {i} damaged")
            continue
        a, b, c = model.coefficients
        lines.append(
            f"segment {i} peak = {format_size(a)} + {b:.2f} x decoded bytes + {c:.2f} x largest record, times {model.factor:.2f} "
            f"({model.n_samples:,} partitions)"
        )
    return lines


@app.command("export")
def export(
    file: Annotated[Path | None, Argument(metavar="FILE", help="Where to write; default: stdout.")] = None,
    key: Annotated[list[str] | None, Option("--key", metavar="KEY", help="Only this profile; may be repeated.")] = None,
) -> None:
    """Write profiles as one JSON file, to be imported elsewhere or kept with a project.

    Example: tamis profile export profiles.json
    """
    from tamis.forecast import profiles

    data = profiles.export(tuple(key or ()))
    text = json.dumps(data, indent=1) + "\n"
    if file is None:
        put(text)
        return
    try:
        files.write_text(file, text)
    except OSError as exc:
        raise UsageError(f"{file} cannot be written: {exc.strerror}") from None
    print_lines([f"{len(data['profiles'])} profiles in {file}"])


@app.command("import")
def import_(
    file: Annotated[Path, Argument(metavar="FILE", help="What `tamis profile export` wrote.")],
    here: Annotated[
        bool, Option("--here", help="Use them for this machine, whatever machine they were made on.")
    ] = False,
    replace: Annotated[bool, Option("--replace", help="Replace profiles that exist; pinned ones stay.")] = False,
) -> None:
    """Read exported profiles. Each is checked; a file that is not in order is refused as a whole.

    Example: tamis profile import profiles.json --here
    """
    from tamis.forecast import profiles

    written = profiles.import_all(_loaded(file), here=here, overwrite=replace)
    print_lines([f"{len(written)} profiles imported" + (f": {', '.join(written[:8])}" if written else "")])


def _loaded(file: Path) -> Any:
    from tamis.forecast.profiles import MAX_EXPORT_BYTES

    try:
        with open(file, "rb") as handle:
            raw = handle.read(MAX_EXPORT_BYTES + 1)
    except OSError as exc:
        raise UsageError(f"{file} cannot be read: {exc.strerror}") from None
    if len(raw) > MAX_EXPORT_BYTES:
        raise UsageError(f"{file} is larger than {MAX_EXPORT_BYTES:,} bytes; is this an export of profiles?")
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        raise UsageError(f"{file} is not JSON; expected what `tamis profile export` writes") from None


@app.command("pin")
def pin(key: Key) -> None:
    """Keep a profile as it is: runs go on using it and do not change it.

    Example: tamis profile pin 3f2a
    """
    _pin(key, True)


@app.command("unpin")
def unpin(key: Key) -> None:
    """Let runs change a profile again.

    Example: tamis profile unpin 3f2a
    """
    _pin(key, False)


def _pin(key: str, pinned: bool) -> None:
    from tamis.forecast import profiles

    one = profiles.pin(key, pinned)
    print_lines([f"{one.key} ({one.name}) is {'pinned' if pinned else 'no longer pinned'}"])
