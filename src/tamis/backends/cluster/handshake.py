"""Who may take part: both sides prove that they know the token of the session, which itself never goes over the socket.

Each side sends a random challenge and answers the other's with its keyed hash; roles are part of it, so that an answer cannot be sent back.
The network between nodes is trusted as far as Ray itself trusts it: what follows is neither hidden nor signed.
"""

from __future__ import annotations

import hmac
import os
import socket

_CHALLENGE_BYTES, _PROOF_BYTES = 32, 32
TIMEOUT_S = 20.0


def prove(sock: socket.socket, token: str, role: str, other: str) -> bool:
    """True when the other side has proved itself in time. `role`, `other`: "driver" and "agent"."""
    sock.settimeout(TIMEOUT_S)
    own = os.urandom(_CHALLENGE_BYTES)
    try:
        sock.sendall(own)
        theirs = _read(sock, _CHALLENGE_BYTES)
        sock.sendall(_proof(token, role, theirs))
        proof = _read(sock, _PROOF_BYTES)
    except OSError:
        return False
    if not hmac.compare_digest(proof, _proof(token, other, own)):
        return False
    sock.settimeout(None)
    return True


def _proof(token: str, role: str, challenge: bytes) -> bytes:
    return hmac.digest(token.encode(), role.encode() + b":" + challenge, "sha256")


def _read(sock: socket.socket, n: int) -> bytes:
    data = b""
    while len(data) < n:
        more = sock.recv(n - len(data))
        if not more:
            raise ConnectionError("the other side is gone")
        data += more
    return data
