"""Passwords, tokens and keys among parameters: recognized by their name or by their type, and never written down.

A run directory is read by others and kept for years, so what Tamis writes or prints of parameters goes through here.
Two kinds of names: `certain` ones (`api_key`, `password`) are shown as <secret>, whatever the value; `likely` ones
(`key`, `token`) may as well be the name of a column, so 16 bits of their hash are kept: a resumed run notices that
one changed, and it is not revealed.

`hide` takes the values themselves out of any text, such as the message of an error, once `learn` has seen them.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import Any

HIDDEN = "<secret>"
CERTAIN, LIKELY = "certain", "likely"
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_ALWAYS = {"password", "passwd", "passphrase", "pwd", "secret", "credential", "bearer", "authorization", "apikey"}
_PAIRS = {
    "key": {"api", "access", "secret", "private", "account", "auth", "signing", "encryption", "storage", "master"},
    "token": {"api", "access", "auth", "refresh", "session", "bearer", "sas", "id", "hf", "github", "security"},
}
_OFTEN = {"key", "token", "auth"}
# What a name like password_file refers to is no secret, and one like token_count no text.
_NO_SECRET = {
    "field", "column", "name", "file", "path", "dir", "folder", "env", "variable", "var", "type", "format", "kind",
    "url", "count", "length", "size", "limit", "id", "prefix", "suffix", "index",
}  # fmt: skip
_IN_URL = re.compile(r"(://[^/?#\s:@]*:)[^/?#\s@]+@")
_DEPTH = 6
_LEAST, _LEAST_LIKELY = 6, 16  # characters of a value that is taken out of texts: shorter ones occur in any text
_MOST, _MOST_LOOKED_AT = 1000, 20_000  # a stage may hold a model
_values: set[str] = set()


class Secret(str):
    """A `str` that is hidden in its repr and in everything that Tamis writes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"Secret({HIDDEN})"


def kind_of(name: str) -> str:
    """Classify whether a parameter of this name is a secret: CERTAIN, LIKELY, or "" for no.

    >>> [kind_of(n) for n in ("api_key", "openaiApiKey", "password", "accessKeys", "hf_token")]
    ['certain', 'certain', 'certain', 'certain', 'certain']
    >>> [kind_of(n) for n in ("key", "token", "auth", "sort_key", "wandb-key")]
    ['likely', 'likely', 'likely', 'likely', 'likely']
    >>> names = ("text_field", "key_field", "password_file", "api_key_env", "max_tokens", "tokenizer", "author")
    >>> [kind_of(name) for name in names]
    ['', '', '', '', 'likely', '', '']
    """
    words = [_singular(w.lower()) for w in _WORD.findall(name)]
    if not words or words[-1] in _NO_SECRET:
        return ""
    if any(w in _ALWAYS for w in words):
        return CERTAIN
    for before, word in itertools.pairwise(words):
        if before in _PAIRS.get(word, ()):
            return CERTAIN
    return LIKELY if words[-1] in _OFTEN else ""


def _singular(word: str) -> str:
    return word[:-1] if word.endswith("s") and word[:-1] in _ALWAYS | _OFTEN | _NO_SECRET else word


def is_secret(value: Any) -> bool:
    """Return True if a value is a secret by its type.

    That is a Secret, or another library's type (pydantic's SecretStr and SecretBytes). The type is inspected, not
    the value: some values create any attribute that is requested, or load a library for it.
    """
    return isinstance(value, Secret) or callable(getattr(type(value), "get_secret_value", None))


def veil(value: str | bytes, kind: str) -> str:
    """Return the replacement for a secret of that kind."""
    if kind == CERTAIN:
        return HIDDEN
    data = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
    return f"<hidden {hashlib.blake2b(data, digest_size=2).hexdigest()}>"


def without_password(text: str) -> str:
    """Return the text with the passwords of all URLs hidden.

    >>> without_password("s3://me:geheim@host/data, https://host/a:b@c")
    's3://me:<secret>@host/data, https://host/a:b@c'
    """
    return _IN_URL.sub(rf"\1{HIDDEN}@", text) if "://" in text else text


def redacted(value: Any, kind: str = "") -> Any:
    """Return the same JSON value with all texts under names of secrets hidden.

    `kind`: the kind of the value's own name.
    """
    if isinstance(value, str):
        if kind and value != HIDDEN and not value.startswith("<hidden "):
            return veil(value, kind)
        return without_password(value)
    if isinstance(value, list):
        return [redacted(v, kind) for v in value]
    if isinstance(value, dict):
        return {k: redacted(v, kind_of(str(k)) or kind) for k, v in value.items()}
    return value


# -- texts -----------------------------------------------------------------------------------------------------------
def learn(*things: Any) -> None:
    """Look for secrets in parameters: attributes of objects, mappings, lists. `hide` knows them from then on."""
    for thing in things:
        _learn(thing, "", _DEPTH, set())


def learn_values(values: Mapping[str, str]) -> None:
    """Learn secrets like `learn`, from texts by name."""
    _learn(dict(values), "", 2, set())


def _learn(value: Any, kind: str, depth: int, seen: set[int]) -> None:
    if is_secret(value):
        value, kind = value if isinstance(value, str) else value.get_secret_value(), CERTAIN
    if isinstance(value, bytes) and kind:
        value = value.decode("utf-8", "replace")
    if isinstance(value, str):
        if kind:
            _remember(value, kind)
        return
    if (
        depth == 0
        or id(value) in seen
        or isinstance(value, (int, float, type, ModuleType))
        or len(seen) > _MOST_LOOKED_AT
    ):
        return
    seen.add(id(value))
    for name, part in itertools.islice(_parts(value), _MOST):
        _learn(part, (kind_of(name) if isinstance(name, str) else "") or kind, depth - 1, seen)


def _remember(text: str, kind: str) -> None:
    """Add a secret to those that `hide` removes, unless it is too short or there are too many."""
    if len(text) >= (_LEAST if kind == CERTAIN else _LEAST_LIKELY) and len(_values) < _MOST:
        _values.add(str.__str__(text))


def _parts(value: Any) -> Iterable[tuple[Any, Any]]:
    """Return the values inside a mapping, a list or an object, with their names."""
    if isinstance(value, Mapping):
        return value.items()
    if isinstance(value, (list, tuple, set, frozenset)):
        return (("", v) for v in value)
    return getattr(value, "__dict__", {}).items()


def known() -> frozenset[str]:
    """Return the values that `hide` removes."""
    return frozenset(_values)


def hide(text: str) -> str:
    """Return the text without the secrets that are known in this process.

    >>> learn({"password": "open sesame"})
    >>> hide("login failed for 'open sesame'")
    "login failed for '<secret>'"
    """
    for value in sorted(_values, key=len, reverse=True):
        if value in text:
            text = text.replace(value, HIDDEN)
    return without_password(text)
