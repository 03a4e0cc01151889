"""PiiRedactor: finds personal data by pattern and check digits, and replaces it by a tag or a keyed hash.

Every finder takes time linear in the text. Patterns find the usual spellings; names, postal addresses and anything that
needs context are not found.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

from tamis._lazy import np, pa, pc
from tamis.errors import UsageError
from tamis.stages.text.modifiers.doc_modifier import DocumentModifier, with_texts
from tamis.stages.text.modifiers.pii.addresses import find_ipv4, find_ipv6, parse_ipv6
from tamis.stages.text.modifiers.pii.contacts import find_emails, find_phones
from tamis.stages.text.modifiers.pii.numbers import IBAN_LENGTHS, find_cards, find_ibans

# For each kind its finder, and a pattern that RE2 finds in every text with one. In this order: numbers with a check
# digit precede telephone numbers, which may seem to continue in the next number. If all matches begin with the same
# byte (_JUMPS), RE2 skips from one such byte to the next, ten times as fast as it reads.
_KINDS: dict[str, tuple[Callable[[str], Iterator[tuple[int, int]]], str]] = {
    "email": (find_emails, "@"),
    "iban": (
        find_ibans,
        f"(?i:(?:^|[^0-9A-Z])(?:{'|'.join(IBAN_LENGTHS)})[0-9]{{2}}(?:[ -]?[0-9A-Z]{{4}}){{2}}[ -]?[0-9A-Z]{{3}})",
    ),
    "ipv6": (find_ipv6, ":[0-9A-Fa-f]{0,4}:"),
    "ipv4": (find_ipv4, r"\.[0-9]{1,3}\.[0-9]{1,3}\.[0-9]"),
    "credit_card": (find_cards, "[0-9]{4}[ -]?[0-9]{4}[0-9 -]{5}"),
    "phone": (find_phones, r"\+[1-9]|[0-9]{3}\)?[ .-]?[0-9]{3}[ .-][0-9]{4}"),
}
_JUMPS = ("email", "ipv6", "ipv4")
KINDS = ("email", "ipv4", "ipv6", "phone", "credit_card", "iban")
_TAG, _HASH_TAG = "<{KIND}>", "<{KIND}:{HASH}>"
_DIGEST_BYTES = 8


class PiiRedactor(DocumentModifier):
    """Replaces email and IP addresses, telephone, payment card (Luhn) and bank account numbers (IBAN checksum).

    `mode="replace"`: by `replacement`, where {KIND} is EMAIL, IPV4, ... `mode="hash"`: the same, and {HASH} is a keyed
    blake2b of the normalized value, so that equal values remain recognizable as equal; `hash_key` is required, because
    a plain hash of a telephone number can be reversed by trying all of them.
    """

    removes_values = True

    def __init__(
        self,
        kinds: Sequence[str] = KINDS,
        mode: Literal["replace", "hash"] = "replace",
        replacement: str = _TAG,
        hash_key: str | bytes | None = None,
    ) -> None:
        unknown = [kinds] if isinstance(kinds, str) else sorted(set(kinds) - set(KINDS))
        if unknown or not kinds:
            raise UsageError(f"PiiRedactor(kinds=...): expected some of {list(KINDS)}, got {kinds!r}")
        _check_mode(mode, replacement, hash_key)
        self.kinds, self.mode = list(kinds), mode
        self.replacement = _HASH_TAG if mode == "hash" and replacement == _TAG else replacement
        # Private, because the parameters of a run are written into its folder, which must not contain a key. The
        # fingerprint distinguishes keys.
        self._key = _check_key(hash_key) if mode == "hash" else b""
        self.key_fingerprint = hashlib.blake2b(self._key, digest_size=8).hexdigest() if self._key else ""
        self._order = [k for k in _KINDS if k in self.kinds]
        self._counts: dict[str, float] = {}

    def modify_batch(self, texts: pa.Array) -> pa.Array:
        """Find candidates by RE2, and search only those by the finders, which are slower."""
        from tamis.kernels import text_rows

        rows = np.flatnonzero(self._may_contain_any(texts))
        candidates = text_rows.take(texts, rows)
        masks = [pc.match_substring_regex(candidates, pattern=_KINDS[k][1]).to_pylist() for k in self._order]
        changed, results = [], []
        for row, text, *mask in zip(rows.tolist(), candidates, *masks, strict=True):
            before = text.as_py()
            after = self._redact(before, [k for k, is_candidate in zip(self._order, mask, strict=True) if is_candidate])
            if after is not before:
                changed.append(row)
                results.append(after)
        return with_texts(texts, changed, results)

    def _may_contain_any(self, texts: pa.Array) -> np.ndarray[Any, Any]:
        others = "|".join(_KINDS[k][1] for k in self._order if k not in _JUMPS)
        patterns = [_KINDS[k][1] for k in self._order if k in _JUMPS] + ([others] if others else [])
        masks = [np.asarray(pc.fill_null(pc.match_substring_regex(texts, pattern=p), False)) for p in patterns]
        any_kind: np.ndarray[Any, Any] = np.any(masks, axis=0)
        return any_kind

    def modify_document(self, text: str) -> str:
        return self._redact(text, self._order)

    def _redact(self, text: str, kinds: list[str]) -> str:
        parts, done = [], 0
        for start, end, kind in _find(text, kinds):
            parts += [text[done:start], self._tag(kind, text[start:end])]
            done = end
            self._counts[kind] = self._counts.get(kind, 0) + 1
        return "".join([*parts, text[done:]]) if parts else text

    def take_metrics(self) -> dict[str, float]:
        counts, self._counts = self._counts, {}
        return {f"pii_{kind}": n for kind, n in counts.items()}

    def _tag(self, kind: str, value: str) -> str:
        tag = self.replacement.replace("{KIND}", kind.upper())
        if self.mode == "replace":
            return tag
        plain = f"{kind}:{_normalize(kind, value)}".encode("utf-8", "surrogatepass")
        return tag.replace("{HASH}", hashlib.blake2b(plain, digest_size=_DIGEST_BYTES, key=self._key).hexdigest())


def _find(text: str, kinds: list[str]) -> list[tuple[int, int, str]]:
    """Return (start, end, kind) of all matches, in order and without overlaps; earlier kinds take precedence."""
    matches: list[tuple[int, int, str]] = []
    for kind in kinds:
        parts, done = [], 0
        for start, end in sorted(_KINDS[kind][0](text)):
            if start >= done:
                matches.append((start, end, kind))
                parts += [text[done:start], "\0" * (end - start)]
                done = end
        if parts:
            text = "".join([*parts, text[done:]])
    return sorted(matches)


def _normalize(kind: str, value: str) -> str:
    """Normalize a value to one spelling."""
    if kind == "email":
        return value.lower()
    if kind == "ipv6":
        address = parse_ipv6(value)
        return value if address is None else address.compressed
    if kind == "ipv4":
        return value
    return "".join(c for c in value if c.isalnum()).upper()


def _check_mode(mode: str, replacement: str, hash_key: str | bytes | None) -> None:
    """Raise UsageError unless the mode exists and the other two arguments belong to it."""
    if mode not in ("replace", "hash"):
        raise UsageError(f"PiiRedactor(mode=...): expected 'replace' or 'hash', got {mode!r}")
    if mode == "replace" and (hash_key is not None or "{HASH}" in replacement):
        raise UsageError("PiiRedactor: hash_key and {HASH} belong to mode='hash'")
    if mode == "hash" and replacement != _TAG and "{HASH}" not in replacement:
        raise UsageError(f"PiiRedactor(mode='hash'): replacement must contain {{HASH}}, got {replacement!r}")


def _check_key(key: str | bytes | None) -> bytes:
    raw = key.encode() if isinstance(key, str) else key
    if not isinstance(raw, bytes) or not 1 <= len(raw) <= 64:
        raise UsageError("PiiRedactor(mode='hash'): hash_key must be a secret of 1 to 64 bytes, the same for all runs")
    return raw
