"""The console script.

For commands that will need worker processes it has one load the libraries while this one reads its arguments.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
import threading
from itertools import pairwise

from tamis.cli.terminal.streams import Lost, put, reopen_closed

_WARM, _SERVER = "tamis.backends.warm_process", "tamis.backends.forkserver"
# Commands that work: the process that each needs, and how many arguments it has at least.
_PROCESSES = {
    "classify": (_SERVER, 3),
    "curate": (_WARM, 2),
    "dedup": (_WARM, 3),
    "filter": (_SERVER, 3),
    "images": (_WARM, 2),
    "run": (_SERVER, 1),
    "tokenize": (_WARM, 2),
    "video": (_SERVER, 2),
}


def main() -> None:
    gc.disable()  # what is imported now stays; a command turns it on again (main.py)
    reopen_closed()  # before anything takes the number of a closed stream
    module = process_for(sys.argv[1:])
    if module:
        from tamis.backends.early import prepare

        prepare(module, *modules_for(sys.argv[1:]))
    from tamis.cli.main import main as run

    try:
        run()
    except SystemExit as done:
        if isinstance(done.code, int):
            _end(done.code)
        raise


def _end(code: int) -> None:
    """End this process with `code` at once: to take down what is loaded takes 10 ms, and changes nothing.

    Returns where the interpreter has to do it: other threads are alive, or a stream cannot be flushed.
    """
    if threading.active_count() > 1:
        return
    atexit._run_exitfuncs()
    try:
        put("", flush=True)
        sys.stderr.flush()
    except BrokenPipeError:  # the reader of its output has ended
        code = 1
    except Lost as exc:
        print(f"error: {exc}", file=sys.stderr, flush=True)
        code = code or exc.exit_code
    except (OSError, ValueError, AttributeError):
        return
    os._exit(code)


def process_for(arguments: list[str]) -> str:
    """Return the module of the process that a command will need; empty if it needs none.

    >>> process_for(["dedup", "fuzzy", "in", "out"]), process_for(["filter", "gopher", "in", "out"])
    ('tamis.backends.warm_process', 'tamis.backends.forkserver')
    >>> process_for(["dedup", "fuzzy", "--help"]), process_for(["filter", "--list"])
    ('', '')
    """
    command = arguments[0] if arguments else ""
    module, n_places = _PROCESSES.get(command, ("", 0))
    if len(arguments) <= n_places or not {"--help", "-h", "--plan"}.isdisjoint(arguments):
        return ""
    if command == "dedup":  # its solvers are forked here, whatever the executor
        return "" if arguments[1].startswith("index-") else module
    executor = dict(pairwise(arguments)).get("--executor", "local")
    return module if executor == "local" else ""


def modules_for(arguments: list[str]) -> tuple[str, ...]:
    """Return the modules that this process also imports while it waits: the stages of the command.

    >>> modules_for(["filter", "gopher", "in", "out"]), modules_for(["dedup", "fuzzy", "in", "out"])
    (('tamis.stages.text.io', 'tamis.stages.text.filters'), ())
    """
    if arguments[:1] == ["filter"]:
        return "tamis.stages.text.io", "tamis.stages.text.filters"
    return ("tamis.stages.text.io",) if arguments[:1] == ["run"] else ()


if __name__ == "__main__":
    main()
