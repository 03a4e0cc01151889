"""The origin of documents: the records of the rows of a batch, and what stages changed since.

`Origin` is the interface to records of any format: bytes of lines in formats/jsonl/block.py, rows of an Arrow table in
formats/table_block.py. `Lineage` relates a batch to its origin; engine and formats read it (`DocumentBatch.lineage`)
and make batches of it (`DocumentBatch.of`). How a batch stores it is private to this package.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any, Protocol

from tamis._dataclasses import dataclass
from tamis._lazy import np, pa

if TYPE_CHECKING:
    from tamis.tasks.columns.frame_types import KindCount

    Array = np.ndarray[Any, Any]
    Identity = tuple[Array, Array]


ROW_ID = "_tamis_row"  # the hidden row id in tables and frames
SCORES = "\0scores"  # in DocumentBatch.measured, instead of the name of a column: scores that come out as columns
MISSING, NULL, TEXT, OTHER = range(4)  # what DocumentBatch.kinds() says of a value
# Prefix of a metric of a stage that is a sentence for the report; its value is the number of documents concerned.
NOTE_METRIC = "note: "


class Origin(Protocol):
    """Records that rows of a batch refer to by number; -1 is a row without a record. Decoded on request."""

    n_rows: int
    places: tuple[Array, Array] | None
    """Number of the input file of each record, and its offset (or row number) there, where these are known."""

    @property
    def is_typed(self) -> bool:
        """True if the types of columns are declared by the input, not inferred from the values."""
        ...

    @property
    def is_parsed(self) -> bool:
        """True if the fields of every record are located; if not, `column_of` parses some records only."""
        ...

    @property
    def keeps_bytes(self) -> bool:
        """True if records are bytes that can be written as they are (lines)."""
        ...

    def field_names(self, rows: Array | None = None) -> list[str]:
        """Return the fields that these records have (by default all records).

        The fields of their neighbours depend on how the input was cut.
        """
        ...

    def column(self, name: str) -> pa.Array:
        """Return one field of all records, for computing; null where it is missing."""
        ...

    def column_of(self, name: str, rows: Array) -> pa.Array:
        """Return one field of some records, none of them -1, for computing; null where it is missing."""
        ...

    def narrow(self, rows: Array) -> None:
        """Restrict later requests to these records (-1: none), so that the others need not be parsed."""
        ...

    def exact(self, name: str, rows: Array) -> pa.Array:
        """Return one field of some records, every value unchanged; null where a row is -1."""
        ...

    def kinds(self, name: str) -> Array | None:
        """Return the kind of this field in every record: MISSING, NULL, TEXT or OTHER.

        None where the column itself says as much.
        """
        ...

    def count_kinds(self, name: str, rows: Array) -> KindCount:
        """Return the kinds of values of a field in some records, none of them -1, unless types are declared."""
        ...

    def identity(self) -> Identity:
        """Return the 128-bit content hash of every record."""
        ...

    def sizes(self, rows: Array) -> Array:
        """Return the bytes of these records (0 for -1), as exact as possible without parsing them."""
        ...

    def lengths(self, rows: Array) -> Array:
        """Return the bytes of these records (0 for -1) as they were read, each by itself."""
        ...

    def raw(self, row: int) -> bytes | None:
        """Return the bytes of one record; None if records have no bytes of their own."""
        ...


@dataclass(frozen=True)
class Lineage:
    """Documents as rows of an origin.

    `columns`: fields that stages changed or added; `hidden`: fields that they removed; `only`: fields that are output,
    in this order (None: all). `changed`: of some of these columns, the rows that may have another value than their
    record; the others have that of the record.
    """

    origin: Origin
    rows: Array
    columns: Mapping[str, pa.Array] = field(default_factory=dict)
    hidden: frozenset[str] = frozenset()
    only: tuple[str, ...] | None = None
    changed: Mapping[str, Array] = field(default_factory=dict)

    @property
    def is_untouched(self) -> bool:
        """True if every document is its record, unchanged."""
        return self.only is None and not self.hidden and not self.columns and bool((self.rows >= 0).all())

    def sizes(self) -> Array:
        return self.origin.sizes(self.rows)

    def lengths(self) -> Array:
        return self.origin.lengths(self.rows)

    def raw(self, i: int) -> bytes | None:
        """Return the record of document `i` as bytes, if it has any."""
        row = int(self.rows[i])
        return self.origin.raw(row) if row >= 0 else None

    def stored_offset(self, i: int) -> int | None:
        """Return where the record of document `i` begins in its file as stored, if its place is another position."""
        offsets, row = getattr(self.origin, "stored_offsets", None), int(self.rows[i])
        return None if offsets is None or row < 0 else int(offsets[row])

    def place(self, i: int) -> tuple[int, int]:
        """Return the number of the input file and the offset in it of document `i`; (-1, -1) where unknown."""
        row, places = int(self.rows[i]), self.origin.places
        return (-1, -1) if places is None or row < 0 else (int(places[0][row]), int(places[1][row]))

    def adds(self, name: str) -> bool:
        """Return True if a field exists only because a stage added it."""
        return name in self.columns and name not in self.origin.field_names(self.rows)
