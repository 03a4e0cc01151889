"""JSONL as a format of lines (formats/base.py): its records are JsonlBlock (block.py), its lines are written by encode.py."""

from __future__ import annotations

from tamis.formats.jsonl.block import JsonlBlock
from tamis.formats.jsonl.encode import written_lines

__all__ = ["checked", "known", "parse", "written_lines"]

parse, checked, known = JsonlBlock.parse, JsonlBlock.checked, JsonlBlock.known
