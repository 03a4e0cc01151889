"""Who may look: only this machine by default; from elsewhere with a token. Pure: no sockets here.

Host names are checked, so that a web page which makes its own name point to this machine (DNS rebinding) gets nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_LOOPBACK = re.compile(r"127(\.[0-9]{1,3}){3}")
_COOKIE = re.compile(r"[0-9A-Za-z_-]{8,256}")


def is_loopback(host: str) -> bool:
    """
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
class Guard:
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
        """Any name is good where a token is asked for and others may come: a foreign page has no cookie of this name's."""
        name = host_of(header or "")
        return is_loopback(name) or (bool(name) and (name == self.host.lower() or not is_loopback(self.host)))

    def lets_in(self, given: str, cookies: str) -> bool:
        """`given`: the token in the address; `cookies`: the Cookie header."""
        if not self.token:
            return True
        import hmac  # OpenSSL, for dashboards with a token only

        found = [given]
        for part in cookies[:8192].split(";"):
            name, _, value = part.strip().partition("=")
            if name == self.cookie:
                found.append(value)
        return any(hmac.compare_digest(one.encode(), self.token.encode()) for one in found if one)

    def new_cookie(self) -> str:
        return f"{self.cookie}={self.token}; Path=/; HttpOnly; SameSite=Strict"
