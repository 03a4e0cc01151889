"""`tamis quarantine`: list the records that a run quarantined; `--retry` runs them again after a fix.

A retry takes the raw bytes of every quarantined record, passes them through the recipe of the run (as it is now) and
writes to a folder of its own, `<output>-retry` unless --into names another. The first output and its quarantine are not
changed.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tamis import files
from tamis.cli.jobs.jobs import Consent, RecipeJob, find_recipe
from tamis.cli.jobs.request import Request, file_source, redirect
from tamis.cli.parsing import options
from tamis.cli.parsing.arguments import Argument, CommandExit, Option, echo
from tamis.engine.run.settings import SETTINGS, SettingValue
from tamis.errors import RunConflict, UsageError
from tamis.hints import command
from tamis.stores.run_locations import named_output, run_dir_of

if TYPE_CHECKING:
    from tamis.observe.quarantine import QuarantineEntry

_RAW_CHARS = 60
_MARK = "retry.json"


def quarantine(
    output: Annotated[Path, Argument(metavar="OUTPUT", help="Output folder of a run, or its run directory.")],
    limit: Annotated[int, Option(min=1, help="Show at most so many entries.")] = 50,
    reason: Annotated[str | None, Option(help="Only entries whose reason or stage contains this text.")] = None,
    retry: Annotated[bool, Option("--retry", help="Run the quarantined records again.")] = False,
    into: Annotated[Path | None, Option(help="Where --retry writes; default: OUTPUT-retry.")] = None,
    recipe: Annotated[str | None, Option(help="Recipe for --retry; default: that of the run.")] = None,
    set_: options.Sets = None,
    allow_module: options.AllowModules = None,
    trust_remote_code: options.TrustRemoteCode = False,
    as_json: Annotated[bool, Option("--json", help="One JSON object per line; with --retry one object.")] = False,
    *,
    work: options.RetryOptions,
) -> None:
    """List the quarantined records of a run, or run them again after a fix.

    With --retry, for runs of tamis run, filter and classify, the records pass through the recipe as it is now; the
    documents that come out are in a folder next to the output, named OUTPUT-retry. Exit code 3 if some still
    fail.

    Example: tamis quarantine out/ --reason "not valid JSON"
    """
    output = Path(named_output(output))
    run_dir = Path(run_dir_of(output))
    if not run_dir.is_dir():
        raise UsageError(f"{output} holds no run of Tamis; give the output folder of a run")
    if retry:
        # Paths are relative to this folder; the command may change it.
        output, into = output.absolute(), into.absolute() if into is not None else None
        consent = Consent(tuple(allow_module or ()), trust_remote_code)
        request = _request(output, recipe, options.parse_sets(set_), work.settings, consent)
        raise CommandExit(_retry(request, output, into, reason, as_json))
    if into is not None or recipe is not None or set_:
        raise UsageError("--into, --recipe and --set go with --retry")
    problems: list[str] = []
    _list(select(run_dir, reason, problems), limit, as_json, problems)
    if _report_problems(problems):
        raise CommandExit(1)


def select(run_dir: Path, reason: str | None, problems: list[str]) -> Iterator[QuarantineEntry]:
    """Yield the entries in the order of the input; all of them, or those whose reason or stage contains the text.

    `problems` gets what cannot be read.
    """
    from tamis.observe.quarantine import read_entries

    reason_part = (reason or "").lower()
    for entry in read_entries(run_dir / "quarantine", problems):
        if reason_part in entry.reason.lower() or reason_part in entry.stage.lower():
            yield entry


def _report_problems(problems: list[str]) -> bool:
    """Say what of a quarantine cannot be read; whether there is any."""
    for problem in problems:
        echo(f"error: {problem}", err=True)
    return bool(problems)


def _list(entries: Iterator[QuarantineEntry], limit: int, as_json: bool, problems: list[str]) -> None:
    from tamis.cli.terminal.show import clip, count, print_lines, print_table

    shown = itertools.islice(entries, limit)
    if as_json:
        for entry in shown:
            echo(json.dumps(entry.to_dict(1000), ensure_ascii=True))
        return
    rows = [
        (
            e.file,
            f"{e.offset:,}",
            f"{e.length:,}",
            e.unit,
            e.reason,
            e.stage,
            clip(e.start_of_raw(_RAW_CHARS + 1), _RAW_CHARS),
        )
        for e in shown
    ]
    if not rows:
        print_lines([] if problems else ["nothing in quarantine"])
        return
    columns = ["file", "offset", "length", "unit", "reason", "stage", "begins with"]
    print_table("Quarantine", columns, rows, right=(1, 2))
    n_more = sum(1 for _ in entries)
    print_lines(
        [f"{count(len(rows), 'entry')} shown, {n_more:,} more (--limit, --reason)".replace("entrys", "entries")]
    )


def _request(
    output: Path, recipe: str | None, overrides: dict[str, str], settings: Mapping[str, SettingValue], consent: Consent
) -> Request:
    """Return the request for the records: the named recipe, or the command that made the output.

    Nothing is read from a run directory that belongs to another user.
    """
    from tamis.cli.jobs import command_file
    from tamis.cli.jobs.resume import find_request
    from tamis.engine.run.output.directory import check_run_dir

    check_run_dir(run_dir_of(output))
    if recipe is not None:
        path = os.path.abspath(find_recipe(recipe))
        return Request(RecipeJob(path, {**_open_ends(path), **overrides}), settings, consent=consent)
    if not os.path.exists(os.path.join(run_dir_of(output), command_file.FILE)):
        raise UsageError(_no_recipe(output))
    request = Request(RecipeJob("", overrides), settings, consent=consent)
    return find_request(str(output), request, "--recipe; records otherwise go through the recipe of the run")


def _no_recipe(output: Path) -> str:
    return (
        f"{output} was not made by tamis run, filter or classify, and --retry works for these: it runs their recipe "
        "again. Name a recipe "
        "with stages for the records (--recipe RECIPE), or repair the input files and do again what made the output, "
        "with --fresh"
    )


def _open_ends(path: str) -> dict[str, str]:
    """Return values for the open (???) paths of a recipe that only its reader and writer use: a retry has its own."""
    from tamis.yaml_text import MISSING, fields_of

    root = fields_of(path)
    stages = root["stages"].value if "stages" in root and isinstance(root["stages"].value, list) else []
    ends = [
        stage.value.pop(key)
        for stage, key in [
            *((stage, "file_paths") for stage in stages[:1]),
            *((stage, "path") for stage in stages[-1:]),
        ]
        if isinstance(stage.value, dict) and key in stage.value
    ]
    inside, elsewhere = repr(ends), repr(list(root.values()))
    missing = [name for name, node in root.items() if node.value == MISSING and node.plain]
    return {name: "retry" for name in missing if f"${{{name}}}" in inside and f"${{{name}}}" not in elsewhere}


def _retry(request: Request, output: Path, into: Path | None, reason: str | None, as_json: bool) -> int:
    from tamis.cli.jobs.run import execute_pipeline
    from tamis.cli.terminal.show import count, print_json, print_lines

    if request.workflow() is not None:
        raise UsageError(_no_recipe(output))
    pipeline, kept_settings = request.build()
    file_source(pipeline.build(), "quarantine --retry")
    target = _retry_folder(output, into)
    run_dir = Path(run_dir_of(output))
    records = run_dir / "retry" / "records.jsonl"
    problems: list[str] = []
    n_collected, n_left = collect(select(run_dir, reason, problems), records)
    _report_problems(problems)
    if not n_collected:
        print_lines([_nothing(n_left)])
        return 1 if problems else 3 if n_left else 0
    # What fails again is counted below; it must not end the run early. All records are retried, on this machine: they
    # are few.
    kept_settings = {
        name: value for name, value in kept_settings.items() if name not in SETTINGS or not SETTINGS[name].selects
    }
    kept_settings |= {"quarantine_limit": "100%", "fresh": _is_retry_of(target, output)}
    about = execute_pipeline(
        redirect(pipeline, [str(records)], str(target)),
        kept_settings,
        lambda run_dir: _mark(run_dir, output),
        quiet=True,
    )
    n_still = int(about["n_quarantined"])
    if as_json:
        print_json({**about, "n_retried": n_collected, "n_not_retried": n_left})
    else:
        lines = [
            f"{count(n_collected, 'record')} retried: {about['n_written']:,} written, {about['n_dropped']:,} dropped "
            f"by stages, {n_still:,} failed again"
        ]
        lines += [_nothing(n_left)] if n_left else []
        lines += [f"documents: {target}"] + ([f"failed again: {command('quarantine', target)}"] if n_still else [])
        print_lines(lines)
    return int(about["exit_code"]) or (1 if problems else 3 if n_still or n_left else 0)


def _retry_folder(output: Path, into: Path | None) -> Path:
    """Return the folder that a retry writes to, `into` or one next to the output; raise UsageError for the output."""
    target = (into if into is not None else output.with_name(output.name + "-retry")).resolve()
    if target == output.resolve():
        raise UsageError(f"--into {into} is the output itself; a retry writes to a folder of its own")
    return target


def collect(entries: Iterator[QuarantineEntry], path: Path) -> tuple[int, int]:
    """Write the records as JSONL. Returns how many, and how many entries have no record to take."""
    files.own_folder(path.parent, "remove it")
    n_collected = n_left = 0
    with files.create(path) as out:
        for entry in entries:
            n_bytes = 0
            for piece in entry.pieces() if entry.n == 1 else ():
                # Inside a record a line end can only be white space (JSON escapes it in text).
                clean = piece.replace(b"\r", b" ").replace(b"\n", b" ")
                n_bytes += out.write(clean)
            if n_bytes:
                out.write(b"\n")
                n_collected += 1
            else:
                n_left += 1
    return n_collected, n_left


def _nothing(n_left: int) -> str:
    if not n_left:
        return "nothing to retry"
    return (
        f"stretches of input that hold no readable record, not retried: {n_left:,}; repair the files and run the "
        "recipe again"
    )


def _mark(run_dir: str, output: Path) -> None:
    """Remember what this folder is, so that the next retry may replace it."""
    files.write_json(os.path.join(run_dir, _MARK), {"retry_of": str(output.resolve())})


def _is_retry_of(target: Path, output: Path) -> bool:
    """Return True if `target` holds an earlier retry of the same output, which this one replaces."""
    try:
        mark = json.loads(Path(run_dir_of(target), _MARK).read_bytes())
    except FileNotFoundError:
        return False
    except (OSError, ValueError) as exc:
        raise RunConflict(f"{target} cannot be used ({exc}); give another folder with --into") from None
    return isinstance(mark, dict) and mark.get("retry_of") == str(output.resolve())
