"""Writers: the usual last stage of a pipeline. `base.py` is for formats that Tamis does not write."""

from typing import TYPE_CHECKING

from tamis._lazy import lazy_attributes
from tamis.stages.text.io.writer.files import ArrowWriter
from tamis.stages.text.io.writer.jsonl import JsonlWriter
from tamis.stages.text.io.writer.parquet import ParquetWriter

if TYPE_CHECKING:
    from tamis.stages.text.io.writer.megatron_tokenizer import MegatronTokenizerWriter

__all__ = ["ArrowWriter", "JsonlWriter", "MegatronTokenizerWriter", "ParquetWriter"]

_MODULE = "tamis.stages.text.io.writer.megatron_tokenizer"
__getattr__ = lazy_attributes(__name__, {_MODULE: ["MegatronTokenizerWriter"]})
