"""The socket of the dashboard, which the run's process opens before the dashboard's is there: imports nothing else."""

from __future__ import annotations

import socket


def listen(host: str, port: int) -> socket.socket:
    """Open the listening socket of a server; raise OSError if the port is in use."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
        made.listen(128)  # half-open connections of others must not keep a client from connecting
    except BaseException:
        made.close()
        raise
    return made
