"""Tokenizers of a folder: texts become token ids, by kernels if all of a tokenizer is understood, else by the library.

Both give the same ids; `why_not` says which part of a tokenizer is the library's, or "". Documents never have special
tokens around them here: what marks their ends is added by the stages that write tokens.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tamis._lazy import np, pa
from tamis.errors import UsageError, optional
from tamis.failures import is_memory_failure
from tamis.stages.text.tokens.char_classes import FEATURE, library_classes, may_not_be_nfc, with_marks
from tamis.stages.text.tokens.vocabulary import BLANK, NotUnderstood, Prefix, Vocabulary, read_json, read_tiktoken

if TYPE_CHECKING:
    from tamis.kernels.tokens.added_tokens import AddedTokens
    from tamis.kernels.tokens.byte_bpe import BpeEncoder, BpeTables, CharClasses, Segments
    from tamis.stages.text.tokens.word_cache import WordCache

Array = Any
_CHUNK = 256  # texts that the library encodes at once: its answers are large
_IDS_PER_BYTE = 16  # at most: a character of 3 bytes may become 18, and each of these two bytes
_WORDWISE = ("Unigram", "WordPiece")
# Normalizers that change characters whatever is next to them, or only marks that follow.
_OF_CHARACTERS = {"BertNormalizer", "NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Strip", "Nmt"}
_OF_CHARACTERS |= {"Precompiled", "characters"}
_SETTINGS = ("tokenizer_config.json", "special_tokens_map.json")


class TokenLists(NamedTuple):
    """Token ids of texts: those of text i are ids[offsets[i]:offsets[i + 1]]."""

    ids: Array
    offsets: Array


def with_ends(lists: TokenLists, end: int) -> TokenLists:
    """Return the same lists with one more id at the end of each."""
    ids, offsets = lists
    n_rows = len(offsets) - 1
    longer = np.empty(len(ids) + n_rows, np.int32)
    is_end = np.zeros(len(longer), bool)
    new = offsets + np.arange(n_rows + 1)
    is_end[new[1:] - 1] = True
    longer[is_end] = end
    longer[~is_end] = ids
    return TokenLists(longer, new)


class BpeTokenizer:
    """A BPE tokenizer, encoded by kernels."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        from tamis.kernels.tokens.added_tokens import AddedTokens
        from tamis.kernels.tokens.byte_bpe import BpeTables, CharIds

        classes, long_s = library_classes()
        self.size = vocabulary.size
        self._prefix = vocabulary.prefix
        self._blanks = (b" ",) if vocabulary.char_ids is None else (b" ", BLANK.encode())
        self._normalizer: Any = None
        self._not_nfc: CharClasses | None = None
        if vocabulary.nfc:
            self._normalizer, self._not_nfc = (
                optional("tokenizers", FEATURE, "tokens").normalizers.NFC(),
                may_not_be_nfc(),
            )
        self._tables: BpeTables = BpeTables.make(
            np.array(vocabulary.pattern.numbers(long_s), np.int64),
            with_marks(classes) if vocabulary.pattern.marks else classes,
            np.array(vocabulary.byte_ids, np.int32),
            vocabulary.merges,
            vocabulary.tokens,
            ignore_merges=vocabulary.ignore_merges,
            chars=None if vocabulary.char_ids is None else CharIds.make(vocabulary.char_ids, vocabulary.edges),
        )
        normalized = {self._nfc(content): token for content, token in vocabulary.normalized.items()}
        self._added: list[AddedTokens | None] = [
            AddedTokens({content.encode(): token for content, token in tokens.items()}) if tokens else None
            for tokens in (vocabulary.raw, normalized)
        ]
        self._encoder: BpeEncoder | None = None
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_encoder": None, "_lock": None, "_normalizer": self._normalizer is not None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.Lock()
        self._normalizer = optional("tokenizers", FEATURE, "tokens").normalizers.NFC() if state["_normalizer"] else None

    def encode(self, texts: pa.Array) -> TokenLists:
        """Return the ids of a column of texts; a null has none."""
        from tamis.kernels.buffers import string_buffers
        from tamis.kernels.tokens.byte_bpe import BpeEncoder, Segments

        buffers = string_buffers(texts)
        starts, ends = buffers.spans()
        data, n_rows = buffers.data, starts.size
        rows = np.arange(n_rows)
        segments = Segments(starts, ends, np.full(n_rows, -1, np.int32))
        raw, normalized = self._added
        if raw is not None:
            segments, rows = raw.find(data, segments)
        if self._not_nfc is not None:
            data, segments = self._normalize(data, segments)
        is_first = segments.starts == starts[rows]
        if self._prefix is Prefix.ALWAYS:
            data, segments = _with_spaces(data, segments, np.ones(rows.size, bool))
        if normalized is not None:
            segments, parts = normalized.find(data, segments)
            is_first = is_first[parts] & (np.diff(parts, prepend=-1) > 0)
            rows = rows[parts]
        if self._prefix in (Prefix.MISSING, Prefix.FIRST):
            lacks = ~_begin_with(self._blanks, data, segments)
            data, segments = _with_spaces(data, segments, lacks & is_first if self._prefix is Prefix.FIRST else lacks)
        with self._lock:
            if self._encoder is None:  # of this process: caches are not shared
                self._encoder = BpeEncoder(self._tables)
            ids, n_ids = self._encoder.encode(data, segments)
        offsets = np.zeros(n_rows + 1, np.int64)
        np.add.at(offsets[1:], rows, n_ids)
        np.cumsum(offsets, out=offsets)
        return TokenLists(ids, offsets)

    def _nfc(self, text: str) -> str:
        return text if self._normalizer is None else str(self._normalizer.normalize_str(text))

    def _normalize(self, data: Array, segments: Segments) -> tuple[Array, Segments]:
        """Return the same segments in NFC: those that may change are appended to the data as the library makes them."""
        from tamis.kernels.tokens.added_tokens import have_flag

        assert self._not_nfc is not None
        some = have_flag(data, segments.starts, segments.ends, self._not_nfc) & (segments.token_ids < 0)
        which = np.flatnonzero(some)
        if not which.size:
            return data, segments
        texts = [
            np.frombuffer(self._nfc(bytes(data[a:b]).decode("utf-8", "replace")).encode(), np.uint8)
            for a, b in zip(segments.starts[which].tolist(), segments.ends[which].tolist(), strict=True)
        ]
        sizes = np.array([text.size for text in texts], np.int64)
        starts, ends = segments.starts.copy(), segments.ends.copy()
        ends[which] = data.size + np.cumsum(sizes)
        starts[which] = ends[which] - sizes
        return np.concatenate([data, *texts]), segments._replace(starts=starts, ends=ends)


def _begin_with(beginnings: Sequence[bytes], data: Array, segments: Segments) -> Array:
    """Return which segments begin with any of these bytes."""
    found = np.zeros(segments.starts.size, bool)
    for beginning in beginnings:
        are_equal = segments.ends - segments.starts >= len(beginning)
        for k, byte in enumerate(beginning):
            are_equal[are_equal] = data[segments.starts[are_equal] + k] == byte
        found |= are_equal
    return found


def _with_spaces(data: Array, segments: Segments, chosen: Array) -> tuple[Array, Segments]:
    """Return the same segments with a space in front of the chosen ones that are neither tokens nor empty."""
    from tamis.kernels.records.json_text import copy_spans

    lacks = chosen & (segments.token_ids < 0) & (segments.ends > segments.starts)
    lengths = segments.ends - segments.starts
    ends = np.cumsum(lengths + lacks)
    starts = ends - lengths
    out = np.full(int(ends[-1]) if ends.size else 0, 32, np.uint8)
    copy_spans(data, segments.starts, lengths, out, starts)
    return out, segments._replace(starts=starts - lacks, ends=ends)


class LibraryTokenizer:
    """Any tokenizer of `tokenizers`, encoded by the library itself."""

    def __init__(self, tokenizer: Any) -> None:
        tokenizer.no_padding()
        tokenizer.no_truncation()
        self.tokenizer = tokenizer
        self.size = max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1) + 1

    def lists(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of some texts."""
        # Threads that are started here are missing in processes that are forked later.
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        return [one.ids for one in self.tokenizer.encode_batch_fast(texts, add_special_tokens=False)]

    def encode(self, texts: pa.Array) -> TokenLists:
        """Return the ids of a column of texts; a null has none."""
        from itertools import chain

        lengths, parts = [np.zeros(1, np.int64)], [np.zeros(0, np.int32)]
        for begin in range(0, len(texts), _CHUNK):
            lists = self.lists([text or "" for text in texts.slice(begin, _CHUNK).to_pylist()])
            lengths.append(np.fromiter(map(len, lists), np.int64, len(lists)))
            parts.append(np.fromiter(chain.from_iterable(lists), np.int32, int(lengths[-1].sum())))
        return TokenLists(np.concatenate(parts), np.cumsum(np.concatenate(lengths)))


class WordwiseTokenizer:
    """A Unigram or WordPiece tokenizer: kernels look words up, and the library encodes each once."""

    def __init__(self, library: LibraryTokenizer, cache: WordCache) -> None:
        self._library, self._cache, self.size = library, cache, library.size

    def encode(self, texts: pa.Array) -> TokenLists:
        """Return the ids of a column of texts; a null has none."""
        from tamis.kernels.buffers import string_buffers
        from tamis.kernels.tokens.word_ids import IdRequest
        from tamis.stages.text.tokens.id_lists import IdLists, joined

        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        buffers = string_buffers(texts)
        starts, ends = buffers.spans()
        chunks: list[IdLists] = []
        for begin in range(0, len(texts), _CHUNK):
            rows = np.arange(begin, min(begin + _CHUNK, len(texts)))
            most = _IDS_PER_BYTE * (int((ends - starts)[rows].max()) + 1)
            found, aside = self._cache.look_up(buffers, rows, IdRequest(most, most))
            chunks += found
            if aside.size:
                own = self._library.encode(texts.take(pa.array(aside)))
                chunks.append(IdLists(aside, np.diff(own.offsets), own.ids))
        offsets, ids = joined(chunks, len(texts))
        return TokenLists(ids, offsets)


def wordwise(library: LibraryTokenizer, parts: Any) -> tuple[WordwiseTokenizer | None, str]:
    """Return a tokenizer that looks up words, and why the library has to encode whole texts, or "".

    `parts`: the tokenizer.json.
    """
    from tamis.stages.text.tokens.word_cache import cache_of, why_not

    own = library.tokenizer
    unknown = sorted({kind for kind in _normalizers(parts.get("normalizer")) if kind not in _OF_CHARACTERS})
    reason = f"its normalizer is {unknown[0]!r}" if unknown else why_not(own)
    if reason:
        return None, reason
    cache = cache_of(own, library.lists, _doubtful(own))
    if cache is None:
        return None, "ids of its words depend on their neighbours"
    return WordwiseTokenizer(library, cache), ""


def _normalizers(part: Any) -> list[str]:
    """Return the types of all normalizers; "Replace" only for one that joins spaces, or of one character."""
    if not isinstance(part, dict):
        return []
    if part.get("type") == "Sequence":
        return [kind for one in part.get("normalizers") or [] for kind in _normalizers(one)]
    pattern = part.get("pattern")
    content = part.get("content")
    if part.get("type") == "Replace" and isinstance(pattern, dict):
        is_plain = len(str(pattern.get("String", "ab"))) == 1 or (pattern.get("Regex"), content) == (" {2,}", " ")
        return ["characters" if is_plain else "Replace"]
    return [str(part.get("type"))]


def _doubtful(own: Any) -> list[str]:
    """Return the characters that may make neighbours of words different: marks, and what becomes blank or nothing."""
    import unicodedata

    normalize = str if own.normalizer is None else own.normalizer.normalize_str
    found = []
    for code in (*range(0x20, 0xD800), *range(0xE000, 0x32000), *range(0xE0000, 0xE0200)):
        char = chr(code)
        kind = unicodedata.category(char)
        if kind == "Cn" or kind == "Co":
            continue
        if kind[0] in "MCZ" or not (changed := normalize(char)) or not changed.isprintable() or " " in changed:
            found.append(char)
    return found


Encoder = BpeTokenizer | WordwiseTokenizer | LibraryTokenizer


class CorpusTokenizer:
    """A tokenizer with what a folder says about it.

    end: the id of the token that ends a document, or None. why_not: the part of it that kernels do not reproduce, as
    part of a sentence; "" where they encode texts.
    """

    def __init__(self, encoder: Encoder, name: str, ends: dict[str, int], why_not: str = "") -> None:
        self._encoder, self.name, self._special, self.why_not = encoder, name, ends, why_not
        self.end: int | None = ends.get("")
        self.size = encoder.size

    def encode(self, texts: pa.Array) -> TokenLists:
        """Return the ids of a column of texts; a null has none."""
        return self._encoder.encode(texts)

    def token(self, content: str) -> int:
        """Return the id of a special token; raise UsageError if there is none."""
        try:
            return self._special[content]
        except KeyError:
            known = ", ".join(sorted(name for name in self._special if name)[:10]) or "none"
            raise UsageError(f"tokenizer {self.name}: {content!r} is no special token of it; it has {known}") from None


def kernel_of(text: str | bytes) -> BpeTokenizer | None:
    """Return a tokenizer from the contents of a tokenizer.json if kernels can encode its texts, else None."""
    try:
        return BpeTokenizer(read_json(text))
    except NotUnderstood:
        return None


def of_json(text: str | bytes) -> tuple[Encoder, str]:
    """Return a tokenizer from the contents of a tokenizer.json, and why the library encodes its texts, or ""."""
    try:
        return BpeTokenizer(read_json(text)), ""
    except NotUnderstood as exc:
        reason = str(exc)
    library = optional("tokenizers", FEATURE, "tokens")
    plain = text if isinstance(text, str) else text.decode("utf-8", "replace")
    try:
        own = LibraryTokenizer(library.Tokenizer.from_str(plain))
    except BaseException as exc:  # for what it cannot read the library raises plain exceptions, or panics
        if is_memory_failure(exc) or not (isinstance(exc, Exception) or type(exc).__name__ == "PanicException"):
            raise
        raise UsageError(f"its tokenizer.json cannot be read: {' '.join(str(exc).split())[:300]}") from None
    parts = json.loads(plain)
    if parts["model"].get("type") not in _WORDWISE:
        return own, reason
    found, reason = wordwise(own, parts)
    return found or own, reason


def load(path: str | os.PathLike[str]) -> CorpusTokenizer:
    """Load the tokenizer of a folder or file: a tokenizer.json, or a .tiktoken file of a known name."""
    file = tokenizer_path(path)
    if file.suffix == ".tiktoken":
        vocabulary, special = read_tiktoken(str(file))
        end = next((i for name, i in special.items() if name == "<|endoftext|>"), None)
        return CorpusTokenizer(BpeTokenizer(vocabulary), str(path), special | ({} if end is None else {"": end}))
    text = file.read_bytes()
    try:
        encoder, reason = of_json(text)
    except UsageError as exc:
        raise UsageError(f"{file}: {exc}") from None
    return CorpusTokenizer(encoder, str(path), _special_tokens(file, text), reason)


def tokenizer_path(path: str | os.PathLike[str]) -> Path:
    """Return the file of a tokenizer: the path itself, or the one in a folder; raise UsageError if there is none."""
    found = Path(path).expanduser()
    if found.is_file():
        if found.suffix not in (".json", ".tiktoken"):
            raise UsageError(f"tokenizer {path}: expected a tokenizer.json or a .tiktoken file, or a folder with one")
        return found
    if (found / "tokenizer.json").is_file():
        return found / "tokenizer.json"
    ranks = sorted(found.glob("*.tiktoken")) if found.is_dir() else []
    if len(ranks) == 1:
        return ranks[0]
    raise UsageError(
        f"tokenizer {path}: expected a folder with a tokenizer.json or one .tiktoken file, or such a file; "
        + ("it has several .tiktoken files" if ranks else "there is none")
    )


def _special_tokens(file: Path, text: bytes) -> dict[str, int]:
    """Return the added tokens of a tokenizer.json by their text, and as "" the one that ends a document."""
    try:
        added = json.loads(text).get("added_tokens") or []
        special = {str(token["content"]): int(token["id"]) for token in added}
    except (ValueError, TypeError, KeyError, AttributeError):
        special = {}
    for name in _SETTINGS:
        try:
            content = json.loads((file.parent / name).read_bytes()).get("eos_token")
        except (OSError, ValueError, AttributeError):
            continue
        content = content.get("content") if isinstance(content, dict) else content
        if isinstance(content, str) and content in special:
            return special | {"": special[content]}
    return special


def text_counter(folder: str) -> Callable[[str], int]:
    """Return a function that counts the tokens of one text, for samples of a few documents."""
    from tamis._lazy import pa

    loaded = load(folder)

    def count(text: str) -> int:
        plain = text.encode("utf-8", "replace").decode()  # half of a pair of surrogates is no text
        return len(loaded.encode(pa.array([plain], pa.large_string())).ids)

    return count
