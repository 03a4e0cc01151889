"""Token ids of words that were seen before, so that a tokenizer is asked about each word once.

Tokenizers of BERT and of SentencePiece look at words one by one: the ids of a text are those of its words, one after
the other. The libraries tokenize each word of each text again, which takes most of the time; here a kernel cuts texts
into words and looks them up (kernels/tokens), and only new ones go to the tokenizer, all of them in one call. Whether a
tokenizer is of that kind is told by its parts (`why_not`) and tried with texts that would show it if it were not
(`cache_of`); any other is used as it is. Memory: some 80 bytes for each of at most MAX_WORDS words, per worker.
"""

from __future__ import annotations

import string
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tamis._lazy import np, pa
from tamis.stages.text.tokens.id_lists import IdLists, as_lists

if TYPE_CHECKING:  # kernels import numpy, which planning must not load
    from tamis.kernels.buffers import StringBuffers
    from tamis.kernels.tokens.word_ids import Cut, IdRequest

MAX_WORDS = 1 << 18
_MAX_BYTES = 32 << 20  # of the table: words of many ids are forgotten sooner
_LONGEST = 256  # bytes of a word that is kept: longer ones hardly come twice
_PROBES = (
    "a b",
    "a  b",
    "a   b",
    " a",
    "a ",
    "  a  ",
    "ab c'd, e. (f) g-h",
    "a\nb",
    "a\n\nb",
    "\ta\tb",
    "a\r\nb",
    "A\u00c9 \u00e9\u0301 b",
    " ",
    "",
    "\u4e2d\u6587 x \u4e2d",
    "x\u00a0y z",
    "a\u200bb c",
    "1 2,000.5 %",
    "\U0001f600 b\U0001f600",
    "a \u0301b",
    "\ufb01 \ufb02 x",
    "don't can't",
    "a\x1cb \x00 c",
    "x.\u0301y",
    "a_b __c__",
    "\u2028a\u3000b",
    "a\u2003b\u202fc \u00a0d\u00a0",
    "#tag @x a/b\\\\c <d> [e]",
)
_WHITE = "".join(c for c in map(chr, range(0x3001)) if c.isspace())
# What texts are cut at, the most first; any other white space is looked at by the tokenizer alone.
_BLANKS = (" \n\t\u00a0\u2003\u202f\u3000", " \n", " ")
_MARKS = "\u2581"  # texts with one go whole to the tokenizer
_MOST_ASIDE = 4000  # characters that show a difference
Encode = Callable[[Sequence[str]], list[list[int]]]


class WordCache:
    """`cut` says what words are; `ask` gives the ids of some.

    Texts that cannot be cut go whole to `encode`, the tokenizer itself.
    """

    def __init__(self, cut: Cut, ask: Callable[[list[str]], list[list[int]]], encode: Encode) -> None:
        from tamis.kernels.tokens.word_table import WordTable

        self._cut, self._ask, self.tokenize = cut, ask, encode
        self.words, self._long = WordTable(), WordTable()
        self._lock = threading.Lock()

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the tokenizer's ids for these texts, without special tokens; at most a million ids of each."""
        from tamis.kernels.buffers import string_buffers
        from tamis.kernels.tokens.word_ids import IdRequest

        parts = string_buffers(pa.array(texts, pa.large_string()))
        no_end = 1 << 20  # ids
        ids, aside = self.look_up(parts, np.arange(len(texts)), IdRequest(no_end, no_end))
        if aside.size:
            ids.append(IdLists.of(aside, self.tokenize([texts[int(i)] for i in aside])))
        return as_lists(ids, len(texts))

    def look_up(
        self, parts: StringBuffers, rows: np.ndarray[Any, Any], request: IdRequest
    ) -> tuple[list[IdLists], np.ndarray[Any, Any]]:
        """Return the ids of these texts, and the rows of those that only the tokenizer itself can encode."""
        from tamis.kernels.tokens.word_ids import ASIDE, MISSING, word_ids

        starts, ends = parts.spans(rows)
        chunks: list[IdLists] = []
        aside = [np.zeros(0, np.int64)]
        with self._lock:
            while rows.size:
                result = word_ids(parts.data, starts, ends, self._cut, request, self.words, self._long, _LONGEST + 1)
                chunks.append(IdLists(rows, result.lengths, result.ids))
                aside.append(rows[result.status == ASIDE])
                again = result.status == MISSING
                rows, starts, ends = rows[again], starts[again], ends[again]
                self._learn(parts, result.missing_starts, result.missing_ends)
            self._long.clear()
            if self.words.n_words > MAX_WORDS or self.words.n_bytes > _MAX_BYTES:
                self.words.forget(MAX_WORDS // 2)
        return chunks, np.concatenate(aside)

    def _learn(self, parts: StringBuffers, starts: np.ndarray[Any, Any], ends: np.ndarray[Any, Any]) -> None:
        """Ask about all these words, in one call: a call for each would take longer than the words do."""
        new = list({parts.data[a:b].tobytes() for a, b in zip(starts.tolist(), ends.tolist(), strict=True)})
        if not new:
            return
        ids_of_word = dict(zip(new, self._ask([word.decode() for word in new]), strict=True))
        cacheable = [w for w in new if len(w) <= _LONGEST]
        long = [w for w in new if len(w) > _LONGEST]  # a paragraph without a blank may be one
        for table, some in ((self.words, cacheable), (self._long, long)):
            table.add(some, [ids_of_word[w] for w in some])


def cache_of(own: Any, encode: Encode, doubtful: Iterable[str] = ()) -> WordCache | None:
    """Return a cache for a tokenizer of `tokenizers` that `why_not` accepts, or None if a probe differs.

    Texts with those of the `doubtful` characters that show a difference go whole to `encode`.
    """

    def ask(words: list[str]) -> list[list[int]]:
        encodings = own.encode(words, is_pretokenized=True, add_special_tokens=False)
        token_ids: list[list[int]] = [[] for _ in words]
        for token, word in zip(encodings.ids, encodings.word_ids, strict=True):
            token_ids[word].append(token)
        return token_ids

    for blanks, make_cut in _cuts(own):
        try:
            encodings = WordCache(make_cut(()), ask, encode)
            if not all(_are_same(encodings, _PROBES)):
                continue
            aside = _differing(encodings, [c for c in doubtful if c not in _MARKS])
            if aside.isdisjoint(blanks) and len(aside) <= _MOST_ASIDE:
                return WordCache(make_cut(tuple(aside)), ask, encode)
        except (TypeError, KeyError, IndexError):  # tokens that belong to no word
            continue
    return None


def _are_same(cache: WordCache, texts: Sequence[str]) -> list[bool]:
    return [a == b for a, b in zip(cache.encode(texts), cache.tokenize(texts), strict=True)]


def _differing(cache: WordCache, chars: Sequence[str]) -> set[str]:
    """Return the characters next to which words have other ids than alone."""
    ways = ("{0}", "{0} a", "a{0}", "a {0} b{0} {0}d e{0}f {0}{0} g", "a{0}{0}\n{0} b")
    texts = [way.format(c) for way in ways for c in chars]
    return {c for c, same in zip(list(chars) * len(ways), _are_same(cache, texts), strict=True) if not same}


def _cuts(own: Any) -> list[tuple[str, Callable[[Sequence[str]], Cut]]]:
    """Return the ways to cut texts that may be those of a tokenizer, with their blanks; each has to be tried.

    A way takes more characters whose texts cannot be cut.
    """
    from tamis.kernels.tokens.word_ids import Cut

    # Found in a text before it is cut into words; and, for SentencePiece, what its normalizers take from the ends of a
    # text.
    marks = [token.content for token in own.get_added_tokens_decoder().values()]
    if type(own.pre_tokenizer).__name__ == "BertPreTokenizer":
        # Each of ASCII's punctuation is a word of its own.
        return [(" \n", lambda aside: Cut(" \n", string.punctuation, [*marks, *aside]))]
    marks.append(_metaspace(own).replacement)  # a blank becomes one: next to a blank they are ambiguous

    def way(blanks: str, at_end: bool) -> Callable[[Sequence[str]], Cut]:
        return lambda aside: Cut(blanks, "", [*marks, *(c for c in _WHITE if c not in blanks), *aside], at_end)

    # Where nothing takes the spaces from the end of a text, they are a token of their own there.
    return [(blanks, way(blanks, at_end)) for at_end in (False, True) for blanks in _BLANKS]


def _metaspace(own: Any) -> Any:
    """Return the pre-tokenizer that makes blanks of spaces, or None; white space may be cut first."""
    steps = own.pre_tokenizer
    if type(steps).__name__ == "Sequence":
        steps = steps[1] if [type(step).__name__ for step in steps] == ["WhitespaceSplit", "Metaspace"] else None
    return steps if type(steps).__name__ == "Metaspace" and steps.split else None


def why_not(own: Any) -> str:
    """Return why the words of a text cannot be encoded one by one, as part of a sentence; "" if it can be tried."""
    splits = type(own.pre_tokenizer).__name__ if own.pre_tokenizer is not None else "nothing"
    if splits != "BertPreTokenizer" and _metaspace(own) is None:
        how = " that does not split" if splits == "Metaspace" else ""
        return f"its texts are split by {splits}{how}"
    if getattr(own.model, "dropout", None):
        return "its merges are dropped at random (dropout)"
    if own.truncation is not None or own.padding is not None:
        return "it cuts or pads by itself"
    for token in own.get_added_tokens_decoder().values():
        if reason := _why_not_added(token, own.normalizer):
            return reason
    return ""


def _why_not_added(token: Any, normalizer: Any) -> str:
    """Return why texts cannot be searched for an added token, as part of a sentence; "" if they can."""
    if not token.content:
        return "one of its added tokens is empty"
    if any(c.isspace() for c in token.content) or token.lstrip or token.rstrip or token.single_word:
        return f"its added token {token.content!r} depends on its neighbours"
    if token.normalized and _is_same_in_capitals(token.content, normalizer):
        return f"its added token {token.content!r} may be written in many ways"
    return ""


def _is_same_in_capitals(content: str, normalizer: Any) -> bool:
    """Return True if a normalizer maps other spellings (upper or lower case) to the same string.

    Then searching texts for `content` does not detect it.
    """
    ways = {content.upper(), content.lower()} - {content} if normalizer is not None else ()
    return any(normalizer.normalize_str(way) == normalizer.normalize_str(content) for way in ways)
