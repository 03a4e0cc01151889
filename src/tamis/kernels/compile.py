"""`python -m tamis.kernels.compile [GROUP ...]`: fill the kernel cache, in a process of its own, before any memory cap is set.

Compilation takes a few hundred MB and aborts the process when memory runs out, so it never happens in a worker, and numba is
imported nowhere else. A group is ready once another process could load what was compiled. Several processes may do this at once.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time

import tamis.kernels
from tamis.kernels._types import Signature
from tamis.kernels.cache import cache_dir, kernels_are_cached, mark_ready, write_atomically
from tamis.kernels.groups import all_groups, import_all
from tamis.kernels.native import FILE, pack

_LOAD = (
    "import sys; sys.path.insert(0, sys.argv[1]); from tamis.kernels import groups, native; "
    "native.may_compile = False; [groups.load_all(group) for group in sys.argv[2:]]"
)


def compile_groups(groups: list[str]) -> dict[str, bytes]:
    """The machine code of each group. Only in a process that has imported no kernel before."""
    os.environ.pop("NUMBA_DISABLE_JIT", None)  # for who looks for a mistake in his own functions
    tamis.kernels.compiling = frozenset(groups)
    from tamis.kernels import _jit

    for group in groups:
        import_all(group)
    return {group: _packed(_jit.compiled.get(group, [])) for group in groups}


def _packed(kernels: list[tuple[str, Signature, str, bytes]]) -> bytes:
    from tamis.kernels._entries import entries, entry_symbol

    called = {name: (str(signature), entry_symbol(symbol)) for name, signature, symbol, _ in kernels}
    ways_in = entries([(symbol, signature) for _, signature, symbol, _ in kernels])
    return pack(called, [*(code for *_, code in kernels), ways_in])


def _keep(made: dict[str, bytes]) -> str:
    """Why it could not be kept; empty where it was, and a process could load it."""
    folders = {group: cache_dir(group) for group in made}
    for group, folder in folders.items():
        if folder is None:
            return "no private, writable cache folder"
        try:
            write_atomically(folder / FILE, made[group])
        except OSError as exc:
            return str(exc)
    source = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    # A symbol that LLVM does not find ends the process: better this one than a run.
    done = subprocess.run(
        [sys.executable, "-P", "-c", _LOAD, source, *made], capture_output=True, text=True, check=False
    )
    if done.returncode:
        return f"another process could not load it: {done.stderr[-1000:].strip() or done.returncode}"
    for folder in folders.values():
        if folder is not None:
            mark_ready(folder)
    return ""


def main(arguments: list[str] | None = None) -> int:
    began_s = time.perf_counter()
    parser = argparse.ArgumentParser("tamis.kernels.compile", description="Compile kernels and keep them.")
    parser.add_argument("groups", nargs="*", help="all of them if none is named")
    parser.add_argument(
        "--into", type=int, help="descriptor of a file that gets the machine code of the one group named"
    )
    given = parser.parse_args(arguments)
    groups = given.groups or all_groups()
    missing = groups if given.into is not None else [group for group in groups if not kernels_are_cached([group])]
    made = compile_groups(missing) if missing else {}
    why_not = _keep(made) if made else ""
    if given.into is not None:
        with os.fdopen(given.into, "wb") as file:
            file.write(made[groups[0]])
    took_s = time.perf_counter() - began_s
    if why_not:
        print(
            f"kernels: compiled in {took_s:.1f} s but not kept: {why_not}; set TAMIS_CACHE_DIR to a folder of your own with space left",
            file=sys.stderr,
        )
        return 1
    print(f"kernels: {len(missing)} of {len(groups)} groups compiled in {took_s:.1f} s, all ready")
    return 0


if __name__ == "__main__":
    sys.exit(main())
