"""Hosts of URLs, and the domain that was registered for each, by a snapshot of the Public Suffix List.

The snapshot (public_suffixes.txt) has the ICANN section: blogspot.com is a registered domain, not a public suffix.
URLs are read leniently, as crawlers write them; a host that ends in no public suffix has no registered domain.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

_SCHEME = re.compile(r"(?:[a-zA-Z0-9+.-]+:)?//")
_END = re.compile(r"[/?#]")
_DOTS = str.maketrans("\u3002\uff0e\uff61", "...")
_MAX_LABELS = 64
_IPV4 = re.compile(r"(?:(?:[0-9]|[1-9][0-9]|1[0-9]{2}|2[0-4][0-9]|25[0-5])(?:\.(?!$)|$)){4}", re.ASCII)
_END_MARK = ""  # a key of a node of the tree that no label can be: some rule ends there


class UrlHost(NamedTuple):
    """A host in full, and its registered domain; both "" for addresses and for hosts without a public suffix."""

    name: str
    registered: str


def host_of(url: str) -> str:
    """Return the host of a URL as it is written, without user, port and the dot of the root.

    >>> host_of("https://user:pass@Example.org.:8080/a?b"), host_of("example.org/a"), host_of("//x.org")
    ('Example.org', 'example.org', 'x.org')
    """
    match = _SCHEME.match(url)
    start = match.end() if match is not None else 0
    end = _END.search(url, start)
    authority = url[start : end.start() if end is not None else len(url)].rpartition("@")[2]
    if authority.startswith("[") and "]" in authority:
        return authority[: authority.index("]") + 1]
    return authority.partition(":")[0].strip().rstrip(".\u3002\uff0e\uff61").translate(_DOTS)


def split_host(host: str) -> UrlHost:
    """Return a host with its registered domain, in its own spelling.

    >>> split_host("www.bbc.co.uk"), split_host("a.b.blogspot.com").registered, split_host("localhost")
    (UrlHost(name='www.bbc.co.uk', registered='bbc.co.uk'), 'blogspot.com', UrlHost(name='', registered=''))
    """
    labels = host.split(".")
    start = _suffix_start(labels)
    if start is None or (len(labels) == 4 and _IPV4.fullmatch(host)):
        return UrlHost("", "")
    if start < 1 or not labels[start - 1]:
        return UrlHost("", "")
    registered = ".".join(labels[start - 1 :])
    above = ".".join(labels[: start - 1])
    return UrlHost(f"{above}.{registered}" if above else registered, registered)


def parents_of(host: str) -> list[str]:
    """Return a host and every domain above it, in lower case.

    >>> parents_of("A.b.org")
    ['a.b.org', 'b.org', 'org']
    """
    labels = host.lower().split(".")[-_MAX_LABELS:]
    return [".".join(labels[i:]) for i in range(len(labels))]


def _suffix_start(labels: list[str]) -> int | None:
    """Return the number of the first label of the public suffix; None if the host ends in none."""
    node, position, start = _tree(), len(labels), len(labels)
    for label in reversed(labels):
        known = _as_unicode(label)
        child = node.get(known) if known != _END_MARK else None
        if child is not None:
            position -= 1
            node = child
            if _END_MARK in node:
                start = position
            continue
        if "*" in node:
            return position if f"!{known}" in node else position - 1
        break
    return None if start == len(labels) else start


def _as_unicode(label: str) -> str:
    lowered = label.lower()
    if lowered.startswith("xn--") and len(lowered) <= 63:
        try:
            return lowered[4:].encode("ascii").decode("punycode")
        except UnicodeError:
            return lowered
    return lowered


@cache
def _tree() -> dict[str, Any]:
    """Return the rules as a tree of labels, from the last one on; 2 MB."""
    root: dict[str, Any] = {}
    rules = Path(__file__).with_name("public_suffixes.txt").read_text(encoding="utf-8").splitlines()
    for rule in rules:
        if rule.startswith("//") or not rule:
            continue
        node = root
        for label in reversed(rule.split(".")):
            node = node.setdefault(label, {})
        node[_END_MARK] = True
    return root
