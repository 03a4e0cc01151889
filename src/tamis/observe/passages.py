"""The repeated passages of a document, and where the first copy of each is, from the tables of a run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tamis._lazy import pa, pc
from tamis.errors import UsageError
from tamis.observe.verdicts import offset_of
from tamis.stores.run_locations import run_dir_of
from tamis.stores.urls import path_of, path_text

_COLUMNS = {"id", "start_byte", "end_byte", "kept_id", "kept_start_byte", "n_occurrences", "path", "kept_path"}
_PLACES = (("path", "id"), ("kept_path", "kept_id"))


@dataclass(frozen=True)
class Passage:
    """Bytes [start, end) of the text of `document`, as it was compared; the same are at `first_start` of `first`.

    `entry`: the entry of an index that has the first one; `first_start` is then a place in the text that was kept.
    """

    document: str  # FILE:OFFSET
    start: int
    end: int
    n_occurrences: int
    first: str
    first_start: int
    entry: str | None = None

    @property
    def sentence(self) -> str:
        where = f"first in {self.first} at byte {self.first_start:,}"
        if self.entry is not None:
            where += f" of the text that was kept (index entry {self.entry})"
        return f"bytes {self.start:,} to {self.end:,} occur {self.n_occurrences:,} times, {where}"

    def to_dict(self) -> dict[str, Any]:
        return {k: v for k, v in asdict(self).items() if k != "document" and v is not None}


def passages_of(output: str, document: str) -> list[Passage]:
    """Return the repeated passages of a document, named by FILE:OFFSET or by its id by file and position."""
    passages = []
    for table in _tables(output):
        for row in table.filter(_is_of(table, document)).to_pylist():
            mine, first = (f"{path_of(row[p])}:{row[i].rpartition('_')[2]}" for p, i in _PLACES)
            numbers = (row["start_byte"], row["end_byte"], row["n_occurrences"])
            passages.append(Passage(mine, *numbers, first, row["kept_start_byte"], row.get("kept_entry")))
    return sorted(passages, key=lambda passage: passage.start)


def _tables(output: str) -> Iterator[pa.Table]:
    from tamis.formats.parquet import format as parquet

    folder = Path(run_dir_of(output)) / "duplicates"
    for part in sorted(folder.glob("*.parquet")):
        try:
            file = parquet.open_file(part)
            if set(file.schema_arrow.names) >= _COLUMNS:
                yield file.read(use_threads=False)
        except (pa.ArrowException, OSError) as exc:
            raise UsageError(f"{part} cannot be read: {exc}") from None


def _is_of(table: pa.Table, document: str) -> Any:
    mask = pc.equal(table["id"], document)
    name, _, place = document.rpartition(":")
    if name and offset_of(place) is not None:
        here = pc.ends_with(table["path"].cast(pa.large_string()), path_text(name).removeprefix("file://"))
        mask = pc.or_(mask, pc.and_(here, pc.ends_with(table["id"], f"_{int(place)}")))
    return mask
