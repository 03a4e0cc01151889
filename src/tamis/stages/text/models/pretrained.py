"""Tokenizers and processors by the Auto classes of `transformers`, without the code that a model may bring along.

Where nobody says whether that code may run, `transformers` asks on the terminal, in the middle of a run: here the answer is no
unless `trust_remote_code=True` is among the settings, and a model that cannot do without it is refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from tamis.errors import TamisError, UsageError, optional
from tamis.formats.faults import is_memory_failure
from tamis.stages.text.models.fingerprints import add_file
from tamis.stages.text.models.folder import WITHOUT_CODE, local

IF_TRUSTED = "if you trust its author, ask for it with trust_remote_code=True in transformers_init_kwargs"
# How names begin and end. config.json is none of them: it may come later, with the weights.
_OF_TOKENIZERS = (
    "tokenizer", "vocab", "merges", "special_tokens_map", "added_tokens", "spiece", "sentencepiece", "dict.txt", "normalizer.json", "entity_vocab.json",
)  # fmt: skip
_ENDINGS_OF_TOKENIZERS = (".model", ".tiktoken", ".spm", ".codes")


def from_pretrained(kind: str, identifier: str, who: str, *, if_code: str = WITHOUT_CODE, **settings: Any) -> Any:
    """What `transformers.<kind>.from_pretrained(identifier, **settings)` returns. `who`: whose it is, for messages.
    `if_code`: what to do about a model that wants to run code of its own.

    The identifier is passed on as it is: `transformers` knows some hub ids by their names.
    """
    library = optional("transformers", who, "models")
    settings = {"trust_remote_code": False, **settings}
    try:
        return getattr(library, kind).from_pretrained(identifier, **settings)
    except Exception as exc:  # whatever the libraries raise about files that are missing or damaged
        if isinstance(exc, TamisError) or is_memory_failure(exc):
            raise
        said = " ".join(str(exc).split())
        if not settings["trust_remote_code"] and "trust_remote_code" in said:
            raise UsageError(
                f"{who}: {identifier} wants to run code of its own (auto_map), which is refused; {if_code}"
            ) from None
        raise UsageError(
            f"{who}: {identifier} cannot be loaded ({type(exc).__name__}: {said[:300]}); "
            "expected a folder with the files that transformers reads, or a hub id (gated models need hf_token)"
        ) from None


def tokenizer_fingerprint(identifier: str, settings: Mapping[str, Any]) -> str | None:
    """The files of a tokenizer in a folder, or of a hub id in the local cache; None: not there (yet).

    `settings`: those of `from_pretrained`, of which `cache_dir` and `revision` say where to look. Weights beside it do not count: they may be
    fetched later, for another stage, and make no other tokens.
    """
    try:
        folder = local(identifier, settings.get("cache_dir"), revision=settings.get("revision"))
        names = sorted(p.name for p in folder.iterdir() if p.is_file() and _is_of_tokenizer(p.name))
        found = hashlib.blake2b(digest_size=16)
        for name in names:
            found.update(f"{name}\0".encode())
            add_file(found, folder / name)
    except (TamisError, OSError):
        return None
    return found.hexdigest() if names else None


def _is_of_tokenizer(name: str) -> bool:
    return name.startswith(_OF_TOKENIZERS) or name.endswith(_ENDINGS_OF_TOKENIZERS)
