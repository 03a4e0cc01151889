"""Finds IP addresses: IPv4 and IPv6."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator

Span = tuple[int, int]

_OCTET = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_IPV4 = re.compile(rf"(?<![0-9A-Za-z_.])(?:{_OCTET}\.){{3}}{_OCTET}(?![0-9A-Za-z_]|\.[0-9])")
# Words before four numbers that are a version or a section, not an address.
_NUMBERED = ("version", "ver", "release", "rev", "revision", "build", "section", "chapter", "§", "v")
_IPV6 = re.compile(r"[0-9A-Fa-f]*:[0-9A-Fa-f:.]+")
_MAX_IPV6 = 45
# Assigned addresses: not ::1, nor C++ names that parse as one (`add::bad`).
_ASSIGNED = tuple(
    map(ipaddress.IPv6Network, ("2000::/3", "fc00::/7", "fe80::/10", "ff00::/8", "::ffff:0:0/96", "64:ff9b::/96"))
)


def find_ipv4(text: str) -> Iterator[Span]:
    """Yield the spans of IPv4 addresses, without version numbers."""
    for match in _IPV4.finditer(text):
        before = text[max(0, match.start() - 12) : match.start()].rstrip(" .:").lower()
        if not before.endswith(_NUMBERED) or not _is_word(before):
            yield match.span()


def _is_word(before: str) -> bool:
    """Return True if the text ends in exactly one of the words, not in a longer one.

    For example, "server" does not number anything.
    """
    word = before[len(before.rstrip("abcdefghijklmnopqrstuvwxyz§")) :]
    return word in _NUMBERED


def find_ipv6(text: str) -> Iterator[Span]:
    """Yield the spans of assigned IPv6 addresses, in linear time: runs do not overlap."""
    for start, end in _runs(text):
        run = text[start:end].rstrip(".")
        if run[:1] == ":" and run[:2] != "::":
            run, start = run[1:], start + 1
        if run[-1:] == ":" and run[-2:] != "::":
            run = run[:-1]
        end = start + len(run)
        if len(run) > _MAX_IPV6 or run.count(":") < 2 or text[end : end + 1].isalnum():
            continue
        if start and text[start - 1].isalnum():
            continue
        address = parse_ipv6(run)
        if address is not None and any(address in network for network in _ASSIGNED):
            yield start, end


def _runs(text: str) -> Iterator[Span]:
    """Yield runs of hexadecimal digits, colons and points that contain a colon."""
    colon = text.find(":")
    while colon >= 0:
        before = text[max(0, colon - 5) : colon]
        start = colon - (len(before) - len(before.rstrip("0123456789abcdefABCDEF")))
        match = _IPV6.match(text, start)
        if match is not None:
            yield start, match.end()
        colon = text.find(":", match.end() if match is not None else colon + 1)


def parse_ipv6(run: str) -> ipaddress.IPv6Address | None:
    """Return the address, or None if the text is not one."""
    try:
        return ipaddress.IPv6Address(run)
    except ValueError:
        return None
