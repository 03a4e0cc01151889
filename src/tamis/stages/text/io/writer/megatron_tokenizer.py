"""MegatronTokenizerWriter: documents as token ids, in the files that Megatron trains on. Needs the extra `models`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from typing import Any, BinaryIO

from tamis import files
from tamis._lazy import np
from tamis.errors import UsageError
from tamis.formats.megatron.index import token_type, write_index
from tamis.secrets import Secret
from tamis.stages.io import check_options
from tamis.stages.text.io.writer.base import BaseWriter
from tamis.stages.text.io.writer.utils import batched
from tamis.stages.text.models.pretrained import IF_TRUSTED, from_pretrained, tokenizer_fingerprint
from tamis.tasks import DocumentBatch, FileGroupTask

ENDINGS = (".bin", ".idx")


@dataclass(repr=False)
class MegatronTokenizerWriter(BaseWriter):
    """Writes a pair of .bin and .idx files for each batch. Documents without text have no tokens.

    `model_identifier`: a Hugging Face model, which is downloaded unless it is in the local cache, or a folder with a
    tokenizer. `append_eod`: append the end-of-sequence token to each document. Merge the pairs with
    `tamis.utils.merge_file_prefixes`. Code that comes with a model is refused, unless `transformers_init_kwargs` has
    `trust_remote_code=True`.
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
        if self.tokenization_batch_size < 1:
            raise UsageError(
                f"{self.name}: tokenization_batch_size must be at least 1, got {self.tokenization_batch_size}"
            )
        if "local_files_only" in self.transformers_init_kwargs:
            raise UsageError(f"{self.name}: local_files_only cannot be passed in transformers_init_kwargs")
        check_options(self.name, "write_kwargs", self.write_kwargs, ())
        super().__post_init__()
        self._token = None if hf_token is None else Secret(hf_token)
        self._tokenizer: Any = None

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.text_field]

    def model_files(self) -> str:
        settings = {"cache_dir": self.cache_dir, **self.transformers_init_kwargs}
        return tokenizer_fingerprint(str(self.model_identifier), settings) or ""

    def setup_on_node(self, node_info: Any = None, worker_metadata: Any = None) -> None:
        """Fetch the tokenizer once per machine: the only method that may use the network."""
        self._from_pretrained(local_files_only=False)

    def setup(self, worker_metadata: Any = None) -> None:
        """Load the tokenizer in a worker, from the local cache."""
        self._tokenizer = self._from_pretrained(local_files_only=True)

    def teardown(self) -> None:
        self._tokenizer = None

    def process(self, task: DocumentBatch) -> FileGroupTask:
        if self._tokenizer is None:
            self._tokenizer = self._from_pretrained(local_files_only=False)
        eod = self._tokenizer.eos_token_id
        if self.append_eod and eod is None:
            raise UsageError(
                f"{self.name}: append_eod, but the tokenizer {self.model_identifier} has no end-of-sequence token"
            )
        dtype = token_type(_vocabulary_size(self._tokenizer))
        os.makedirs(self.path, exist_ok=True)
        prefix = os.path.join(self.path, self.name_of(task))
        lengths: list[int] = []
        with files.create(prefix + ".bin.part") as file:
            for texts in batched(task.texts(self.text_field).to_pylist(), self.tokenization_batch_size):
                tokens = self._tokens([text or "" for text in texts])
                self.write_data(tokens, lengths, file, dtype)
        self.write_idx_data(prefix, lengths, dtype)
        for ending in ENDINGS:
            files.finish(prefix + ending + ".part", prefix + ending)
        n_tokens = sum(lengths)
        self._log_metrics({"tokens": n_tokens})
        facts = {"format": "megatron", "file_prefix": prefix, "num_tokens": n_tokens}
        facts |= {"token_size": 2 if dtype == "uint16" else 4, "eod_token_id": -1 if eod is None else eod}
        paths = [prefix + ending for ending in ENDINGS]
        return FileGroupTask(task.dataset_name, paths, task._stage_perf, {**task._metadata, **facts})

    def write_data(  # type: ignore[override]
        self, tokens_batch: Sequence[Sequence[int]], sequence_lengths: list[int], file: BinaryIO, dtype: str
    ) -> None:
        """Append tokens to a .bin file, and the number of each sequence to `sequence_lengths`."""
        end = [self._tokenizer.eos_token_id] if self.append_eod else []
        for tokens in tokens_batch:
            ids = np.array([*tokens, *end], np.int64)
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

    def _tokens(self, texts: list[str]) -> list[list[int]]:
        encoded = self._tokenizer(
            texts,
            add_special_tokens=False,
            padding=False,
            truncation=False,
            return_attention_mask=False,
            return_token_type_ids=False,
        )
        return list(encoded["input_ids"])

    def _identity_of(self, task: DocumentBatch) -> list[Any]:
        return list(task.texts(self.text_field).to_pylist())

    def _from_pretrained(self, local_files_only: bool) -> Any:
        settings = {"cache_dir": self.cache_dir, "token": self._token, **self.transformers_init_kwargs}
        settings["local_files_only"] = local_files_only
        return from_pretrained(
            "AutoTokenizer", str(self.model_identifier), "MegatronTokenizerWriter", if_code=IF_TRUSTED, **settings
        )


def _vocabulary_size(tokenizer: Any) -> int | None:
    """Return the vocabulary size with added tokens, which `vocab_size` leaves out."""
    try:
        return len(tokenizer)
    except TypeError:
        return getattr(tokenizer, "vocab_size", None)
