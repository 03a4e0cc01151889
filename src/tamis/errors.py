"""The exceptions that Tamis raises on purpose.

TamisError                     exit code 1   something failed; the message says what to do
├── UsageError                 exit code 2   a mistake in a call, recipe or option
│   ├── RecipeError            exit code 2   ... in a recipe: file, line and field are named
│   ├── PipelineError          exit code 2   ... in the order or the columns of stages
│   └── MissingExtra           exit code 2   an optional dependency is absent; names the install command
├── BudgetError                exit code 4   the memory budget cannot hold the job; names the one that can
├── RunConflict                exit code 5   the output belongs to another run, to other data, or is in use
├── Incomplete                 exit code 3   quarantine limit reached, work left, or only a sample delivered
├── ConservationError          exit code 6   records in and records out do not add up
├── StageError                 exit code 7   a stage fails on everything, in setup(), or at all where that ends the run
├── DiskFullError              exit code 8   a disk is full; committed work is kept
├── WorkerError                exit code 1   worker processes cannot be started or keep dying
├── StoreError                 exit code 1   an object store or web server fails; committed work is kept
├── DownloadError              exit code 1   a file could not be fetched; names the URL and a remedy
└── FormatError                (internal)    a record, block or file cannot be decoded; becomes a quarantine entry
    └── InputChanged           (internal)    records differ from an earlier pass; ends the run as RunConflict

Exit code 0 means finished, and every record is accounted for; 130 interrupted by the user (everything committed so far
is kept).
"""

from __future__ import annotations

import errno
import importlib
from collections.abc import Collection
from typing import Any

# docs/reference/exit-codes.md is generated from this table and the classes below.
EXIT_CODES = {
    0: ("finished, and every record is accounted for", "nothing"),
    1: ("failed", "fix what the message names, then run the same command again: committed work is kept"),
    2: ("a mistake in a call, recipe or option; nothing was started", "correct it; the message names the place"),
    3: (
        "incomplete: quarantine limit reached, work left, or only a sample delivered; everything else is committed",
        "look at `tamis quarantine OUT` or the message, then run the same command again",
    ),
    4: (
        "the memory budget cannot hold the job; the message names the one that can",
        "give that much",
    ),
    5: (
        "the output belongs to another run, to other data, or is in use",
        "choose another output, or start over with `--fresh`",
    ),
    6: ("records in and records out do not add up", "do not use the output; report it as a bug"),
    7: (
        "a stage fails on everything, or at all with `--fail-fast`",
        "correct the stage: the message names it, its exception and the line of code",
    ),
    8: (
        "a disk is full; everything committed is kept",
        "make room in the folder that the message names, then run the same command again",
    ),
    130: ("interrupted; everything committed is kept", "run the same command again"),
}


class TamisError(Exception):
    """Base of all deliberate errors. `exit_code` is what the command line returns."""

    exit_code = 1


class UsageError(TamisError, ValueError):
    exit_code = 2


class RecipeError(UsageError):
    """A recipe is wrong. Carries where."""

    def __init__(self, message: str, *, file: str = "", line: int = 0, field: str = "") -> None:
        self.file, self.line, self.field = file, line, field
        where = file + (f":{line}" if line else "") + (f": {field}" if field else "")
        super().__init__(f"{where}: {message}" if where else message)


class PipelineError(UsageError):
    pass


def install_command(extra: str) -> str:
    """Return the command that installs an extra, for a released package and for a checkout.

    >>> install_command("s3")
    "pip install 'tamis[s3]' (in a checkout: pip install '.[s3]')"
    """
    return f"pip install 'tamis[{extra}]' (in a checkout: pip install '.[{extra}]')"


class MissingExtra(UsageError):
    """An optional dependency is not installed."""

    def __init__(self, what: str, extra: str = "", install: str = "") -> None:
        """`extra`: the extra that brings the dependency; or `install`: the command for one that no extra brings."""
        self.extra, self.install = extra, install or install_command(extra)
        super().__init__(f"{what} needs an optional dependency; install it with: {self.install}")


def optional(module: str, what: str, extra: str) -> Any:
    """Import a module that an extra provides; raise MissingExtra, naming what needs it, if it is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError as exc:
        if exc.path is not None and not isinstance(exc, ModuleNotFoundError):  # installed, but the loader cannot map it
            raise
        raise MissingExtra(what, extra) from None


def check_choice(what: str, value: Any, known: Collection[str]) -> None:
    """Raise UsageError unless a setting has one of its allowed values. `what`: its owner and name."""
    if value not in known:
        raise UsageError(f"{what} must be one of {', '.join(known)}, got {value!r}")


class BudgetError(TamisError):
    """`smallest_bytes`: the memory budget that would be enough, as the message names it; 0 where it names none."""

    exit_code = 4

    def __init__(self, message: str, smallest_bytes: int = 0) -> None:
        super().__init__(message)
        self.smallest_bytes = smallest_bytes


class RunConflict(TamisError):
    exit_code = 5


class Incomplete(TamisError):
    exit_code = 3


class ConservationError(TamisError):
    exit_code = 6


class StageError(TamisError):
    """The mistake is in a stage, not in the data. The message names the stage, its exception and the line of code."""

    exit_code = 7


class DiskFullError(TamisError):
    exit_code = 8


class WorkerError(TamisError):
    pass


class StoreError(TamisError, OSError):
    """A store cannot be reached, or refuses.

    An OSError, so that a worker that meets it ends the run instead of blaming the data.
    """

    def __init__(self, message: str) -> None:
        super().__init__(errno.EREMOTEIO, message)

    def __str__(self) -> str:
        return str(self.strerror)

    def __reduce__(self) -> tuple[type[StoreError], tuple[str]]:
        return type(self), (str(self.strerror),)


class DownloadError(TamisError):
    """A file could not be fetched.

    `permanent`: the server says that it is not there, so that trying again cannot help.
    """

    def __init__(self, url: str, reason: str, permanent: bool = False) -> None:
        super().__init__(f"{url}: {reason}")
        self.url, self.reason, self.permanent = url, reason, permanent

    def __reduce__(self) -> tuple[type[DownloadError], tuple[str, str, bool]]:
        return type(self), (self.url, self.reason, self.permanent)


class FormatError(TamisError):
    pass


class InputChanged(FormatError):
    """The input differs from what an earlier pass of the same workflow read, so the workflow cannot continue."""


def first_line(exc: BaseException, n_chars: int = 300) -> str:
    """Return the first line of another library's error, short enough for a message; its type if it has no text."""
    return (str(exc).strip().splitlines() or [type(exc).__name__])[0][:n_chars]


def error_of_run(exit_code: int, message: str) -> TamisError:
    """Return the exception that stands for a run that ended with this exit code, other than 0."""
    kinds = {kind.exit_code: kind for kind in (Incomplete, ConservationError)}
    return kinds.get(exit_code, TamisError)(message)
