"""Pretrained models and tokenizers: where their files are on this machine, and loading by `transformers`.

If it is not decided whether the code of a model may run, `transformers` asks on the terminal, in the middle of a run:
here the answer is no unless `trust_remote_code=True` is among the settings, and a model that cannot do without it is
refused. Files of a hub id are located without huggingface_hub, whose import takes half a second and 35 MB: processes
that only plan need the location, too.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tamis.errors import TamisError, UsageError, optional
from tamis.failures import is_memory_failure
from tamis.stages.fingerprints import add_file

DATA = (".json", ".safetensors", ".txt", ".model", ".jinja")
# Remedies for a model with code of its own, without and with a way to trust it.
WITHOUT_CODE = "choose a model that does without"
IF_TRUSTED = "if you trust its author, ask for it with trust_remote_code=True in transformers_init_kwargs"
# How names begin and end. config.json is none of them: it may come later, with the weights.
_OF_TOKENIZERS = (
    "tokenizer",
    "vocab",
    "merges",
    "special_tokens_map",
    "added_tokens",
    "spiece",
    "sentencepiece",
    "dict.txt",
    "normalizer.json",
    "entity_vocab.json",
)
_ENDINGS_OF_TOKENIZERS = (".model", ".tiktoken", ".spm", ".codes")
_COMMIT = re.compile("[0-9a-f]{40}")


def from_pretrained(kind: str, identifier: str, owner: str, *, if_code: str = WITHOUT_CODE, **settings: Any) -> Any:
    """Return the result of `transformers.<kind>.from_pretrained(identifier, **settings)`.

    `owner`: the owner of the model, for messages. `if_code`: what to do about a model that wants to run code of
    its own.

    The identifier is passed on unchanged: `transformers` knows some hub ids by their names.
    """
    library = optional("transformers", owner, "models")
    settings = {"trust_remote_code": False, **settings}
    try:
        return getattr(library, kind).from_pretrained(identifier, **settings)
    except Exception as exc:  # the libraries raise anything for missing or damaged files
        if isinstance(exc, TamisError) or is_memory_failure(exc):
            raise
        reason = " ".join(str(exc).split())
        if not settings["trust_remote_code"] and "trust_remote_code" in reason:
            raise UsageError(
                f"{owner}: {identifier} wants to run code of its own (auto_map), which is refused; {if_code}"
            ) from None
        raise UsageError(
            f"{owner}: {identifier} cannot be loaded ({type(exc).__name__}: {reason[:300]}); "
            "expected a folder with the files that transformers reads, or a hub id (gated models need hf_token)"
        ) from None


def tokenizer_fingerprint(identifier: str, settings: Mapping[str, Any]) -> str | None:
    """Return a fingerprint of a tokenizer's files, in a folder or cached for a hub id; None: not there (yet).

    `settings`: those of `from_pretrained`, of which `cache_dir` and `revision` determine where to look. Weights
    next to it do not count: they may be fetched later, for another stage, and do not change the tokens.
    """
    try:
        folder = local(identifier, settings.get("cache_dir"), revision=settings.get("revision"))
        names = sorted(p.name for p in folder.iterdir() if p.is_file() and _is_of_tokenizer(p.name))
        digest = hashlib.blake2b(digest_size=16)
        for name in names:
            digest.update(f"{name}\0".encode())
            add_file(digest, folder / name)
    except (TamisError, OSError):
        return None
    return digest.hexdigest() if names else None


def tokenizer_bytes(folder: Path) -> int:
    """Return the size of the tokenizer's files: tokenizer.json if there is one, else the vocabulary."""
    whole = folder / "tokenizer.json"
    if whole.exists():
        return whole.stat().st_size
    return sum(p.stat().st_size for p in folder.iterdir() if p.is_file() and _is_of_tokenizer(p.name))


def _is_of_tokenizer(name: str) -> bool:
    return name.startswith(_OF_TOKENIZERS) or name.endswith(_ENDINGS_OF_TOKENIZERS)


# -- the files of a model on this machine ------------------------------------------------------------------------------
def local(identifier: str, cache_dir: str | None = None, with_code: bool = False, revision: str | None = None) -> Path:
    """Return the folder of a model on this machine; raise FileNotFoundError for a hub id that is not cached."""
    return _as_folder(identifier) or _snapshot(identifier, cache_dir, endings(with_code), revision)


def endings(with_code: bool) -> tuple[str, ...]:
    """Return the extensions of the files of a model that are downloaded."""
    return (*DATA, ".py") if with_code else DATA


def _as_folder(identifier: str) -> Path | None:
    path = Path(os.path.expanduser(identifier))
    if path.is_dir():
        return path
    # "owner/name" may be a hub id; anything else that looks like a path was meant as one.
    if identifier.startswith(("/", ".", "~")) or identifier.count("/") > 1 or "\\" in identifier:
        raise UsageError(
            f"model {identifier!r}: there is no such folder; expected a model's folder or a hub id (owner/name)"
        )
    return None


def _snapshot(identifier: str, cache_dir: str | None, endings: tuple[str, ...], revision: str | None) -> Path:
    """Return the folder with the files of a revision (None: main) in the local cache.

    Raises FileNotFoundError if it is not there, or if it lacks a file with one of these endings.
    """
    repository = Path(cache_dir or _usual_cache()).expanduser().resolve() / "--".join(
        ["models", *identifier.split("/")]
    )
    revision = revision or "main"
    try:
        commit = revision
        if not _COMMIT.fullmatch(revision):
            commit = (repository / "refs" / revision).read_text(encoding="utf-8")
        folder = repository / "snapshots" / commit
        missing = [name for name in _listed(repository / "trees" / f"{commit}.json") if not (folder / name).is_file()]
    except (OSError, ValueError) as exc:
        raise FileNotFoundError(f"{identifier}: not in the local cache ({exc})") from None
    if not folder.is_dir() or any(name.endswith(endings) for name in missing):
        raise FileNotFoundError(f"{identifier}: not in the local cache, or not whole: {folder}")
    return folder


def _usual_cache() -> str:
    home = os.environ.get("HF_HOME", os.path.join(os.environ.get("XDG_CACHE_HOME", "~/.cache"), "huggingface"))
    usual = os.environ.get("HUGGINGFACE_HUB_CACHE", os.path.join(home, "hub"))
    return os.path.expandvars(os.path.expanduser(os.environ.get("HF_HUB_CACHE", usual)))


def _listed(tree: Path) -> list[str]:
    """Return the files of a revision, if a download of all of them recorded their names; else []."""
    try:
        return list(json.loads(tree.read_text(encoding="utf-8"))["files"])
    except (OSError, ValueError, KeyError, TypeError):
        return []
