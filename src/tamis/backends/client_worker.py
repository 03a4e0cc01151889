"""The process of a client's worker: calls what comes through its pipe, and answers, until the pipe is closed.

Started by client.py alone, with the number of a pipe that it inherits; no other process can write to it.
"""

from __future__ import annotations

import sys
from multiprocessing.connection import Connection
from typing import Any

import cloudpickle


def main(handle: int) -> None:
    connection: Connection = Connection(handle)
    while True:
        try:
            pickled = connection.recv_bytes()
        except EOFError:
            return
        connection.send_bytes(_answer(pickled))


def _answer(pickled: bytes) -> bytes:
    """Call a pickled function; return (raised, result) pickled, or an error if that cannot be pickled."""
    answer: tuple[bool, Any]
    try:
        function, args, kwargs = cloudpickle.loads(pickled)
        answer = False, function(*args, **kwargs)
    except Exception as exc:
        answer = True, exc
    try:
        return bytes(cloudpickle.dumps(answer))
    except Exception as exc:
        return bytes(cloudpickle.dumps((True, RuntimeError(f"{answer[1]!r} cannot be sent back: {exc}"))))


if __name__ == "__main__":
    main(int(sys.argv[1]))
