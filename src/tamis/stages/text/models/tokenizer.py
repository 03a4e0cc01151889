"""TokenizerStage: texts become token ids, on the CPU, for the model stage that follows. Texts do not change."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from tamis._lazy import np, pa, pc
from tamis.errors import TamisError, UsageError, optional
from tamis.failures import is_memory_failure
from tamis.secrets import Secret
from tamis.sizes import check_optional_integer
from tamis.stages.base import ProcessingStage
from tamis.stages.text import pretrained
from tamis.stages.text.models import folder as folders
from tamis.stages.text.models.custom_code import custom_code
from tamis.stages.text.models.utils import TOKENS, format_name_with_suffix
from tamis.stages.text.pretrained import tokenizer_bytes
from tamis.stages.traits import StageTraits
from tamis.tasks import DocumentBatch

if TYPE_CHECKING:  # kernels import numpy, which planning must not load
    from tamis.kernels.buffers import StringBuffers
    from tamis.stages.text.tokens.id_lists import IdLists
    from tamis.stages.text.tokens.word_cache import WordCache

_CHARS_PER_TOKEN = 5  # of a text so many characters are looked at first, for each token that is wanted
# Tokens near a cut may differ from those of the whole text: so many more than wanted must be there, and more for some.
_N_SPARE = 32
_CHUNK = 256  # texts tokenized at once: uncached words, and lists of Python numbers, are large
_LONGEST = 1 << 20  # a tokenizer that knows no limit says 10**30
_DEFAULT_TOKENS = 512
# Loading tokenizer.json takes 12 (Unigram) to 18 times its size (WordPiece, BPE, added tokens), as measured; less is
# certain not to be enough.
LEAST_PER_BYTE = 6


@dataclass(repr=False)
class TokenizerStage(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Adds the token ids of each text, at most `max_seq_length` (None: as many as the model takes), for a model stage.

    `max_chars` cuts what is looked at, not the text. Whatever the length of a text, only its beginning is tokenized: as
    much as is needed for so many tokens. Documents without a text get null. Padding is the model stage's:
    `padding_side` and `unk_token` (a padding token for a tokenizer that has none) make no difference here, for nothing
    is padded.
    """

    traits: ClassVar[StageTraits] = StageTraits(only_adds=True)
    kernel_groups: ClassVar[tuple[str, ...]] = ("tokens",)

    model_identifier: str
    cache_dir: str | None = None
    hf_token: str | None = None
    text_field: str = "text"
    max_chars: int | None = None
    max_seq_length: int | None = None
    padding_side: str = "right"
    sort_by_length: bool = True
    unk_token: bool = False
    transformers_init_kwargs: dict[str, Any] | None = None
    trust_remote_code: bool = False
    columns_in = ("text_field",)
    columns_out = (TOKENS,)

    def __post_init__(self) -> None:
        for name, value in (("max_chars", self.max_chars), ("max_seq_length", self.max_seq_length)):
            check_optional_integer(value, f"TokenizerStage: {name}")
        self.hf_token = None if self.hf_token is None else Secret(self.hf_token)
        self.name = format_name_with_suffix(self.model_identifier, "_tokenizer")
        self._frames: list[str] = []
        self._are_sentences = self._lower_case = False
        self._tokenizer: Tokenizer | None = None

    def keep_ends_of(self, texts: list[str]) -> None:
        """Cut overlong texts in the middle, since all texts will begin and end like these (prompts around a message).

        Not a parameter of this stage: runs that were started without it can be resumed.
        """
        self._frames = texts

    def read_as_sentences(self) -> None:
        """Treat the model as a sentence-transformers model.

        If its folder sets a maximum text length and lowercasing, these are applied. They are not parameters of this
        stage, because a model that is yet to be fetched provides them later.
        """
        self._are_sentences = True

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_tokenizer": None}

    def setup_on_node(self, node_info: Any = None, worker_metadata: Any = None) -> None:
        """Load the tokenizer before workers are forked, so that they share it."""
        self.setup()

    def setup(self, worker_metadata: Any = None) -> None:
        if self._tokenizer is None:
            path = folders.fetch(self.model_identifier, self.cache_dir, self.hf_token, self.trust_remote_code)
            longest = self.max_seq_length
            if self._are_sentences:
                settings = folders.sentence_settings(path)
                longest, self._lower_case = longest or settings.max_tokens, settings.lower_case
            tokenizer = Tokenizer(path, longest, self.trust_remote_code, self.transformers_init_kwargs)
            if self._frames:
                tokenizer.keep_ends_of(self._frames)
            self._tokenizer = tokenizer

    def least_bytes(self) -> int:
        """Return the memory that loading the tokenizer's files takes, if they are already on this machine."""
        try:
            path = pretrained.local(self.model_identifier, self.cache_dir, self.trust_remote_code)
            return LEAST_PER_BYTE * tokenizer_bytes(path)
        except (TamisError, OSError):  # reported when the run sets it up
            return 0

    def model_files(self) -> str:
        try:
            return folders.fingerprint(pretrained.local(self.model_identifier, self.cache_dir, self.trust_remote_code))
        except (TamisError, OSError):
            return ""

    def process(self, task: DocumentBatch) -> DocumentBatch:
        self.setup()
        assert self._tokenizer is not None
        texts = task.texts(self.text_field)
        if self._lower_case:
            texts = _lowered(texts, self.max_chars)
        return task.with_column(TOKENS, self._tokenizer.column(texts, None if self._lower_case else self.max_chars))


class Tokenizer:
    """A tokenizer of a model's folder, as `transformers` loads it; `max_tokens` is what a text is cut to."""

    def __init__(
        self,
        path: Path,
        max_tokens: int | None = None,
        trust_remote_code: bool = False,
        settings: dict[str, Any] | None = None,
    ) -> None:
        # Whatever the user set: threads that it starts here are not there in the workers, which would wait for them for
        # ever.
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        tokenizers = optional("transformers", "a tokenizer of transformers", "models").AutoTokenizer
        config = folders.read_json(path / "config.json")
        if not trust_remote_code:
            folders.refuse_code(path)
        try:
            self._own = tokenizers.from_pretrained(
                str(path), local_files_only=True, trust_remote_code=trust_remote_code, **(settings or {})
            )
        except Exception as exc:  # the libraries raise anything for missing or damaged files
            if isinstance(exc, TamisError) or is_memory_failure(exc):
                raise
            raise UsageError(
                f"model folder {path}: its tokenizer cannot be loaded ({type(exc).__name__}: "
                f"{str(exc).strip()[:300]}); "
                "expected tokenizer.json or the files of a tokenizer that transformers knows"
            ) from None
        limits: list[Any] = [self._own.model_max_length, *map(config.get, folders.N_POSITIONS)]
        usable_limits = [int(n) for n in limits if isinstance(n, int) and 0 < n < _LONGEST]
        self.max_tokens = folders.most_tokens(
            config, max_tokens or min(usable_limits, default=_DEFAULT_TOKENS), _DEFAULT_TOKENS
        )

        self._end = np.empty(0, np.int32)  # what stays where a text is cut
        self._specials = self._whole([""])[0]
        self._n_behind = _behind(self._specials, self._whole(["a"])[0])
        n_before = len(self._specials) - self._n_behind
        self._affixes = self._specials[:n_before], self._specials[n_before:]
        model = getattr(getattr(self._own, "backend_tokenizer", None), "model", None)
        # WordPiece knows no word that is longer; what a cut leaves of one may have a token for each character.
        self._n_spare = max(_N_SPARE, getattr(model, "max_input_chars_per_word", 0))
        self._words = words_of(self._own, lambda texts: self._whole(texts, specials=False))
        if self.max_tokens <= len(self._specials):
            raise UsageError(
                f"max_seq_length={self.max_tokens}: this tokenizer adds {len(self._specials)} tokens to every text"
            )

    def keep_ends_of(self, texts: Sequence[str]) -> None:
        """Keep the common ends of these texts, as `TokenizerStage.keep_ends_of` does."""
        prefix, suffix = self.ends_of(texts)
        if len(prefix) + len(suffix) >= self.max_tokens:
            raise UsageError(
                f"max_seq_length={self.max_tokens}: prompt and special tokens take "
                f"{len(prefix) + len(suffix)} tokens, so that nothing of a text would be read; "
                "give a larger max_seq_length (or a shorter policy)"
            )
        self._end = np.array(suffix, np.int32)

    def ends_of(self, texts: Sequence[str]) -> tuple[list[int], list[int]]:
        """Return the tokens that all of these texts begin with, and those that all of them end with."""
        from tamis.stages.text.tokens.id_lists import common_ends

        return common_ends(self._encode(texts))

    def column(self, texts: pa.Array, max_chars: int | None = None) -> pa.Array:
        """Return token ids as a column of lists; null where there is no text."""
        from tamis.kernels.buffers import string_buffers
        from tamis.stages.text.tokens.id_lists import joined

        is_valid = np.asarray(texts.is_valid())
        buffers = string_buffers(texts)
        chunks: list[IdLists] = []
        for begin in range(0, len(texts), _CHUNK):
            chunks += self._some(texts, buffers, begin + np.flatnonzero(is_valid[begin : begin + _CHUNK]), max_chars)
        offsets, ids = joined(chunks, len(texts))
        if self._end.size:
            # Those that were cut, or end so anyway.
            for end in offsets[1:][np.diff(offsets) == self.max_tokens].tolist():
                ids[end - self._end.size : end] = self._end
        return pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(ids), mask=pa.array(~is_valid))

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of some tokens, without special ones."""
        return str(self._own.decode(list(ids), skip_special_tokens=True))

    def _some(
        self, texts: pa.Array, buffers: StringBuffers, rows: np.ndarray[Any, Any], max_chars: int | None
    ) -> list[IdLists]:
        """Return the tokens of the texts of these rows, none of which is null.

        Known words are looked up; other texts are encoded by the tokenizer itself.
        """
        from tamis.kernels.tokens.word_ids import ALL_CHARS, IdRequest
        from tamis.stages.text.tokens.id_lists import IdLists

        chunks: list[IdLists] = []
        if self._words is not None:
            most = self.max_tokens - len(self._specials)
            prefix, suffix = (np.array(ids, np.int32) for ids in self._affixes)
            chars = _CHARS_PER_TOKEN * (self.max_tokens + _N_SPARE), max_chars or ALL_CHARS
            chunks, rows = self._words.look_up(
                buffers, rows, IdRequest(most, most + self._n_spare, *chars, prefix, suffix)
            )
        if rows.size:
            chunks.append(IdLists.of(rows, self._tokens(texts.take(pa.array(rows)), max_chars)))
        return chunks

    def _tokens(self, texts: pa.Array, max_chars: int | None) -> list[list[int]]:
        """Encode some texts with the tokenizer itself.

        A beginning that proves too short for `max_tokens` is extended.
        """
        sizes = [min(n, max_chars or n) for n in pc.utf8_length(texts).to_pylist()]
        pending = list(range(len(sizes)))
        token_ids: list[list[int]] = [[] for _ in sizes]
        n_chars = _CHARS_PER_TOKEN * (self.max_tokens + _N_SPARE)
        while pending:
            some = pc.utf8_slice_codeunits(texts.take(pending), 0, min(n_chars, max_chars or n_chars)).to_pylist()
            again = []
            for i, ids in zip(pending, self._encode(some), strict=True):
                if sizes[i] > n_chars and len(ids) < self.max_tokens + self._n_spare:
                    again.append(i)
                else:
                    token_ids[i] = self._cut(ids)
            pending, n_chars = again, n_chars * 4
        return token_ids

    def _encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of some texts, including the special ones."""
        if self._words is None:
            return self._whole(texts)
        prefix, suffix = self._affixes
        return [[*prefix, *ids, *suffix] for ids in self._whole(texts, specials=False)]

    def _whole(self, texts: Sequence[str], specials: bool = True) -> list[list[int]]:
        """Return the ids of whole texts from the tokenizer itself, with or without the special ones."""
        settings = {
            "add_special_tokens": specials,
            "truncation": False,
            "padding": False,
            "return_attention_mask": False,
            "return_token_type_ids": False,
        }
        return list(self._own(list(texts), verbose=False, **settings)["input_ids"]) if texts else []

    def _cut(self, ids: list[int]) -> list[int]:
        """Cut to `max_tokens`, and keep the special tokens at the end."""
        if len(ids) <= self.max_tokens:
            return ids
        return ids[: self.max_tokens - self._n_behind] + (ids[-self._n_behind :] if self._n_behind else [])


def words_of(tokenizer: Any, encode: Callable[[Sequence[str]], list[list[int]]]) -> WordCache | None:
    """Return a cache for a tokenizer of `transformers` if its words can be encoded one by one, else None.

    `encode`: without special tokens.
    """
    from tamis.stages.text.tokens.word_cache import cache_of

    return None if why_not_words(tokenizer) else cache_of(tokenizer.backend_tokenizer, encode)


def why_not_words(tokenizer: Any) -> str:
    """Return why the words of a text cannot be encoded one by one, as part of a sentence; "" if it can be tried."""
    from tamis.stages.text.tokens.word_cache import why_not

    own = getattr(tokenizer, "backend_tokenizer", None)
    if own is None:
        return "it is not one of the library tokenizers"
    if custom := custom_code(tokenizer):
        return f"it runs code of its own ({custom})"
    return why_not(own)


def _lowered(texts: pa.Array, max_chars: int | None) -> pa.Array:
    """Return texts (the first `max_chars` characters of each) in lower case, by Python's rules.

    Arrow does not handle a sigma at the end of a word.
    """
    cut = texts if max_chars is None else pc.utf8_slice_codeunits(texts, 0, max_chars)
    return pa.array([None if text is None else text.lower() for text in cut.to_pylist()], pa.large_string())


def _behind(alone: list[int], around: list[int]) -> int:
    """Return how many of the tokens that a tokenizer adds come after a text.

    Those are the tokens of the empty text that end `around` as well.

    >>> _behind([1, 2], [1, 77, 2]), _behind([1], [1, 77]), _behind([2], [77, 2]), _behind([], [77])
    (1, 0, 1, 0)
    """
    n = 0
    while n < len(alone) and alone[-1 - n] == around[-1 - n]:
        n += 1
    n_prefix = 0
    while n_prefix < len(alone) - n and alone[n_prefix] == around[n_prefix]:
        n_prefix += 1
    return len(alone) - n_prefix
