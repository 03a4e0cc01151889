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


@dataclass(frozen=True)
class Passage:
    """Bytes [start, end) of a text, as it was compared; the same are at `first_start` of the document `first`.

    `entry`: the entry of an index that has this document; `first_start` is then a place in the text that was kept.
    """

    start: int
    end: int
    n_occurrences: int
    first: str  # FILE:OFFSET
    first_start: int
    entry: str | None = None

    @property
    def sentence(self) -> str:
        where = f"first in {self.first} at byte {self.first_start:,}"
        if self.entry is not None:
            where += f" of the text that was kept (index entry {self.entry})"
        return f"bytes {self.start:,} to {self.end:,} occur {self.n_occurrences:,} times, {where}"

    def to_dict(self) -> dict[str, Any]:
        about = asdict(self)
        return about if self.entry is not None else {k: v for k, v in about.items() if k != "entry"}


def passages_of(output: str, document: str) -> list[Passage]:
    """Return the repeated passages of a document, named by FILE:OFFSET or by its id by file and position."""
    found = []
    for table in _tables(output):
        for row in table.filter(_is_of(table, document)).to_pylist():
            offset = row["kept_id"].rpartition("_")[2]
            first = f"{path_of(row['kept_path'])}:{offset}"
            numbers = (row["start_byte"], row["end_byte"], row["n_occurrences"])
            found.append(Passage(*numbers, first, row["kept_start_byte"], row.get("kept_entry")))
    return sorted(found, key=lambda passage: passage.start)


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
