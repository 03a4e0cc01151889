"""Tokenizers and processors by the Auto classes of `transformers`, and the code that a model may bring along.

If it is not decided whether that code may run, `transformers` asks on the terminal, in the middle of a run: here the
answer is no unless `trust_remote_code=True` is among the settings, and a model that cannot do without it is refused.
Where it may run, it must run: `custom_code` finds models and tokenizers that a faster implementation of Tamis must not
replace.
"""

from __future__ import annotations

import functools
import hashlib
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import FunctionType, MethodType
from typing import Any

from tamis.errors import TamisError, UsageError, optional
from tamis.failures import is_memory_failure
from tamis.stages.fingerprints import add_file
from tamis.stages.text.models.folder import WITHOUT_CODE, local

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
_LIBRARIES = {"transformers", "torch", "tokenizers", "huggingface_hub", "safetensors"}
_HOOKS = ("_forward_hooks", "_forward_pre_hooks")


def from_pretrained(kind: str, identifier: str, who: str, *, if_code: str = WITHOUT_CODE, **settings: Any) -> Any:
    """Return the result of `transformers.<kind>.from_pretrained(identifier, **settings)`.

    `who`: the owner of the model, for messages. `if_code`: what to do about a model that wants to run code of
    its own.

    The identifier is passed on unchanged: `transformers` knows some hub ids by their names.
    """
    library = optional("transformers", who, "models")
    settings = {"trust_remote_code": False, **settings}
    try:
        return getattr(library, kind).from_pretrained(identifier, **settings)
    except Exception as exc:  # the libraries raise anything for missing or damaged files
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


def custom_code(loaded: Any) -> str:
    """Return the first part of a loaded model or tokenizer that is not the libraries' own code.

    An empty string if there is none.

    Covers classes (a subclass counts as custom), attributes of instances, forward hooks, and methods or functions that
    custom code replaced in the modules of `transformers`.
    """
    for part in loaded.modules() if hasattr(loaded, "modules") else [loaded]:
        kind = type(part)
        if not _is_library(kind.__module__):
            return f"{kind.__module__}.{kind.__qualname__}"
        own = vars(part)
        if "forward" in own or any(own.get(hooks) for hooks in _HOOKS):
            return f"forward of {kind.__qualname__}"
        if name := _first_custom(own.items()):
            return f"{name} of {kind.__qualname__}"
    for kind in {type(part) for part in (loaded.modules() if hasattr(loaded, "modules") else [loaded])}:
        for base in kind.__mro__:
            if name := _first_custom(vars(base).items()):
                return f"{name} of {base.__qualname__}"
        module = sys.modules.get(kind.__module__)
        if module is not None and (name := _first_custom(vars(module).items())):
            return f"{name} of {kind.__module__}"
    return ""


def _first_custom(attributes: Iterable[tuple[str, Any]]) -> str:
    """Return the name of the first function that is defined outside of the libraries."""
    return next((name for name, value in list(attributes) if not _is_library_function(value)), "")


def _is_library_function(value: Any) -> bool:
    """Return True if a value is no Python function, or one that a library defines, wrappers included."""
    while isinstance(value, functools.partial | MethodType | staticmethod | classmethod):
        value = value.func if isinstance(value, functools.partial) else value.__func__
    while isinstance(value, FunctionType):
        # Not `__module__`, which functools.wraps copies from the function that is wrapped.
        if not _is_library(value.__globals__.get("__name__", "")):
            return False
        value = getattr(value, "__wrapped__", None)
    return True


def _is_library(module: str) -> bool:
    root = module.partition(".")[0]
    return root in _LIBRARIES or root in sys.stdlib_module_names
