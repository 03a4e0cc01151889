"""The `tamis` command.

Covers registration of the commands and what happens to their errors; each command is its own file.

Only the file of the command that was called is imported, and `tamis --help` imports neither numpy nor pyarrow. Command
modules import what they need inside their functions.

Exit codes are those of `tamis.errors`: 0 finished, 1 failed, 2 wrong usage, 3 incomplete, 4 budget, 5 conflict,
6 records do not add up, 7 a stage fails, 130 interrupted.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence

import tamis
from tamis.cli.parsing.arguments import HELP, Command, CommandExit, Commands, Misuse, echo
from tamis.cli.parsing.arguments import run as call
from tamis.cli.terminal.streams import reopen_closed
from tamis.errors import TamisError


def run_command(typed: Sequence[str]) -> None:
    """Run one command line; an error becomes one line on stderr and its exit code, for every command alike."""
    if not gc.isenabled():  # off while the commands were loaded (start.py); elsewhere it is not ours to change
        gc.freeze()
        gc.set_threshold(10_000)  # by default 700: looking through what commands import would take 13 to 20 ms
        gc.enable()
    try:
        if typed and typed[0] == "--version":
            echo(f"tamis {tamis.__version__}")
            return
        app(_with_merge(typed))
    except Misuse:
        raise
    except TamisError as exc:
        from tamis import secrets

        echo(f"error: {secrets.hide(str(exc))}", err=True)
        raise CommandExit(exc.exit_code) from None
    except BrokenPipeError:  # the reader of its output has ended: `main` ends quietly
        raise
    except OSError as exc:
        echo(f"error: {_describe_os_error(exc)}", err=True)
        raise CommandExit(1) from None
    except KeyboardInterrupt:
        echo("interrupted", err=True)
        raise CommandExit(130) from None


def _describe_os_error(exc: OSError) -> str:
    """Describe what the operating system refused, in one line: the file, then the reason."""
    from tamis import secrets

    if isinstance(exc, FileNotFoundError) and "temporary directory" in str(exc):
        return "no folder for temporary files can be written to; name one that can: TMPDIR=FOLDER"
    if exc.filename is None:
        return secrets.hide(str(exc))
    return secrets.hide(f"{os.fsdecode(exc.filename)}: {exc.strerror or exc}")


def _with_merge(typed: Sequence[str]) -> Sequence[str]:
    """Rewrite `tamis merge COMMAND ...` as that command with --merge, which replaces --shard."""
    if len(typed) < 2 or typed[0] != "merge" or typed[1] in HELP:
        return typed
    usage = "tamis merge COMMAND [OPTIONS] ..."
    if any(word == "--shard" or word.startswith("--shard=") for word in typed):
        raise Misuse("tamis merge: repeat the command without --shard", usage)
    merged = _named(typed[1:])
    if merged is not None and not any("--merge" in p.names for p in merged.options):
        raise Misuse(f"tamis merge: {merged.words} has no --shard, so that there are no parts of it to join", usage)
    return [*typed[1:], "--merge"]


def _named(words: Sequence[str]) -> Command | None:
    """Return the command that these words begin with, or None if they name none."""
    member: Command | Commands = app
    for word in words:
        if not isinstance(member, Commands) or word not in member:
            break
        member = member[word]
    return member if isinstance(member, Command) else None


app = Commands("tamis", help="Curate text corpora of any size inside the memory you give it.")

# One line per command, in the order of `tamis --help`.
app.add("curate", "tamis.cli.jobs.curate:curate")
app.add("run", "tamis.cli.jobs.run:run")
app.add("tokenize", "tamis.cli.jobs.tokenize:tokenize")
app.add("filter", "tamis.cli.jobs.filter:filter_")
app.add("classify", "tamis.cli.models.classify:classify")
app.add("train-classifier", "tamis.cli.models.train_classifier:train_classifier")
app.add("images", "tamis.cli.media.images:images")
app.add("video", "tamis.cli.media.video:video")
app.add("dedup", "tamis.cli.dedup.command:app")
app.add("decontaminate", "tamis.cli.jobs.decontaminate:decontaminate")
app.add("plan", "tamis.cli.plan.command:plan")
app.add("recipe", "tamis.cli.jobs.recipe:app")
app.add("profile", "tamis.cli.profile.command:app")
app.add("merge", "tamis.cli.jobs.resume:merge")
app.add("resume", "tamis.cli.jobs.resume:resume")
app.add("quarantine", "tamis.cli.runs.quarantine:quarantine")
app.add("why", "tamis.cli.runs.why:why")
app.add("rethreshold", "tamis.cli.runs.why:rethreshold")
app.add("top", "tamis.cli.runs.top:top")
app.add("dashboard", "tamis.cli.runs.dashboard:dashboard")
app.add("metrics", "tamis.cli.runs.metrics:metrics")
app.add("report", "tamis.cli.runs.diff:report")
app.add("diff", "tamis.cli.runs.diff:diff")
app.add("inspect", "tamis.cli.data.inspect:inspect")
app.add("split", "tamis.cli.data.split:split")
app.add("join", "tamis.cli.jobs.join:join")
app.add("doctor", "tamis.cli.doctor.command:doctor")
app.add("demo", "tamis.cli.jobs.demo:demo")


def main() -> None:
    """Run the command that sys.argv names."""
    reopen_closed()
    try:
        call(run_command, sys.argv[1:])
    except KeyboardInterrupt:  # before or after a command: while output is flushed
        sys.exit(130)
    except BrokenPipeError:  # the reader of its output has ended
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


if __name__ == "__main__":
    main()
