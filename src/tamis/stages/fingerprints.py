"""Fingerprints of the files that results depend on (a fastText model, a table of characters).

`ProcessingStage.model_files` returns them; those of models and tokenizers are built from `add_file`. Every run with a
filter imports this module, so it imports little itself.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

_WHOLE_BYTES, _N_SAMPLES, _SAMPLE_BYTES = 8 << 20, 128, 64 << 10


def of_file(path: str | os.PathLike[str]) -> str | None:
    """Return a hash of the size and contents of a file (see `add_file`), or None if it cannot be read."""
    digest = hashlib.blake2b(digest_size=16)
    try:
        add_file(digest, Path(path))
    except OSError:
        return None
    return digest.hexdigest()


def joined(fingerprints: Sequence[str]) -> str:
    """Join several fingerprints, "" for unknown ones, into one (see `is_same_model` of engine/run/identity.py)."""
    return "+".join(fingerprints).rstrip("+")


def add_file(digest: hashlib.blake2b, file: Path) -> None:
    """Add the size and the contents of a file to a hash; of a large file, samples from beginning to end."""
    with file.open("rb") as data:
        size = os.fstat(data.fileno()).st_size
        digest.update(f"{size}\0".encode())
        if size <= _WHOLE_BYTES:
            digest.update(data.read())
            return
        for i in range(_N_SAMPLES):
            data.seek((size - _SAMPLE_BYTES) * i // (_N_SAMPLES - 1))
            digest.update(data.read(_SAMPLE_BYTES))
