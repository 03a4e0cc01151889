"""A recipe tried on copies of the beginnings of its input files, for `tamis plan` and `tamis profile`.

Copying needs pyarrow, and the calling process counts in the budget, so it has a process of its own
(input_heads.py). So has
every configuration of `tamis profile`, which gets its whole budget: this module, JSON on stdin and stdout. A trial
begins with small partitions and no experience, and leaves none: what one learns must not help the next, and a few MB
are no run to remember. Imports nothing heavy.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import tamis
from tamis.cli.jobs.command_file import decode_job, encode_job
from tamis.cli.jobs.jobs import Consent
from tamis.cli.jobs.request import Request, reader_formats, redirect
from tamis.engine.run.settings import SETTINGS
from tamis.errors import BudgetError, TamisError
from tamis.forecast.prediction import Prediction
from tamis.memory.kill_tree import end_within

if TYPE_CHECKING:
    from tamis.engine.progress import ProgressState
    from tamis.pipeline import Pipeline

_STOP_S = 15.0
# Settings of a recipe that a trial does not follow: it has its own folder, and runs the whole of its few documents.
_IGNORED = {"scratch", "keep_rejected", "queue", *(s.name for s in SETTINGS.values() if s.selects)}


@dataclass(frozen=True)
class Trial:
    """Costs of a run over the copies.

    `status`: ok, infeasible (the budget is too small) or failed, for the reason in `message`; figures only where there
    is a `run_dir`.
    """

    status: str
    message: str
    exit_code: int = 0
    run_dir: str = ""
    peak_bytes: int = 0
    seconds: float = 0.0
    work_s: float = 0.0  # from the first partition on
    cpu_s: float = 0.0  # of all processes
    read_bytes: int = 0
    written_bytes: int = 0
    n_documents: int = 0
    n_written: int = 0
    counters: dict[str, int] = field(default_factory=dict)
    prediction: Prediction = field(default_factory=Prediction)


def copy_heads(
    pipeline: Pipeline, paths: Sequence[str], folder: str, n_bytes: int, packed: bool = False
) -> list[dict[str, Any]]:
    """Return what input_heads.py reports about the copy of each file that is readable and holds a whole record.

    Raise TamisError if there is no such file.
    """
    request = {
        "paths": list(paths),
        "folder": folder,
        "n_bytes": n_bytes,
        "packed": packed,
        "formats": reader_formats(pipeline),
    }
    try:
        copies: list[dict[str, Any]] = _call_module("tamis.cli.plan.input_heads", request)
    except TamisError as exc:
        raise TamisError(f"the input files cannot be looked into: {exc}") from None
    usable = [one for one in copies if one.get("copy")]
    if not usable:
        wrong = [f"{one['path']}: {one['error']}" for one in copies if "error" in one]
        raise TamisError(f"nothing to try the recipe on: {[*wrong, 'the files hold no whole record'][0]}")
    return usable


def spread(paths: Sequence[str], n: int) -> list[str]:
    """Return `n` of the paths, evenly spread over the whole list.

    >>> spread(["a", "b", "c", "d", "e"], 2)
    ['a', 'c']
    """
    return list(paths) if len(paths) <= n else [paths[i * len(paths) // n] for i in range(n)]


def run_trial_in_process(request: Request, paths: list[str], output: str, **how: Any) -> Trial:
    """Run a trial in a separate process."""
    message = {
        "job": encode_job(request.job),
        "settings": dict(request.settings),
        "consent": asdict(request.consent),
        "paths": paths,
        "output": output,
        "how": how,
        "parent": os.getpid(),
    }
    try:
        return Trial(**_call_module("tamis.cli.plan.trial", message))
    except TamisError as exc:
        return Trial("failed", str(exc), exc.exit_code)


def _call_module(module: str, message: dict[str, Any]) -> Any:
    """Run the module in a process and return its answer, the last line it prints.

    Raise TamisError with the last line of its stderr if it fails. On an interrupt the process is ended before
    any of its files are removed.
    """
    source = os.path.dirname(os.path.dirname(os.path.abspath(tamis.__file__)))
    path = os.pathsep.join(dict.fromkeys([source, *(p for p in sys.path if p)]))
    process = subprocess.Popen(
        [sys.executable, "-m", module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        start_new_session=True,
    )
    try:
        out, err = process.communicate(json.dumps(message))
    except BaseException:
        process.terminate()
        end_within(process, _STOP_S)
        raise
    if process.returncode:
        raise TamisError((err.strip().splitlines() or [f"status {process.returncode}"])[-1][:500])
    return json.loads(out.splitlines()[-1])  # a stage of the user's may print


def run_trial(request: Request, paths: list[str], output: str, how: dict[str, Any], parent: int | None = None) -> Trial:
    """Run the stages of a recipe on other files into another folder.

    `how`: settings over those of the recipe; a `blocksize` of None: the measured peak decides, whatever the reader
    says. `parent`: only as long as that process waits for it.
    """
    from tamis.backends.local import LocalExecutor
    from tamis.cli.terminal.interrupts import sigterm_interrupts
    from tamis.stages.file_partitioning import FilePartitioningStage

    began_s: list[float] = []  # when the first partition was given out

    def watch(state: ProgressState) -> None:
        if parent is not None and os.getppid() != parent:  # the process that wants the result has ended
            raise KeyboardInterrupt
        if state["phase"] == "working" and not began_s:
            began_s.append(time.monotonic())

    pipeline, settings = request.build()
    settings |= how
    small = redirect(pipeline, paths, output)
    if settings.get("blocksize", "") is None and isinstance(source := small.stages[0], FilePartitioningStage):
        source.blocksize = None
    run_settings = _trial_settings(settings)
    if not small.build()[-1].is_sink_stage:
        run_settings["run_dir"] = output
    try:
        with sigterm_interrupts(), without_profiles():
            done = small.execute(
                LocalExecutor(progress=watch, report=False), count_caller=True, alerts="off", **run_settings
            )
    except TamisError as exc:
        return Trial("infeasible" if isinstance(exc, BudgetError) else "failed", str(exc), exc.exit_code)
    work_s = time.monotonic() - began_s[0] if began_s else done.seconds
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return Trial(
        "failed" if done.exit_code else "ok",
        done.message,
        done.exit_code,
        done.run_dir,
        done.peak_bytes,
        done.seconds,
        max(min(work_s, done.seconds), 0.05),
        sum(u.ru_utime + u.ru_stime for u in used),
        done.ledger.read_bytes,
        done.ledger.written_bytes,
        done.ledger.records.n,
        done.ledger.written.n,
        dict(done.counters),
        done.prediction,
    )


def _trial_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that a trial follows."""
    names = [name for name in SETTINGS if name not in _IGNORED]
    return {name: settings[name] for name in names if settings.get(name) is not None}


@contextmanager
def without_profiles() -> Iterator[None]:
    """Disable profiles inside the block: nothing is learned from earlier runs or stored for later ones."""
    before = os.environ.get("TAMIS_PROFILES")
    os.environ["TAMIS_PROFILES"] = "off"
    try:
        yield
    finally:
        del os.environ["TAMIS_PROFILES"]
        if before is not None:
            os.environ["TAMIS_PROFILES"] = before


if __name__ == "__main__":
    message = json.load(sys.stdin)
    try:
        request = Request(
            decode_job(message.pop("job")), message.pop("settings"), consent=Consent(**message.pop("consent"))
        )
        trial = asdict(run_trial(request, **message))
    except KeyboardInterrupt:
        sys.exit(130)
    print("\n" + json.dumps(trial))  # on a line of its own, whatever a stage has printed before
