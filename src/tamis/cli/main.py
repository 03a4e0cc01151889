"""The `tamis` command. Covers registration of the commands and what happens to their errors; each command is its own file.

Importing this module must stay cheap (typer only): `tamis --help` imports neither numpy, pyarrow nor numba. Command modules
import what they need inside their functions.

Exit codes are those of `tamis.errors`: 0 finished, 1 failed, 2 wrong usage, 3 incomplete, 4 budget, 5 conflict, 6 does not
balance, 130 interrupted.
"""

from __future__ import annotations

import gc
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from tamis import secrets
from tamis.cli import (
    dashboard,
    dedup,
    demo,
    diff,
    doctor,
    filter,
    inspect,
    join,
    metrics,
    plan,
    profile,
    quarantine,
    resume,
    run,
    split,
    top,
    why,
)
from tamis.errors import TamisError


class _Commands(TyperGroup):
    """Turns deliberate errors into one line on stderr and their exit code, for every command alike."""

    def invoke(self, ctx: Any) -> Any:
        if not gc.isenabled():  # off while the commands were loaded (start.py); elsewhere it is not ours to change
            gc.freeze()
            gc.enable()
        try:
            return super().invoke(ctx)
        except TamisError as exc:
            typer.echo(f"error: {secrets.hide(str(exc))}", err=True)
            raise typer.Exit(exc.exit_code) from None
        except KeyboardInterrupt:
            typer.echo("interrupted", err=True)
            raise typer.Exit(130) from None


app = typer.Typer(
    cls=_Commands,
    name="tamis",
    help="Curate text corpora of any size inside the memory you give it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

# One line per command, in the order of `tamis --help`.
app.command("run")(run.run)
app.command("filter")(filter.filter_)
app.add_typer(dedup.app, name="dedup")
app.command("plan")(plan.plan)
app.add_typer(profile.app, name="profile")
app.command("resume")(resume.resume)
app.command("quarantine")(quarantine.quarantine)
app.command("why")(why.why)
app.command("rethreshold")(why.rethreshold)
app.command("top")(top.top)
app.command("dashboard")(dashboard.dashboard)
app.command("metrics")(metrics.metrics)
app.command("report")(diff.report)
app.command("diff")(diff.diff)
app.command("inspect")(inspect.inspect)
app.command("split")(split.split)
app.command("join")(join.join)
app.command("doctor")(doctor.doctor)
app.command("demo")(demo.demo)


def _print_version(wanted: bool) -> None:
    if wanted:
        from tamis.cli.show import tamis_version

        typer.echo(f"tamis {tamis_version()}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command that sys.argv names."""
    try:
        app()
    except KeyboardInterrupt:  # before or after a command: while typer starts, or while output is flushed
        sys.exit(130)


if __name__ == "__main__":
    main()
