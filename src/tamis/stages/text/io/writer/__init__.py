"""Writers: the usual last stage of a pipeline. One file per format."""

from tamis.stages.text.io.writer.arrow import ArrowWriter
from tamis.stages.text.io.writer.jsonl import JsonlWriter
from tamis.stages.text.io.writer.megatron_tokenizer import MegatronTokenizerWriter
from tamis.stages.text.io.writer.parquet import ParquetWriter

__all__ = ["ArrowWriter", "JsonlWriter", "MegatronTokenizerWriter", "ParquetWriter"]
