"""Compiling kernels that have no library: those edited in a checkout, or of a CPU that the package has none for.

Runs in a separate process (kernels/compile.py), under its own memory limit, one group after the other: before a run
(engine/run/compiling.py), or where a kernel is called first.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from tamis.errors import TamisError
from tamis.kernels.building.compile_process import KERNEL_S, command, environment, n_kernels
from tamis.kernels.loading import cache, library
from tamis.kernels.loading.levels import CpuLevel, this_level
from tamis.kernels.loading.library import module_names

NEED_BYTES = 165_000_000  # of the process that compiles and its child together, measured for the largest module: 151 MB
JOB_BYTES = 100_000_000  # of each further child that compiles at the same time
DATA_BYTES = 240_000_000  # what each of the two may have of its own; more ends it


class Compilation:
    """The process that compiles the missing ones of some groups, from its start to its end.

    Use as a context manager.
    """

    def __init__(
        self,
        groups: Sequence[str],
        level: CpuLevel | None = None,
        folder: Path | None = None,
        environ: Mapping[str, str] | None = None,
        n_jobs: int = 1,
    ) -> None:
        self._level = level or this_level()
        self.missing = [group for group in groups if library.find(group, self._level) is None]
        self.n_kernels = sum(n_kernels(module) for group in self.missing for module in module_names(group))
        self.n_done = 0
        self._folder, self._text, self._n_jobs = folder, b"", min(n_jobs, len(self.missing))
        self._environ = environ or os.environ
        self._started_s = time.monotonic()
        self._errors: IO[bytes] | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Compilation:
        self._errors = tempfile.TemporaryFile()
        folder = ["--folder", str(self._folder)] if self._folder else []
        self._process = subprocess.Popen(
            command(
                "--progress",
                f"--level={self._level.name}",
                f"--limit={DATA_BYTES}",
                f"--jobs={self._n_jobs}",
                *folder,
                *self.missing,
            ),
            env=environment(self._level, self._environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )
        return self

    def __exit__(self, *_: object) -> None:
        process = self._started
        if process.poll() is None:
            process.terminate()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
        if self._errors is not None:
            self._errors.close()

    @property
    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError("a compilation is started by entering it")
        return self._process

    @property
    def pid(self) -> int:
        return self._started.pid

    @property
    def seconds_left(self) -> float:
        """By the kernels that are done; before there are any, by experience."""
        n_left = self.n_kernels - self.n_done
        return n_left * (
            (time.monotonic() - self._started_s) / self.n_done if self.n_done > 2 else KERNEL_S / self._n_jobs
        )

    def wait(self, seconds: float) -> bool:
        """Wait so long for news; whether it has ended. TamisError where it failed."""
        process = self._started
        assert process.stdout is not None
        if select.select([process.stdout], [], [], seconds)[0]:
            data = os.read(process.stdout.fileno(), 1 << 16)
            *lines, self._text = (self._text + data).split(b"\n")
            for line in lines:
                self.n_done += int(json.loads(line)["compiled"])
            if not data:
                process.wait()
        if process.poll() is None:
            return False
        if process.returncode:
            stderr = ""
            if self._errors is not None:
                self._errors.seek(0)
                stderr = self._errors.read()[-2000:].decode(errors="replace").strip()
            raise TamisError(f"kernels cannot be compiled: {_reason(stderr) or f'exit code {process.returncode}'}")
        return True


@contextlib.contextmanager
def compiled_elsewhere(group: str, level: CpuLevel) -> Iterator[Path]:
    """Compile the library of a group now and yield its path.

    If no cache folder can be used, the library is deleted afterwards. Prints a message, because it takes some seconds.
    """
    with contextlib.ExitStack() as stack:
        folder = None
        if cache.new_folder(level.name) is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tamis-kernels-")))
        with Compilation([group], level, folder) as compilation:
            print(announcement(compilation), file=sys.stderr, flush=True)
            while not compilation.wait(10.0):
                pass
        path = folder / library.file_name(group) if folder else library.find(group, level)
        if path is None:
            raise TamisError(f"kernels: group {group!r} was compiled, and is not there")
        yield path


def _reason(stderr: str) -> str:
    r"""Return the output of a failed process with its last line first: commands show one line, logs all.

    >>> _reason("kernels: compiling them needs numba: pip install 'tamis[compile]'")
    "compiling them needs numba: pip install 'tamis[compile]'"
    >>> _reason("Traceback (most recent call last):\nImportError: no numba")
    'ImportError: no numba\nTraceback (most recent call last):'
    """
    *before, last = stderr.split("\n")
    return "\n".join([last.removeprefix("kernels: "), *before])


def announcement(compilation: Compilation) -> str:
    return (
        f"compiling {compilation.n_kernels} kernels for this CPU, which were edited or not built for it: once, about "
        f"{compilation.seconds_left:.0f} s ..."
    )
