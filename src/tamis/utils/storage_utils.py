"""Paths put together."""

from __future__ import annotations


def get_full_path(path: str, *parts: str) -> str:
    """Join `path` and parts below it; a URL stays one.

    >>> get_full_path("s3://bucket/a/", "b", "c.json"), get_full_path("/a", "b")
    ('s3://bucket/a/b/c.json', '/a/b')
    """
    return "/".join([str(path).rstrip("/") if parts else str(path), *(str(p).strip("/") for p in parts)])
