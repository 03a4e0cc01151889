"""MegatronTokenizerWriter: documents as token ids, in the files that Megatron trains on. Needs the extra `models`.

In a run it is two stages: one that tokenizes, and a writer whose pairs of files the engine commits like any others.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from itertools import chain
from typing import Any, BinaryIO, ClassVar

from tamis import files
from tamis._lazy import np
from tamis.errors import UsageError, check_choice
from tamis.formats.megatron.index import token_type, write_index
from tamis.secrets import Secret
from tamis.stages.base import CompositeStage, ProcessingStage
from tamis.stages.io import Writer, check_options
from tamis.stages.text.io.writer.base import BaseWriter
from tamis.stages.text.io.writer.files import MODES, output_path
from tamis.stages.text.io.writer.utils import batched
from tamis.stages.text.pretrained import IF_TRUSTED, from_pretrained, tokenizer_fingerprint
from tamis.stages.text.tokens.tokenizer import BpeTokenizer, TokenLists
from tamis.tasks import DocumentBatch, FileGroupTask

ENDINGS = (".bin", ".idx")
TOKENS = "megatron_tokens"
"""The column with the tokens of a document, between the two stages."""


@dataclass(repr=False)
class MegatronTokenizeStage(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Adds the token ids of each document; one without text has none. Counts them in the metric `tokens`."""

    model_identifier: str
    cache_dir: str | None = None
    hf_token: InitVar[str | None] = None
    text_field: str = "text"
    tokenization_batch_size: int = 1000
    append_eod: bool = False
    transformers_init_kwargs: Mapping[str, Any] = field(default_factory=dict)
    name: str = "megatron_tokenize"

    kernel_groups: ClassVar[tuple[str, ...]] = ("tokens",)
    columns_in = ("text_field",)
    columns_out = (TOKENS,)

    def __post_init__(self, hf_token: str | None) -> None:
        if self.tokenization_batch_size < 1:
            raise UsageError(
                f"{self.name}: tokenization_batch_size must be at least 1, got {self.tokenization_batch_size}"
            )
        if "local_files_only" in self.transformers_init_kwargs:
            raise UsageError(f"{self.name}: local_files_only cannot be passed in transformers_init_kwargs")
        self._token = None if hf_token is None else Secret(hf_token)
        self._tokenizer: Any = None
        self._known: BpeTokenizer | None = None
        self._is_compared = False

    def model_files(self) -> str:
        settings = {"cache_dir": self.cache_dir, **self.transformers_init_kwargs}
        return tokenizer_fingerprint(self.model_identifier, settings) or ""

    def setup_on_node(self, node_info: Any = None, worker_metadata: Any = None) -> None:
        """Fetch the tokenizer once per machine: the only method that may use the network."""
        self._from_pretrained(local_files_only=False)

    def setup(self, worker_metadata: Any = None) -> None:
        """Load the tokenizer in a worker, from the local cache."""
        self._tokenizer = self._from_pretrained(local_files_only=True)
        self._kernel()

    def teardown(self) -> None:
        self._tokenizer = self._known = None
        self._is_compared = False

    def process(self, task: DocumentBatch) -> DocumentBatch:
        from tamis.formats.tokens.format import token_column

        ids, offsets = self._encoded(task)
        self._log_metrics({"tokens": len(ids)})
        try:
            return task.with_column(TOKENS, token_column(ids, offsets, self.dtype))
        except OverflowError as exc:
            raise UsageError(f"{self.name}: {exc}; the tokenizer reports a smaller vocabulary") from None

    def _encoded(self, task: DocumentBatch) -> TokenLists:
        """Return the token ids of the documents: from kernels where these know the tokenizer, else from itself."""
        from tamis.stages.text.tokens.tokenizer import with_ends

        texts = task.texts(self.text_field)
        if (kernel := self._kernel()) is not None:
            ids = kernel.encode(texts)
            return ids if self._end is None else with_ends(ids, self._end)
        lists: list[list[int]] = []
        for some in batched(texts.to_pylist(), self.tokenization_batch_size):
            lists += self.tokens([text or "" for text in some])
        lengths = np.fromiter(map(len, lists), np.int64, len(lists))
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        return TokenLists(np.fromiter(chain.from_iterable(lists), np.int64, int(offsets[-1])), offsets)

    @property
    def _end(self) -> int | None:
        """The token that is appended to each document, if one is."""
        if not self.append_eod:
            return None
        if self.tokenizer.eos_token_id is None:
            raise UsageError(
                f"{self.name}: append_eod, but the tokenizer {self.model_identifier} has no end-of-sequence token"
            )
        return int(self.tokenizer.eos_token_id)

    def _kernel(self) -> BpeTokenizer | None:
        """Return kernels that encode as the tokenizer does, if it is one of the library that they know."""
        if not self._is_compared:
            self._is_compared = True
            own = getattr(self.tokenizer, "backend_tokenizer", None)
            # Special tokens in texts are read as text if the tokenizer is set to split them.
            is_plain = not getattr(self.tokenizer, "split_special_tokens", False)
            if own is not None and is_plain and type(self.tokenizer).__module__.startswith("transformers."):
                from tamis.stages.text.tokens.tokenizer import kernel_of

                self._known = kernel_of(own.to_str())
        return self._known

    def tokens(self, texts: list[str]) -> list[list[int]]:
        """Return the token ids of each text, with the end-of-sequence token if that is appended."""
        encoded = self.tokenizer(
            texts,
            add_special_tokens=False,
            padding=False,
            truncation=False,
            return_attention_mask=False,
            return_token_type_ids=False,
        )
        end = [] if self._end is None else [self._end]
        return [[*ids, *end] for ids in encoded["input_ids"]]

    @property
    def tokenizer(self) -> Any:
        """The tokenizer, loaded now if `setup` was not called."""
        if self._tokenizer is None:
            self._tokenizer = self._from_pretrained(local_files_only=False)
        return self._tokenizer

    @property
    def dtype(self) -> str:
        return token_type(_vocabulary_size(self.tokenizer))

    def _from_pretrained(self, local_files_only: bool) -> Any:
        settings = {"cache_dir": self.cache_dir, "token": self._token, **self.transformers_init_kwargs}
        settings["local_files_only"] = local_files_only
        return from_pretrained(
            "AutoTokenizer", self.model_identifier, "MegatronTokenizerWriter", if_code=IF_TRUSTED, **settings
        )


@dataclass(repr=False)
class MegatronWriter(Writer):
    """Writes the tokens that MegatronTokenizeStage added: a pair of .bin and .idx files for each partition."""

    path: str
    name: str = "megatron_writer"
    mode: str = "ignore"

    format = "megatron"
    file_extension = "bin"
    columns_in = (TOKENS,)
    columns_out = ()

    @property
    def options(self) -> Mapping[str, Any]:  # type: ignore[override]
        return {"field": TOKENS}


@dataclass(repr=False)
class MegatronTokenizerWriter(BaseWriter, CompositeStage[DocumentBatch, FileGroupTask]):
    """Writes pairs of .bin and .idx files, one for each partition. Documents without text have no tokens.

    `model_identifier`: a Hugging Face model, which is downloaded unless it is in the local cache, or a folder with a
    tokenizer. `append_eod`: append the end-of-sequence token to each document. Merge the pairs with
    `tamis.utils.merge_file_prefixes`. Code that comes with a model is refused, unless `transformers_init_kwargs` has
    `trust_remote_code=True`. `mode` as of JsonlWriter. `process` writes a batch now, for use outside of a run.
    """

    file_extension: Sequence[str] = ENDINGS
    fields: Sequence[str] | None = field(default=None, init=False, repr=False)
    name: str = "megatron_tokenizer_writer"
    model_identifier: str | None = None
    cache_dir: str | None = None
    hf_token: InitVar[str | None] = None
    text_field: str = "text"
    tokenization_batch_size: int = 1000
    append_eod: bool = False
    transformers_init_kwargs: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self, hf_token: str | None) -> None:
        if self.model_identifier is None:
            raise UsageError(
                f"{self.name}: model_identifier is missing; give the name of a model or a folder with a tokenizer"
            )
        if tuple(self.file_extension) != ENDINGS:
            raise UsageError(f"{self.name}: file_extension must be {list(ENDINGS)}, got {self.file_extension!r}")
        check_options(self.name, "write_kwargs", self.write_kwargs, ())
        check_choice(f"{self.name}: mode", self.mode, MODES)
        self.path = output_path(self.name, self.path)
        self._tokenizing = MegatronTokenizeStage(
            self.model_identifier,
            self.cache_dir,
            hf_token,
            self.text_field,
            self.tokenization_batch_size,
            self.append_eod,
            self.transformers_init_kwargs,
        )

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        return [self._tokenizing, MegatronWriter(self.path, self.name, self.mode)]

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.text_field]

    def model_files(self) -> str:
        return self._tokenizing.model_files()

    def setup_on_node(self, node_info: Any = None, worker_metadata: Any = None) -> None:
        self._tokenizing.setup_on_node(node_info, worker_metadata)

    def setup(self, worker_metadata: Any = None) -> None:
        self._tokenizing.setup(worker_metadata)

    def teardown(self) -> None:
        self._tokenizing.teardown()

    def process(self, task: DocumentBatch) -> FileGroupTask:
        """Write a batch now, completely or not at all, next to existing files; a run writes and commits by itself."""
        if "://" in self.path:
            raise UsageError(f"{self.name}: process() writes to local folders; run a Pipeline to write to {self.path}")
        tokenizing = self._tokenizing
        dtype = tokenizing.dtype
        os.makedirs(self.path, exist_ok=True)
        prefix = os.path.join(self.path, self.name_of(task))
        lengths: list[int] = []
        with files.create(prefix + ".bin.part") as file:
            for texts in batched(task.texts(self.text_field).to_pylist(), self.tokenization_batch_size):
                self.write_data(tokenizing.tokens([text or "" for text in texts]), lengths, file, dtype)
        self.write_idx_data(prefix, lengths, dtype)
        for ending in ENDINGS:
            files.finish(prefix + ending + ".part", prefix + ending)
        n_tokens, eod = sum(lengths), tokenizing.tokenizer.eos_token_id
        self._log_metrics({"tokens": n_tokens})
        facts = {"format": "megatron", "file_prefix": prefix, "num_tokens": n_tokens}
        facts |= {"token_size": 2 if dtype == "uint16" else 4, "eod_token_id": -1 if eod is None else eod}
        paths = [prefix + ending for ending in ENDINGS]
        return FileGroupTask(task.dataset_name, paths, task._stage_perf, {**task._metadata, **facts})

    def write_data(  # type: ignore[override]
        self, tokens_batch: Sequence[Sequence[int]], sequence_lengths: list[int], file: BinaryIO, dtype: str
    ) -> None:
        """Append tokens to a .bin file, and the number of each sequence to `sequence_lengths`."""
        for tokens in tokens_batch:
            ids = np.array(tokens, np.int64)
            info = np.iinfo(dtype)
            if len(ids) and (ids.min() < info.min or ids.max() > info.max):
                raise UsageError(
                    f"{self.name}: token {ids.max()} does not fit into {dtype}; the tokenizer reports a smaller "
                    "vocabulary"
                )
            file.write(ids.astype(np.dtype(dtype).newbyteorder("<")).tobytes())
            sequence_lengths.append(len(ids))

    def write_idx_data(self, file_prefix: str, sequence_lengths: Sequence[int], dtype: str) -> None:
        """Write `<file_prefix>.idx.part`."""
        with files.create(file_prefix + ".idx.part") as file:
            write_index(file, sequence_lengths, dtype)

    def _identity_of(self, task: DocumentBatch) -> list[Any]:
        return list(task.texts(self.text_field).to_pylist())


def _vocabulary_size(tokenizer: Any) -> int | None:
    """Return the vocabulary size with added tokens, which `vocab_size` leaves out."""
    try:
        return len(tokenizer)
    except TypeError:
        return getattr(tokenizer, "vocab_size", None)
