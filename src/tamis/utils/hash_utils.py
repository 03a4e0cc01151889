"""Hashes that are the same in every process and on every machine."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable


def get_deterministic_hash(inputs: Iterable[str], seed: str = "") -> str:
    """Return 16 hexadecimal digits for a set of texts, whatever their order.

    >>> get_deterministic_hash(["b", "a"]) == get_deterministic_hash(["a", "b"]) != get_deterministic_hash(["ab"])
    True
    """
    digest = hashlib.blake2b(digest_size=8)
    for text in (*sorted(map(str, inputs)), seed):
        data = text.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()
