"""Fingerprints of single files that results depend on (a fastText model, a table of characters, a tokenizer): what `model_files` tells.

Those of whole models are in folder.py. Nothing here imports torch or transformers.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tamis.errors import TamisError

_OF_TOKENIZERS = ("tokenizer", "vocab", "merges", "special_tokens_map", "added_tokens", "spiece", "sentencepiece")
_ENDINGS_OF_TOKENIZERS = (".model", ".tiktoken")


def of_file(path: str | os.PathLike[str]) -> str | None:
    """Size and contents of a file; of a large one its beginning, its end and places between them. None: it cannot be read."""
    found = hashlib.blake2b(digest_size=16)
    try:
        _add(found, Path(path))
    except OSError:
        return None
    return found.hexdigest()


def of_tokenizer(identifier: str, settings: Mapping[str, Any]) -> str | None:
    """The files of a tokenizer in a folder, or of a hub id in the local cache; None: not there (yet).

    `settings`: those of `from_pretrained`, of which `cache_dir` says where to look; a hub id with a `revision` is known by that, and
    has none. Weights beside it do not count: they may be fetched later, for another stage, and make no other tokens.
    """
    from tamis.stages.text.models import folder as folders  # every run with a filter imports this module

    if settings.get("revision") is not None and not os.path.isdir(os.path.expanduser(identifier)):
        return ""
    try:
        folder = folders.local(identifier, settings.get("cache_dir"))
        names = sorted(p.name for p in folder.iterdir() if p.is_file() and _is_of_tokenizer(p.name))
        found = hashlib.blake2b(digest_size=16)
        for name in names:
            found.update(f"{name}\0".encode())
            _add(found, folder / name)
    except (TamisError, OSError):
        return None
    return found.hexdigest() if names else None


def together(found: Iterable[str | None]) -> str:
    """One text of several fingerprints; empty where there are none, or one of them is not known yet."""
    told = list(found)
    return "" if None in told else " ".join(one for one in told if one)


def _add(found: hashlib.blake2b, path: Path) -> None:
    from tamis.stages.text.models.folder import add_contents

    found.update(f"{path.stat().st_size}\0".encode())
    add_contents(found, path)


def _is_of_tokenizer(name: str) -> bool:
    return name.startswith(_OF_TOKENIZERS) or name.endswith(_ENDINGS_OF_TOKENIZERS)
