"""Small JSON files by which a deduplication knows what is done, written whole or not at all."""

from __future__ import annotations

from tamis.files import read_json, write_json

__all__ = ["read_json", "write_json"]
