"""Stages that tokenize: documents get a column of token ids, and a writer puts these into files that trainers read."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from tamis._dataclasses import dataclass
from tamis._lazy import np, pa
from tamis.errors import TamisError, UsageError
from tamis.stages.base import CompositeStage, ProcessingStage
from tamis.stages.fingerprints import joined, of_file
from tamis.stages.io import Writer
from tamis.stages.text.io.writer.files import MODES, output_path
from tamis.stages.text.tokens.options import NO_END, TokenOptions
from tamis.stages.text.tokens.tokenizer import CorpusTokenizer, TokenLists, load, tokenizer_path, with_ends
from tamis.stages.traits import StageTraits
from tamis.stages.vector_cache import VectorCache, is_worth_storing
from tamis.tasks import DocumentBatch, FileGroupTask
from tamis.tasks.lineage import NOTE_METRIC

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]

IDS, IDENTITY = "input_ids", "tamis_identity"
SPLIT_SEED = 0x73706C6974
"""Of the hash of a text that decides which split it is in, for documents and their tokens alike."""
COUNTED_FIELDS = ("language", "source", "quality_bucket")
_LEAST_PER_BYTE = 6  # of a tokenizer.json while it is read
_MAX_VALUES, _MAX_CHARS = 100, 60
_HALF = 1 << 24  # a count is stored as two numbers below this one, which are exact as 32-bit floats
_KEPT_BYTES = 16  # of a count and the position of its document


@dataclass(repr=False)
class Tokenize(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Adds the token ids of each text, as the column `input_ids`, followed by the end token.

    `tokenizer`: a folder with tokenizer.json, or a .tiktoken file. A document without text has the end token alone.
    `end_token`: the text of a special token; None: what the tokenizer calls its end of sequence; "none": nothing.
    Counts tokens, also by language, source and bucket where documents name them, in the metrics.
    """

    traits: ClassVar[StageTraits] = StageTraits(only_adds=True)
    kernel_groups: ClassVar[tuple[str, ...]] = ("tokens",)

    tokenizer: str
    text_field: str = "text"
    end_token: str | None = None
    id_format: str = "megatron"
    name: str = "tokenize"
    columns_in = ("text_field",)
    columns_out = (IDS,)

    def __post_init__(self) -> None:
        TokenOptions(self.tokenizer, end_token=self.end_token)  # checks them
        self._loaded: CorpusTokenizer | None = None
        self._adds_identity = False

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_loaded": None}

    def setup_on_node(self, node_info: Any = None, worker_metadata: Any = None) -> None:
        """Load the tokenizer before workers are forked, so that they share its tables."""
        self.setup()

    def setup(self, worker_metadata: Any = None) -> None:
        if self._loaded is None:
            self._loaded = load(self.tokenizer)
            self._end = self._end_id(self._loaded)

    def least_bytes(self) -> int:
        try:
            return _LEAST_PER_BYTE * tokenizer_path(self.tokenizer).stat().st_size
        except (TamisError, OSError):  # reported when the run sets it up
            return 0

    def model_files(self) -> str:
        try:
            path = tokenizer_path(self.tokenizer)
        except TamisError:
            return ""
        others = (path.with_name(name) for name in ("tokenizer_config.json", "special_tokens_map.json"))
        return joined([of_file(path) or "", *(of_file(other) or "" for other in others)])

    def with_identity(self) -> Tokenize:
        """Also add a hash of each text, for a pass that orders documents and divides them into splits."""
        self._adds_identity = True
        return self

    def process(self, task: DocumentBatch) -> DocumentBatch:
        from tamis.formats.tokens.files import id_type
        from tamis.formats.tokens.format import token_column

        found = self.encode(task)
        assert self._loaded is not None
        try:
            column = token_column(*found, id_type(self.id_format, self._loaded.size))
        except OverflowError as exc:
            raise UsageError(f"{self.name}: {exc}; the tokenizer {self.tokenizer} has ids above its size") from None
        self._count(task, np.diff(found.offsets))
        task = task.with_column(IDS, column)
        return self._identified(task) if self._adds_identity else task

    def encode(self, task: DocumentBatch) -> TokenLists:
        """Return the token ids of each document, followed by the end token."""
        self.setup()
        assert self._loaded is not None
        found = self._loaded.encode(task.texts(self.text_field))
        return found if self._end is None else with_ends(found, self._end)

    def by_library(self, n_texts: int) -> dict[str, float]:
        """Return a note of why the library encoded these texts, several times slower; none where kernels did."""
        assert self._loaded is not None
        reason = self._loaded.why_not
        return {f"{NOTE_METRIC}texts encoded by the library tokenizers, as {reason}": n_texts} if reason else {}

    def _identified(self, task: DocumentBatch) -> DocumentBatch:
        from tamis.kernels.buffers import string_buffers
        from tamis.kernels.records.hash128 import hash_arrow_strings

        parts = string_buffers(task.texts(self.text_field))
        hashes, _ = hash_arrow_strings(parts.offsets, parts.data, parts.validity, SPLIT_SEED)
        return task.with_column(IDENTITY, pa.array(hashes))

    def _end_id(self, tokenizer: CorpusTokenizer) -> int | None:
        if self.end_token == NO_END:
            return None
        if self.end_token is not None:
            return tokenizer.token(self.end_token)
        if tokenizer.end is None:
            raise UsageError(
                f"{self.name}: the tokenizer {self.tokenizer} does not say which token ends a document "
                "(eos_token in its tokenizer_config.json); name it with end_token, or give end_token none"
            )
        return tokenizer.end

    def _count(self, task: DocumentBatch, lengths: Any) -> None:
        counts: dict[str, float] = {"tokens": float(lengths.sum()), **self.by_library(len(lengths))}
        columns = set(task.get_columns())
        for field in COUNTED_FIELDS:
            if field not in columns:
                continue
            for value, n in zip(task.values(field), lengths.tolist(), strict=True):
                key = f"tokens {field}={_label(value)}"
                key = key if key in counts or len(counts) < _MAX_VALUES else f"tokens {field}=(others)"
                counts[key] = counts.get(key, 0.0) + n
        self._log_metrics(counts)


def _label(value: Any) -> str:
    """Return a value of a counted field as reports show it."""
    text = str(value) if isinstance(value, (str, int)) else ""
    return text if 0 < len(text) <= _MAX_CHARS and text.isprintable() else "(others)"


@dataclass(repr=False)
class CountTokens(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Adds the number of tokens of each text as the field `count_field`, for steps that choose and mix by it.

    `tokenizer`: a folder with tokenizer.json, or a .tiktoken file. A document without text has none.
    """

    traits: ClassVar[StageTraits] = StageTraits(only_adds=True, keeps_results=True, counts_tokens_in="count_field")
    kernel_groups: ClassVar[tuple[str, ...]] = ("tokens",)

    tokenizer: str
    text_field: str = "text"
    count_field: str = "n_tokens"
    name: str = "count_tokens"
    columns_in = ("text_field",)
    columns_out = ("count_field",)

    def __post_init__(self) -> None:
        self._tokenize = Tokenize(self.tokenizer, self.text_field, NO_END)
        self._kept_in: str | None = None

    def setup_on_node(self, node_info: Any = None, worker_metadata: Any = None) -> None:
        self._tokenize.setup()

    def setup(self, worker_metadata: Any = None) -> None:
        self._tokenize.setup()

    def least_bytes(self) -> int:
        return self._tokenize.least_bytes()

    def model_files(self) -> str:
        return self._tokenize.model_files()

    def keep_between_passes(self, folder: str) -> None:
        self._kept_in = folder

    def process(self, task: DocumentBatch) -> DocumentBatch:
        counts = self._counts(task) if self._kept_in is None else self._known_counts(task, self._kept_in)
        self._log_metrics({"tokens": float(counts.sum()), **self._tokenize.by_library(len(counts))})
        return task.with_column(self.count_field, pa.array(counts))

    def _counts(self, task: DocumentBatch) -> Array:
        counts: Array = np.diff(self._tokenize.encode(task).offsets)
        return counts

    def _known_counts(self, task: DocumentBatch, folder: str) -> Array:
        """Return the counts of a batch, those of an earlier pass where it stored them."""
        cache = VectorCache(folder)
        is_known, halves = cache.load_rows(task, 2)
        counts: Array = (halves.astype(np.int64) * (_HALF, 1)).sum(axis=1)
        missing = np.flatnonzero(~is_known)
        if not len(missing):
            return counts
        began_s = time.perf_counter()
        counts[missing] = self._counts(task.take(missing))
        seconds = time.perf_counter() - began_s
        if is_worth_storing(seconds, _KEPT_BYTES * len(missing), shutil.disk_usage(folder).free):
            cache.store_rows(task, missing, np.stack(np.divmod(counts[missing], _HALF), axis=1))
        return counts


@dataclass(repr=False)
class TokenFileWriter(Writer):
    """Writes the column `input_ids` in a format of trainers: files for each partition."""

    path: str
    token_format: str = "megatron"
    name: str = "token_writer"
    mode: str = "ignore"

    format = "tokens"
    columns_in = (IDS,)
    columns_out = ()

    def __post_init__(self) -> None:
        TokenOptions("-", self.token_format)  # checks it
        extensions = {"megatron": "bin", "raw": "bin", "mds": "mds.zstd"}
        self.file_extension = extensions.get(self.token_format, self.token_format)

    @property
    def options(self) -> Mapping[str, Any]:  # type: ignore[override]
        return {"field": IDS, "format": self.token_format}


@dataclass(repr=False)
class TokenWriter(CompositeStage[DocumentBatch, FileGroupTask]):
    """Tokenizes documents and writes their token ids, in one file for each partition and those that belong to it.

    `token_format`: megatron (.bin and .idx), npy or raw (an array, and .offsets of documents), parquet or arrow (with a
    column `input_ids`). Other parameters as those of Tokenize. Sequences of one length, splits, another order and MDS
    need a look at all documents: `Curation(..., tokens=...)` and `tamis tokenize` make them.
    """

    path: str
    tokenizer: str
    token_format: str = "megatron"
    text_field: str = "text"
    end_token: str | None = None
    mode: str = "ignore"
    name: str = "token_writer"
    columns_in: ClassVar[Sequence[str] | None] = ("text_field",)

    def __post_init__(self) -> None:
        TokenOptions(self.tokenizer, self.token_format, end_token=self.end_token)
        if self.mode not in MODES:
            raise UsageError(f"{self.name}: mode must be one of {', '.join(MODES)}, got {self.mode!r}")
        if self.token_format == "mds":
            raise UsageError(
                f"{self.name}: shards of mds have one index, which tamis tokenize and a Curation write; here give "
                "another token_format"
            )
        self.path = output_path(self.name, self.path)

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        return [
            Tokenize(self.tokenizer, self.text_field, self.end_token, self.token_format),
            TokenFileWriter(self.path, self.token_format, self.name, self.mode),
        ]
