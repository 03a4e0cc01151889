"""Reading the quarantine of a run, entry by entry, however large it is. `engine/worker/quarantine.py` writes it."""

from __future__ import annotations

import base64
import binascii
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

_MAX_LINE = 1 << 31
_COPY_BYTES = 1 << 20


class QuarantineEntry(NamedTuple):
    """One range of input that was quarantined."""

    file: str
    offset: int
    length: int
    unit: str  # what offset and length count: bytes, decoded bytes or rows
    reason: str
    stage: str
    n: int  # records in it; 0: unknown
    raw: bytes | None  # its bytes, if they are kept here
    raw_path: Path | None  # a file with its bytes, for records too large to be held

    def start_of_raw(self, n_chars: int) -> str:
        """Return the first characters, as far as they are stored."""
        if self.raw is not None:
            return self.raw[: n_chars * 4].decode("utf-8", "backslashreplace")[:n_chars]
        if self.raw_path is not None:
            try:
                with open(self.raw_path, "rb") as file:
                    return file.read(n_chars * 4).decode("utf-8", "backslashreplace")[:n_chars]
            except OSError:
                return ""
        return ""

    def pieces(self) -> Iterator[bytes]:
        """Yield all bytes of the entry in bounded pieces.

        They are the stored bytes, or else are read again from the input. Yields nothing if neither is possible.
        """
        if self.raw is not None:
            yield self.raw
        elif self.raw_path is not None and self.raw_path.exists():
            yield from _range(self.raw_path, 0, -1)
        elif self.unit == "bytes" and self.n == 1 and Path(self.file).is_file():
            yield from _range(Path(self.file), self.offset, self.length)

    def to_dict(self, n_chars: int) -> dict[str, Any]:
        return {
            "file": self.file,
            "offset": self.offset,
            "length": self.length,
            "unit": self.unit,
            "reason": self.reason,
            "stage": self.stage,
            "n": self.n,
            "raw": self.start_of_raw(n_chars),
        }


def read_entries(folder: Path, problems: list[str] | None = None) -> Iterator[QuarantineEntry]:
    """Yield all entries in the order of the input.

    Lines that are not entries are skipped and named in `problems`.
    """
    try:
        paths = sorted(folder / name for name in os.listdir(folder) if name.endswith(".jsonl"))
    except FileNotFoundError:
        return
    except OSError as exc:
        if problems is not None:
            problems.append(f"quarantine/ cannot be read: {exc.strerror}")
        return
    for path in paths:
        try:
            with open(path, "rb") as file:
                while line := file.readline(_MAX_LINE):
                    entry = _entry(line, path)
                    if entry is not None:
                        yield entry
                    elif problems is not None:
                        problems.append(f"quarantine/{path.name} holds a line that is no entry")
        except OSError as exc:
            if problems is not None:
                problems.append(f"quarantine/{path.name} cannot be read: {exc.strerror}")


def _entry(line: bytes, path: Path) -> QuarantineEntry | None:
    try:
        data = json.loads(line)
        raw: bytes | None = None
        if "raw" in data:
            raw = str(data["raw"]).encode("utf-8", "surrogatepass")
        elif "raw_base64" in data:
            raw = base64.b64decode(data["raw_base64"])
        raw_path = None
        if "raw_file" in data:
            # Only a plain name next to the entries: a damaged entry must not lead elsewhere.
            raw_path = path.parent / f"{path.stem}.{Path(str(data['raw_file'])).name}"
        return QuarantineEntry(
            str(data["file"]),
            int(data["offset"]),
            int(data["length"]),
            str(data["unit"]),
            str(data["reason"]),
            str(data["stage"]),
            int(data["n"]),
            raw,
            raw_path,
        )
    except (ValueError, KeyError, TypeError, binascii.Error):
        return None


def _range(path: Path, offset: int, length: int) -> Iterator[bytes]:
    with open(path, "rb", buffering=0) as file:
        file.seek(offset)
        left = length
        while left and (data := file.read(_COPY_BYTES if left < 0 else min(left, _COPY_BYTES))):
            left -= len(data) if left > 0 else 0
            yield data
