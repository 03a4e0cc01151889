"""Token ids of words that were seen before, so that a tokenizer is asked about each word once.

Tokenizers of BERT and of SentencePiece look at words one by one: the ids of a text are those of its words, one behind the other. The libraries tokenize
each word of each text again, which takes most of the time; here a text is cut into words, and only new ones go to the tokenizer, all of them in one call.
Whether a tokenizer is of that kind is told by its parts and tried with texts that would show it if it were not (`cache_of`); any other is used as it is.
Memory: some 250 bytes for each of at most three times MAX_WORDS words, per worker.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

MAX_WORDS = 1 << 16
_LONGEST = 64  # characters of a word that is kept: longer ones hardly come twice
_PROBES = (
    "a b", "a  b", "a   b", " a", "a ", "  a  ", "ab c'd, e. (f) g-h", "a\nb", "a\n\nb", "\ta\tb", "a\r\nb", "A\u00c9 \u00e9\u0301 b", " ", "",
    "\u4e2d\u6587 x \u4e2d", "x\u00a0y z", "a\u200bb c", "1 2,000.5 %", "\U0001f600 b\U0001f600", "a \u0301b", "\ufb01 \ufb02 x", "don't can't",
    "a\x1cb \x00 c", "x.\u0301y", "a_b __c__", "\u2028a\u3000b", "a\u2003b\u202fc \u00a0d\u00a0", "#tag @x a/b\\\\c <d> [e]",
)  # fmt: skip
_PUNCTUATION = r"!-/:-@\[-`{-~"  # of ASCII: BERT makes each of these a word of its own
_BERT_WORDS = re.compile(rf"[^ \n{_PUNCTUATION}]+|[{_PUNCTUATION}]")
_SPACES, _LINES_TOO = re.compile(" "), re.compile("[ \n]")
_BLANKS_TOO = re.compile("[ \n\t\u00a0\u2003\u202f\u3000]")
Encode = Callable[[Sequence[str]], list[list[int]]]
Ids = dict[str, tuple[int, ...]]


class WordCache:
    """`words_of` cuts a text into words; `ask` gives the ids of some words; texts in which `marks` (a pattern) is found go whole to
    `encode`, the tokenizer itself."""

    def __init__(
        self,
        words_of: Callable[[str], list[str]],
        ask: Callable[[list[str]], list[list[int]]],
        encode: Encode,
        marks: str,
    ) -> None:
        self._words_of, self._ask, self._encode = words_of, ask, encode
        self._marked = re.compile(marks).search if marks else None
        self._ids: Ids = {"": ()}
        self._older: Ids = {}

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """What the tokenizer gives for these texts, without special tokens."""
        marked = [i for i, t in enumerate(texts) if self._marked is not None and self._marked(t)]
        aside = dict(zip(marked, self._encode([texts[i] for i in marked]), strict=True)) if marked else {}
        words = [[] if i in aside else self._words_of(t) for i, t in enumerate(texts)]
        found = self._look_up(set(chain.from_iterable(words)))
        return [
            aside[i] if i in aside else list(chain.from_iterable(map(found.__getitem__, own)))
            for i, own in enumerate(words)
        ]

    def _look_up(self, words: set[str]) -> Ids:
        """The ids of all these words, those of others perhaps too."""
        found, new = self._ids, []
        for word in words:
            if word not in found:
                known = self._older.get(word)
                if known is None:
                    new.append(word)
                else:
                    found[word] = known  # of those that are still in use
        if new:
            asked = {w: tuple(ids) for w, ids in zip(new, self._ask(new), strict=True)}
            long = {w: ids for w, ids in asked.items() if len(w) > _LONGEST}  # a paragraph without a blank may be one
            found.update(asked if not long else {w: ids for w, ids in asked.items() if len(w) <= _LONGEST})
            found = found if not long else {**{w: found[w] for w in words if w in found}, **long}
        if len(self._ids) > MAX_WORDS:  # those that nobody asks for again while as many others come are forgotten
            self._older = (
                self._ids if len(self._ids) <= 2 * MAX_WORDS else {}
            )  # not the words of a text that is a library
            self._ids = {"": ()}
        return found


def cache_of(tokenizer: Any, encode: Encode) -> WordCache | None:
    """A cache for a tokenizer of `transformers`, where its words can be looked at one by one. `encode`: without special tokens."""
    if why_not(tokenizer):
        return None
    own = tokenizer.backend_tokenizer
    # Found in a text before it is cut into words; and, for SentencePiece, what its normalizers take from the ends of a text.
    marks = [re.escape(token.content) for token in own.get_added_tokens_decoder().values()]
    if type(own.pre_tokenizer).__name__ == "BertPreTokenizer":
        cuts: list[tuple[Callable[[str], list[str]], str]] = [(_BERT_WORDS.findall, "|".join(marks))]
    else:
        others = [
            (_BLANKS_TOO.split, [r"[^\S \n\t\u00a0\u2003\u202f\u3000]"]),
            (_LINES_TOO.split, [r"[^\S \n]"]),
            (_SPACES.split, [r"[^\S ]"]),
        ]
        # Where nothing takes the spaces from the end of a text, they are a token of their own there.
        others += [(split, [*aside, r"\s\Z"]) for split, aside in others]
        cuts = [(split, "|".join([*marks, *aside])) for split, aside in others]

    def ask(words: list[str]) -> list[list[int]]:
        """All in one call: a call for each would take longer than the words do."""
        made = own.encode(words, is_pretokenized=True, add_special_tokens=False)
        found: list[list[int]] = [[] for _ in words]
        for token, word in zip(made.ids, made.word_ids, strict=True):
            found[word].append(token)
        return found

    for words_of, aside in cuts:
        made = WordCache(words_of, ask, encode, aside)
        try:
            if all(a == b for a, b in zip(made.encode(_PROBES), encode(_PROBES), strict=True)):
                return made
        except (TypeError, KeyError, IndexError):  # tokens that belong to no word
            continue
    return None


def why_not(tokenizer: Any) -> str:
    """Why the words of a text cannot be looked at one by one, as a part of a sentence; nothing if that can be tried."""
    own = getattr(tokenizer, "backend_tokenizer", None)
    if own is None:
        return "it is not one of the library tokenizers"
    splits = type(own.pre_tokenizer).__name__ if own.pre_tokenizer is not None else "nothing"
    if splits not in ("BertPreTokenizer", "Metaspace"):
        return f"its texts are split by {splits}"
    if own.truncation is not None or own.padding is not None:
        return "it cuts or pads by itself"
    for token in own.get_added_tokens_decoder().values():
        if any(c.isspace() for c in token.content) or token.lstrip or token.rstrip or token.single_word:
            return f"its added token {token.content!r} looks at what is beside it"
    return ""
