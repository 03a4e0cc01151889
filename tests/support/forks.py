"""A fork of the process that runs the tests."""

import os
import warnings


def fork() -> int:
    """As `os.fork`.

    Libraries have threads in this process, and Python 3.15 warns of a fork beside them, which is an error in this
    suite.

    What tests do in such a child takes no lock that one of those threads might have held.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", r"This process \(pid=\d+\) is multi-threaded, use of fork", DeprecationWarning
        )
        return os.fork()
