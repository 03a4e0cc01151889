"""Work of `tamis plan` and `tamis profile` that processes of their own do: modules that read one JSON value and print another."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import tamis
from tamis.errors import TamisError

_STOP_S = 15.0


def ask(module: str, asked: dict[str, Any], **env: str) -> Any:
    """What the module answers, on the last line that it prints; TamisError with the last line of its complaints where it fails.

    Interrupted, it is ended before anything is removed under its feet.
    """
    source = os.path.dirname(os.path.dirname(os.path.abspath(tamis.__file__)))
    path = os.pathsep.join(dict.fromkeys([source, *(p for p in sys.path if p)]))
    process = subprocess.Popen(
        [sys.executable, "-m", module], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, **env, "PYTHONPATH": path}, start_new_session=True,
    )  # fmt: skip
    try:
        out, err = process.communicate(json.dumps(asked))
    except BaseException:
        _end(process)
        raise
    if process.returncode:
        raise TamisError((err.strip().splitlines() or [f"status {process.returncode}"])[-1][:500])
    return json.loads(out.splitlines()[-1])  # a stage of the user's may print


def _end(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.communicate(timeout=_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()


def beginnings(
    paths: Sequence[str], folder: str, n_bytes: int, formats: Sequence[str], packed: bool = False
) -> list[dict[str, Any]]:
    """Of each file that can be read and holds a whole record, what beginnings.py tells of its copy; TamisError where there is none."""
    asked = {"paths": list(paths), "folder": folder, "n_bytes": n_bytes, "formats": list(formats), "packed": packed}
    try:
        taken: list[dict[str, Any]] = ask("tamis.cli.plan.beginnings", asked)
    except TamisError as exc:
        raise TamisError(f"the input files cannot be looked into: {exc}") from None
    found = [one for one in taken if one.get("copy")]
    if not found:
        why = next(
            (f"{one['path']}: {one['error']}" for one in taken if "error" in one), "the files hold no whole record"
        )
        raise TamisError(f"nothing to try the recipe on: {why}")
    return found
