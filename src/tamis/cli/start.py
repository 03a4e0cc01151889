"""The console script. For commands that will need worker processes it has one load the libraries while this one reads its arguments."""

from __future__ import annotations

import gc
import sys

_WORKING = ("exact", "fuzzy", "lines", "remove")  # commands of `tamis dedup` that fork workers from a nursery


def main() -> None:
    gc.disable()  # what is imported now stays; a command turns it on again (main.py)
    if needs_workers(sys.argv[1:]):
        from tamis.backends.nursery import prepare
        from tamis.memory.lookout import begin

        begin(count_caller=True)  # to the end of this process: loading counts, too
        prepare()
    from tamis.cli.main import main as run

    run()


def needs_workers(arguments: list[str]) -> bool:
    """
    >>> needs_workers(["dedup", "fuzzy", "in", "out"]), needs_workers(["dedup", "fuzzy", "--help"]), needs_workers(["run"])
    (True, False, False)
    """
    return len(arguments) > 3 and arguments[0] == "dedup" and arguments[1] in _WORKING and "--help" not in arguments


if __name__ == "__main__":
    main()
