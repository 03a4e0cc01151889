"""Run commands and scripts in forks of one interpreter that has everything imported.

A `tamis` command takes 0.6 s of CPU time for a dozen documents, a script 0.4 s for each run of a pipeline, and most of
that loads libraries. Here both are forks of a process with one thread, which start where a fresh interpreter has
finished its imports; what they start in turn is forked as well. Everything else is as in a process of its own:
arguments, folder, environment, streams, exit code.

For tests of what commands and scripts do. Tests of how they start and end, of what they import, of their memory and of
their signals start real ones: by `subprocess`, or with the mark `own_processes`.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import os
import pickle
import pkgutil
import runpy
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import traceback
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import tamis.cli.jobs
from tamis.backends import early, warm_process
from tamis.backends.forking import Branch, die_with_parent
from tamis.backends.preload import load_libraries
from tamis.cli import start
from tamis.kernels.loading.library import all_groups
from tamis.memory import sampler
from tamis.memory.release import hygiene_env
from tests.support.shared_warm_process import is_lent, loading_part, shared_process

ROOT = Path(__file__).parents[2]
_USED = ("tamis.backends.forkserver", "tamis.cli.main", "tamis.stages.text.io", "tamis.stages.text.filters")
_LENGTH = struct.Struct("!I")
_ENDED = struct.Struct("!i")


class _Request(NamedTuple):
    """Arguments of an interpreter: `-m MODULE`, `-c CODE` or a path, and what follows."""

    arguments: list[str]
    cwd: str
    environment: dict[str, str]
    log: str  # of the processes that it forks


class WarmPython:
    """Our side: starts the process when it is first needed."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def run(
        self, arguments: Sequence[str], cwd: str, environment: Mapping[str, str], timeout: float
    ) -> subprocess.CompletedProcess[str]:
        """Run `python ARGUMENTS`; return what it printed and its exit code, as `subprocess.run` does."""
        sock, folder = self._open()
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            request = pickle.dumps(_Request(list(arguments), cwd, dict(environment), f"{folder}/processes.log"))
            socket.send_fds(sock, [_LENGTH.pack(len(request))], [out.fileno(), err.fileno()])
            sock.sendall(request)
            sock.settimeout(timeout)
            try:
                code = _ENDED.unpack(_receive(sock, _ENDED.size))[0]
            except TimeoutError:
                self.close()  # and the command with it
                raise subprocess.TimeoutExpired(list(arguments), timeout) from None
            texts = []
            for file in (out, err):
                file.seek(0)
                texts.append(file.read().decode())
        return subprocess.CompletedProcess(list(arguments), code, *texts)

    def _open(self) -> tuple[socket.socket, str]:
        if self._socket is None or self._folder is None or self._process is None or self._process.poll() is not None:
            self.close()
            self._folder = tempfile.TemporaryDirectory(prefix="warm-")
            self._socket, theirs = socket.socketpair()
            with theirs:
                environment = hygiene_env(os.environ)  # one thread for products, too: those of a library do not fork
                del environment[sampler.MARK_VARIABLE]  # it is no process of a run
                self._process = subprocess.Popen(
                    [sys.executable, __file__, str(theirs.fileno())],
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    env={**environment, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
                )
        return self._socket, self._folder.name

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        if self._folder is not None:
            self._folder.cleanup()
        self._process = self._socket = self._folder = None


def _receive(sock: socket.socket, n_bytes: int) -> bytes:
    data = b""
    while len(data) < n_bytes:
        chunk = sock.recv(n_bytes - len(data))
        if not chunk:
            raise EOFError
        data += chunk
    return data


_warm = WarmPython()


def run_python(
    *arguments: str,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float = 100,
) -> subprocess.CompletedProcess[str]:
    """Run `python ARGUMENTS` without input; return what it printed and its exit code."""
    environment = os.environ if env is None else env
    if is_lent() and loading_part(environment) == loading_part(os.environ):
        return _warm.run(arguments, os.fspath(cwd or os.getcwd()), environment, timeout)
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=environment,
        timeout=timeout,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def end_warm_python() -> None:
    """End the process; it starts again where it is needed."""
    _warm.close()


# -- the process itself -----------------------------------------------------------------------------------------------
def serve(sock: socket.socket) -> None:
    """Fork a child for each request, one after the other, until the other side is gone."""
    _load()
    while True:
        length, fds, _, _ = socket.recv_fds(sock, _LENGTH.size, 2)
        if not length:
            return
        request: _Request = pickle.loads(_receive(sock, _LENGTH.unpack(length)[0]))
        parent = os.getpid()
        pid = os.fork()
        if not pid:
            die_with_parent(parent)
            sock.close()
            _become(request, fds)
        for fd in fds:
            os.close(fd)
        _, status = os.waitpid(pid, 0)
        sock.sendall(_ENDED.pack(os.waitstatus_to_exitcode(status)))


def _load() -> None:
    gc.disable()
    load_libraries(all_groups())
    for name in _USED:
        importlib.import_module(name)
    for module in pkgutil.iter_modules(tamis.cli.jobs.__path__, "tamis.cli.jobs."):
        importlib.import_module(module.name)
    gc.collect()
    gc.freeze()


def _become(request: _Request, fds: list[int]) -> None:
    """Be the command: run it and exit."""
    status = 1
    try:
        os.setpgid(0, 0)
        for fd, stream in zip(fds, (1, 2), strict=True):
            os.dup2(fd, stream)
            os.close(fd)
        os.chdir(request.cwd)
        os.environ.clear()
        os.environ.update(request.environment)
        _forget()
        status = _exit_code(request)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _forget() -> None:
    """Take over nothing from the process that we were forked from, other than what is imported."""
    sampler._TOKEN = os.urandom(8).hex()
    sampler.is_marked = _is_ours
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    given = {str(ROOT), str(ROOT / "src"), str(Path(__file__).parent)}
    sys.path[:] = [*filter(None, paths), *(path for path in sys.path if path not in given)]
    sys.modules["__main__"] = types.ModuleType("__main__")


_is_marked = sampler.is_marked


def _is_ours(pid: int) -> bool | None:
    return pid in Branch.living or _is_marked(pid)


def _exit_code(request: _Request) -> int:
    """Run what the arguments name; return the exit code that the interpreter would give."""
    first, *rest = request.arguments
    command = rest[1:] if first == "-m" else None
    try:
        if command is None or start.process_for(command) or command[:1] == ["curate"]:
            early.prepare(warm_process.__name__)  # one for all runs of the script or command
        with shared_process(Path(request.log)):
            if command is not None:
                assert rest[0] == start.__name__, rest
                sys.path.insert(0, request.cwd)
                sys.argv = [start.__file__, *command]
                start.main()
            else:
                _run_script(first, rest)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _run_script(first: str, rest: list[str]) -> None:
    """Run a script, or code after `-c`."""
    try:
        if first == "-c":
            sys.path.insert(0, "")
            sys.argv = ["-c", *rest[1:]]
            exec(compile(rest[0], "<string>", "exec"), vars(sys.modules["__main__"]))
        else:
            sys.path.insert(0, os.path.dirname(os.path.abspath(first)))
            sys.argv = [first, *rest]
            runpy.run_path(first, run_name="__main__")
    finally:
        threading._shutdown()  # waits for threads, as the interpreter does
        atexit._run_exitfuncs()


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
