"""Options for an output of token ids: tokenizer, format, sequences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from tamis._dataclasses import dataclass
from tamis.errors import UsageError, check_choice
from tamis.sizes import check_optional_integer

FORMATS = ("megatron", "npy", "raw", "mds", "parquet", "arrow")
CONCATENATE, BEST_FIT = "concatenate", "best-fit"
NO_END = "none"
ZSTD, UNCOMPRESSED = "zstd", "none"


@dataclass(frozen=True)
class TokenOptions:
    """Options of tokenizing documents and of writing their token ids.

    `tokenizer`: a folder with tokenizer.json or a .tiktoken file. `format`: one of FORMATS. `sequence_length`: rows of
    so many tokens instead of documents. `packing`: "concatenate" fills sequences in order and cuts documents at their
    ends; "best-fit" cuts only documents that are longer, and pads. `end_token`: appended to each document; None: the
    tokenizer's end-of-sequence token; "none": nothing. `compression`: of shards of mds, "zstd" (None) or "none", which
    LocalDataset of mosaicml-streaming needs.
    """

    tokenizer: str
    format: str = "megatron"
    sequence_length: int | None = None
    packing: str = CONCATENATE
    end_token: str | None = None
    compression: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.tokenizer, str) or not self.tokenizer:
            raise UsageError(f"tokenizer: expected a folder or a file, got {self.tokenizer!r}")
        check_choice("token format", self.format, FORMATS)
        check_choice("packing", self.packing, (CONCATENATE, BEST_FIT))
        check_optional_integer(self.sequence_length, "sequence_length")
        if self.sequence_length is not None and not 2 <= self.sequence_length < 1 << 24:
            raise UsageError(f"sequence_length: expected 2 to {(1 << 24) - 1:,}, got {self.sequence_length}")
        if self.packing == BEST_FIT and self.sequence_length is None:
            raise UsageError("packing: best-fit packs documents into sequences; give sequence_length, too")
        if self.compression is not None:
            check_choice("compression", self.compression, (ZSTD, UNCOMPRESSED))
            if self.format != "mds":
                raise UsageError(f"compression: {self.compression!r} is for format mds; {self.format} has no choice")
        if self.end_token is not None and (not isinstance(self.end_token, str) or not self.end_token):
            raise UsageError(f"end_token: expected the text of a special token, or {NO_END!r}, got {self.end_token!r}")


def token_options(value: Any) -> TokenOptions | None:
    """Return options that are given as a mapping, such as `write: tokens:` of a recipe; None for None."""
    if value is None or isinstance(value, TokenOptions):
        return value
    if not isinstance(value, Mapping):
        raise UsageError(f"tokens: expected a mapping, e.g. {{tokenizer: models/mine, format: npy}}, got {value!r}")
    known = [f.name for f in fields(TokenOptions)]
    if unknown := sorted(set(value) - set(known)):
        raise UsageError(f"tokens: unknown {unknown[0]!r}; known: {', '.join(known)}")
    if "tokenizer" not in value:
        raise UsageError("tokens: tokenizer is missing; give a folder with a tokenizer.json, or a .tiktoken file")
    return TokenOptions(**value)
