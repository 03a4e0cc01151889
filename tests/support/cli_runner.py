"""Calls a command in this process, as the console script would, and catches what it prints and its exit code."""

from __future__ import annotations

import io
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from unittest.mock import patch

from tamis.cli.main import app as tamis
from tamis.cli.main import run_command
from tamis.cli.parsing.arguments import Commands, run


@dataclass
class Result:
    exit_code: int
    stdout: str
    stderr: str
    output: str  # both, in the order in which they were printed
    exception: BaseException | None = None


class _Stream(io.TextIOWrapper):
    """Text that goes to a buffer of its own and to one that both streams share."""

    def __init__(self, shared: list[str]) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", write_through=True)
        self._shared = shared

    def write(self, text: str) -> int:
        self._shared.append(text)
        return super().write(text)

    def text(self) -> str:
        self.flush()
        found = self.buffer
        assert isinstance(found, io.BytesIO)
        return found.getvalue().decode()


class CliRunner:
    def invoke(self, app: Commands, arguments: Sequence[str]) -> Result:
        shared: list[str] = []
        out, err = _Stream(shared), _Stream(shared)
        code, failure = 0, None
        with patch.object(sys, "stdout", out), patch.object(sys, "stderr", err):
            try:
                run(run_command if app is tamis else app, list(arguments))
            except SystemExit as exc:
                code = exc.code if isinstance(exc.code, int) else 0 if exc.code is None else 1
            except Exception as exc:
                code, failure = 1, exc
                traceback.print_exc()
        return Result(code, out.text(), err.text(), "".join(shared), failure)
