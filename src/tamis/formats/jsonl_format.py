"""JSONL as a format of lines (line_format.py): its records are JsonlBlock (jsonl.py), its lines are written by encode.py."""

from __future__ import annotations

from tamis.formats.encode import written_lines
from tamis.formats.jsonl import JsonlBlock

__all__ = ["checked", "known", "parse", "written_lines"]

parse, checked, known = JsonlBlock.parse, JsonlBlock.checked, JsonlBlock.known
