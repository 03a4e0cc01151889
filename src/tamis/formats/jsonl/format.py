"""JSONL as a format of lines (formats/base.py): block.py parses records, encode.py writes lines."""

from __future__ import annotations

from tamis.formats.jsonl.block import JsonlBlock
from tamis.formats.jsonl.encode import written_lines

__all__ = ["from_index", "parse", "parse_valid", "written_lines"]

parse, parse_valid, from_index = JsonlBlock.parse, JsonlBlock.parse_valid, JsonlBlock.from_index
