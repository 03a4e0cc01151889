"""Small JSON files by which a deduplication knows what is done, written whole or not at all. Imports nothing heavy."""

from __future__ import annotations

import json
from typing import Any

from tamis import files
from tamis.errors import RunConflict


def read_json(path: str) -> Any:
    """None where there is no file."""
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except FileNotFoundError:
        return None
    except ValueError as exc:
        raise RunConflict(f"{path} is damaged ({exc}); start over with fresh (--fresh)") from None


def write_json(path: str, value: Any) -> None:
    files.write_json(path, value)
