"""Access and sockets of the HTTP servers of observers: the dashboard and the metrics endpoint.

Only this machine may look by default; others need a token. Host names are checked, so that a web page that makes its
own name point to this machine (DNS rebinding) gets nothing. The socket is opened in the process of the run, before the
dashboard's process exists; this module imports nothing beyond the standard library.
"""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass


def listen(host: str, port: int) -> socket.socket:
    """Open the listening socket of a server; raise OSError if the port is in use."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(128)  # half-open connections of others must not keep a client from connecting
    except BaseException:
        listener.close()
        raise
    return listener


_LOOPBACK = re.compile(r"127(\.[0-9]{1,3}){3}")
_COOKIE = re.compile(r"[0-9A-Za-z_-]{8,256}")


def is_loopback(host: str) -> bool:
    """Return True if only this machine can reach the address.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("0.0.0.0"), is_loopback("127.example.org")
    (True, True, False, False)
    """
    return host in ("localhost", "::1") or _LOOPBACK.fullmatch(host) is not None


def good_token(token: str) -> bool:
    """Return True if a text is a valid token: 8 to 256 letters, digits, - and _.

    Such a token fits a URL and a cookie.
    """
    return _COOKIE.fullmatch(token) is not None


def host_of(header: str) -> str:
    """Return the name in a Host header, without the port.

    >>> host_of("localhost:8787"), host_of("[::1]:8787"), host_of("A.example.")
    ('localhost', '::1', 'a.example')
    """
    header = header.strip().lower()
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0].rstrip(".")


@dataclass(frozen=True)
class AccessGuard:
    host: str
    port: int
    token: str = ""

    def __post_init__(self) -> None:
        assert self.token or is_loopback(self.host), "a token is needed where others can reach the page"

    @property
    def cookie(self) -> str:
        """Its name: cookies do not know ports, so that each dashboard of a machine needs its own."""
        return f"tamis-{self.port}"

    def knows_host(self, header: str | None) -> bool:
        """Return True for names of this server; any name if a token is needed: a foreign page lacks its cookie."""
        name = host_of(header or "")
        return is_loopback(name) or (bool(name) and (name == self.host.lower() or not is_loopback(self.host)))

    def lets_in(self, token: str, cookies: str) -> bool:
        """Return True if the token of the address, or one in the Cookie header, is right."""
        if not self.token:
            return True
        import hmac  # OpenSSL, for dashboards with a token only

        tokens = [token]
        for part in cookies[:8192].split(";"):
            name, _, value = part.strip().partition("=")
            if name == self.cookie:
                tokens.append(value)
        return any(hmac.compare_digest(one.encode(), self.token.encode()) for one in tokens if one)

    def new_cookie(self) -> str:
        return f"{self.cookie}={self.token}; Path=/; HttpOnly; SameSite=Strict"
