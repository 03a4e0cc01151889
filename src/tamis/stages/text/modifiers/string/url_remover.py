"""URLs, from http://, https:// or www. to the next whitespace."""

from __future__ import annotations

from tamis._lazy import pa
from tamis.stages.text.modifiers.doc_modifier import ColumnModifier, replace_regex

# RE2's \S knows ASCII only; this is Python's: what str.isspace() calls whitespace ends a URL.
_NOT_SPACE = r"[^\t-\r\x1c- \x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}]"
_URL = rf"(?i)https?://{_NOT_SPACE}+|www\.{_NOT_SPACE}+"


class UrlRemover(ColumnModifier):
    """Removes all URLs."""

    def modify_batch(self, texts: pa.Array) -> pa.Array:
        return replace_regex(texts, _URL, "")
