"""Compile kernels into shared libraries: `python -m tamis.kernels.compile [GROUP ...]`.

The only process that imports numba.

Compiling takes some 200 MB and ends the process when memory runs out, so it never happens in a worker. A child of
this process compiles the modules of a group; under a memory limit there is one child per module, one after the other,
so that the memory of each is released before the next. A last child makes one object file of the results, a linker
turns it into a library, and another process loads that and calls kernels whose answers are known before the library
gets its name. Several processes may do all this at once. Started by the build of a package (hatch_build.py) and by
kernels/loading/first_use.py.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import importlib.util
import json
import math
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import tamis.kernels
from tamis.errors import TamisError, install_command
from tamis.kernels.building.compile_process import KERNEL_S, SOURCE, command, environment, n_kernels
from tamis.kernels.language.types import signature_of
from tamis.kernels.loading import cache, library
from tamis.kernels.loading.levels import CpuLevel, cpu_flags, named, runnable, this_level
from tamis.kernels.loading.library import all_groups, module_names

_CHECK = (
    "import sys; sys.path.insert(0, sys.argv[1]); from pathlib import Path; "
    "from tamis.kernels.loading import canary, native; "
    "native.use(sys.argv[2], Path(sys.argv[3])); canary.check(sys.argv[2])"
)
_TABLES = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); from tamis.kernels.text._unicode import main; sys.exit(main())"
)
Done = Callable[[int], None]


def shared_library(group: str, level: CpuLevel, frugal: bool, done: Done) -> bytes:
    """Compile the shared library of a group; call it only in a process for this level.

    `frugal`: compile every module in its own child process.
    """
    from tamis.kernels.building.link import shared_library as linked

    modules = [module for module in module_names(group) if n_kernels(module)]
    parts = [[module] for module in modules] if frugal else [modules]
    compiled = []
    for part in parts:
        compiled += json.loads(_in_child(partial(_compiled, part), ", ".join(part)))
        done(sum(map(n_kernels, part)))
    return linked(_in_child(partial(_emitted, compiled, level), "them all"))


def _compiled(modules: list[str]) -> bytes:
    """Return [name, signature, symbol, LLVM code] of every kernel of some modules, as JSON."""
    tamis.kernels.compiling.modules = frozenset(modules)
    from tamis.kernels.language import jit

    for module in modules:
        importlib.import_module(module)
    return json.dumps([[k.name, str(k.signature), k.symbol, k.code] for k in jit.compiled]).encode()


def _leave_scipy_out() -> None:
    """Keep numba from loading scipy: 75 MB of libraries for linear algebra that no kernel uses."""
    absent: Any = None
    sys.modules.setdefault("scipy", absent)


def _emitted(compiled: list[list[str]], level: CpuLevel) -> bytes:
    from tamis.kernels.building.codegen import Compiled, machine_code

    return machine_code([Compiled(name, signature_of(text), *rest) for name, text, *rest in compiled], level)


def _child(function: Callable[[], object]) -> int:
    """Fork a process that runs a function and exits with 1, and a message on stderr, if it fails. Return its pid."""
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        function()
        status = 0
    except BaseException as exc:
        print(str(exc) if isinstance(exc, TamisError) else f"{type(exc).__name__}: {exc}", file=sys.stderr, flush=True)
    finally:
        os._exit(status)


def _in_child(function: Callable[[], bytes], what: str) -> bytes:
    """Return the result of a function run in a child process, whose memory is then released.

    Raises TamisError if it fails.
    """
    with tempfile.TemporaryFile(buffering=0) as answer:
        _, status = os.waitpid(_child(lambda: answer.write(function())), 0)
        if status:
            raise TamisError(f"kernels: compiling {what} failed: exit code {os.waitstatus_to_exitcode(status)}")
        answer.seek(0)
        return answer.read()


# -- making one library -----------------------------------------------------------------------------------------------
def make(group: str, level: CpuLevel, folder: Path, frugal: bool = True, done: Done = lambda _: None) -> Path:
    """Compile a group, try the library, and put it into a folder under its name. TamisError where it is no good.

    `done` is called with the number of kernels that were compiled since.
    """
    data = library.signed(shared_library(group, level, frugal, done))
    with tempfile.TemporaryDirectory(prefix="tamis-try-") as trial:
        candidate = Path(trial) / library.file_name(group)
        candidate.write_bytes(data)
        if level in runnable(platform.machine(), cpu_flags()):
            check(group, level, candidate)
    path = folder / library.file_name(group)
    cache.keep(path, data)
    if library.BUILT in path.parents:
        path.chmod(0o644)  # part of the installed package, which other users may run
    return path


def check(group: str, level: CpuLevel, path: Path) -> None:
    """Have another process load a library and call kernels whose answers are known.

    TamisError where that goes wrong.
    """
    done = subprocess.run(
        [sys.executable, "-P", "-c", _CHECK, SOURCE, group, str(path)],
        env={**os.environ, "TAMIS_KERNELS": level.name},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        why = done.stderr[-1000:].strip() or f"exit code {done.returncode}"
        raise TamisError(f"kernels: the compiled library of group {group!r} is invalid: {why}")


# -- the command ------------------------------------------------------------------------------------------------------
def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser("tamis.kernels.compile", description="Compile kernels into shared libraries.")
    parser.add_argument("groups", nargs="*", help="all of them if none is named; 'records' is the one that all need")
    parser.add_argument("--level", default="", help="a CPU level, such as x86-64-v3; this CPU's if not given")
    parser.add_argument("--folder", type=Path, help="where to put them; by default a private folder of the user")
    parser.add_argument("--built", action="store_true", help="put them next to the sources")
    parser.add_argument("--jobs", type=int, default=1, help="processes that compile at the same time")
    parser.add_argument("--limit", type=int, help="bytes of memory for each of them; takes longer")
    parser.add_argument("--again", action="store_true", help="also those that are there already")
    parser.add_argument("--progress", action="store_true", help="a line of JSON for every step, for who started this")
    options = parser.parse_args(arguments)
    level = named(options.level) if options.level else this_level()
    env = environment(level)
    if any(os.environ.get(name) != env[name] for name in ("PYTHONHASHSEED", "NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES")):
        os.execve(sys.executable, command(*(sys.argv[1:] if arguments is None else arguments)), env)
    if options.limit:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_DATA, (options.limit, resource.getrlimit(resource.RLIMIT_DATA)[1]))
    groups = options.groups or all_groups()
    try:
        n_made, took_s = _run(groups, level, options)
    except (TamisError, OSError, subprocess.CalledProcessError) as exc:
        print(str(exc), file=sys.stderr)
        return 1
    if not options.progress:
        print(f"kernels: {n_made} of {len(groups)} groups compiled for {level.name} in {took_s:.1f} s, all ready")
    return 0


def _run(groups: list[str], level: CpuLevel, options: argparse.Namespace) -> tuple[int, float]:
    started_s = time.perf_counter()
    if options.built:
        options.folder = library.BUILT / level.name
    folder = options.folder or cache.new_folder(level.name)
    if folder is None:
        raise TamisError(
            "kernels: there is no private, writable folder to keep them; set TAMIS_CACHE_DIR to a folder of your own"
        )
    folder.mkdir(parents=True, exist_ok=True)
    if options.built:
        # Not in this process: what it imports is compiled.
        subprocess.run([sys.executable, "-P", "-c", _TABLES, SOURCE, str(library.BUILT)], check=True)
    there = (
        (lambda group: (folder / library.file_name(group)).is_file())
        if options.folder
        else (lambda group: library.find(group, level) is not None)
    )
    missing = [group for group in groups if options.again or not there(group)]
    if not missing:
        return 0, time.perf_counter() - started_s
    tamis.kernels.compiling.level = level.name
    if importlib.util.find_spec("numba") is None:
        raise TamisError(f"kernels: compiling them needs numba: {install_command('compile')}")
    total, n_jobs = sum(map(_kernels_of, missing)), min(options.jobs, len(missing))
    if not options.progress:
        seconds = math.ceil(total * KERNEL_S / n_jobs)
        print(f"kernels: compiling {total} for {level.name}, about {seconds} s on a quiet machine, once", flush=True)
    _load_compiler()
    if options.limit is None:
        gc.disable()  # a tenth of the time, for 40 MB more in each process
    _side_by_side(missing, level, folder, n_jobs, options)
    return len(missing), time.perf_counter() - started_s


def _load_compiler() -> None:
    """Import numba and have it compile something, so that processes forked from this one need not."""
    _leave_scipy_out()
    from tamis.kernels.building.codegen import collect_only
    from tamis.kernels.language import jit

    collect_only()
    jit.warm_up()
    gc.freeze()


def _side_by_side(groups: list[str], level: CpuLevel, folder: Path, n_jobs: int, options: argparse.Namespace) -> None:
    """Compile each group in a child process, `n_jobs` of them at a time, the longest first.

    With --progress the children report how many kernels they compiled, otherwise this process which groups are ready.
    """
    report = _report if options.progress else lambda n_kernels: None
    waiting = sorted(groups, key=_kernels_of)
    running: dict[int, str] = {}
    failed: list[str] = []
    while running or (waiting and not failed):
        while waiting and len(running) < n_jobs and not failed:
            group = waiting.pop()
            running[_child(partial(make, group, level, folder, options.limit is not None, report))] = group
        pid, status = os.wait()
        group = running.pop(pid)
        if status:
            failed.append(group)
        elif not options.progress:
            print(f"kernels: {_kernels_of(group)} of group {group} ready", flush=True)
    if failed:
        raise TamisError(f"kernels: group {failed[0]!r} could not be compiled")


def _report(n_kernels: int) -> None:
    print(json.dumps({"compiled": n_kernels}), flush=True)


def _kernels_of(group: str) -> int:
    return sum(map(n_kernels, module_names(group)))


if __name__ == "__main__":
    sys.exit(main())
