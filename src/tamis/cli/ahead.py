"""What a command needs at its end is imported while its workers work, and nobody waits for it then."""

from __future__ import annotations

import contextlib
import importlib
import threading

_AFTER_S = 0.8  # until then this process itself is busy starting the run


def import_ahead(*modules: str) -> None:
    """Import modules somewhat later, in a thread. Who needs one earlier imports it as always."""

    def work() -> None:
        for name in modules:
            with contextlib.suppress(Exception):  # it is imported again where it is needed, and complains there
                importlib.import_module(name)

    timer = threading.Timer(_AFTER_S, work)
    timer.daemon = True
    timer.start()
