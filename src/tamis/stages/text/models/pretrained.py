"""Tokenizers and processors by the Auto classes of `transformers`, without the code that a model may bring along.

Where nobody says whether that code may run, `transformers` asks on the terminal, in the middle of a run: here the answer is no
unless `trust_remote_code=True` is among the settings, and a model that cannot do without it is refused.
"""

from __future__ import annotations

from typing import Any

from tamis.errors import TamisError, UsageError, optional
from tamis.formats.faults import is_memory_failure
from tamis.stages.text.models.folder import WITHOUT_CODE

IF_TRUSTED = "if you trust its author, ask for it with trust_remote_code=True in transformers_init_kwargs"


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
