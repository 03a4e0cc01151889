"""Fingerprints of single files that results depend on (a fastText model, a table of characters), and what those of
others are made of: whole models (folder.py), tokenizers (pretrained.py). What `model_files` tells. Imports nothing, for
every run with a filter loads it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

_WHOLE_BYTES, _N_PLACES, _PLACE_BYTES = 8 << 20, 128, 64 << 10


def of_file(path: str | os.PathLike[str]) -> str | None:
    """Size and contents of a file; of a large one its beginning, its end and places between them.

    None: it cannot be read.
    """
    found = hashlib.blake2b(digest_size=16)
    try:
        add_file(found, Path(path))
    except OSError:
        return None
    return found.hexdigest()


def joined(fingerprints: Sequence[str]) -> str:
    """Join several fingerprints into one that is compared part by part.

    See `is_same_model` of engine/run/identity.py. "": a fingerprint that is not known (yet).
    """
    return "+".join(fingerprints).rstrip("+")


def add_file(found: hashlib.blake2b, file: Path) -> None:
    """Add the size and the contents of a file to a hash.

    Of a large file: its beginning, its end and several positions between them.
    """
    with file.open("rb") as data:
        size = os.fstat(data.fileno()).st_size
        found.update(f"{size}\0".encode())
        if size <= _WHOLE_BYTES:
            found.update(data.read())
            return
        for i in range(_N_PLACES):
            data.seek((size - _PLACE_BYTES) * i // (_N_PLACES - 1))
            found.update(data.read(_PLACE_BYTES))
