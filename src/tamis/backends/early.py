"""Processes that load libraries while the command that will need them still reads its arguments.

For commands, which know only then what is to be done: a forking server or a warm process is forked with the first line
of the console script (cli/start.py), loads what every one needs, and waits for the rest. It ends with this
process, used or not.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import socket

from tamis.backends.forking import Branch, branch
from tamis.kernels.loading.library import RECORDS, all_groups, are_ready
from tamis.memory import meter

EARLY = "early"
_started: dict[str, tuple[Branch, socket.socket]] = {}


def prepare(module: str, *more: str) -> None:
    """Start the process of a module of this room: "tamis.backends.forkserver" or "tamis.backends.warm_process".

    `more`: modules that it imports, too, while it waits. None is started where other threads are alive, those of a
    loaded library among them: a fork would copy their locks as they happen to be.
    """
    if not _started and meter.n_threads() <= 1:
        with contextlib.suppress(OSError):
            _started[module] = branch(module, EARLY, *more)


def take(module: str) -> tuple[Branch, socket.socket] | None:
    """Return the process that was started early for `module`, or None if there is none.

    Ends processes that were started for other modules, since they only occupy memory.
    """
    process_started = _started.pop(module, None)
    for process, ours in _started.values():
        ours.close()
        process.kill()
        process.wait()
    _started.clear()
    return process_started


def load(*more: str) -> bool:
    """Load the common libraries in an early-started process, before it receives any message.

    Returns False if kernels must be compiled first; then the budget must suffice for compiling alone.
    """
    if not are_ready(all_groups()):
        return False
    try:
        from tamis.backends.preload import load_libraries
        from tamis.memory.release import drop_clean_pages

        load_libraries([RECORDS])
        for name in more:
            importlib.import_module(name)
        gc.freeze()  # not collected before: 40 ms, for some thousand objects of which no page is freed
        drop_clean_pages()
    except Exception:  # it is done again when the log is open, where the complaint goes
        return False
    return True
