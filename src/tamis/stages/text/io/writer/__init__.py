"""Writers: the usual last stage of a pipeline. `base.py` is for formats that Tamis does not write."""

from tamis.stages.text.io.writer.files import ArrowWriter
from tamis.stages.text.io.writer.jsonl import JsonlWriter
from tamis.stages.text.io.writer.megatron_tokenizer import MegatronTokenizerWriter
from tamis.stages.text.io.writer.parquet import ParquetWriter

__all__ = ["ArrowWriter", "JsonlWriter", "MegatronTokenizerWriter", "ParquetWriter"]
