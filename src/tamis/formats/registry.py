"""The registry of formats: one line each, from which every list of suffixes and names follows.

A new format is a module with the names of a protocol of base.py and one line here. Only names: the supervisor reads
this and must not import Arrow. `table_format` and `line_format` import the module.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from tamis import _satellites
from tamis.formats.compression.codecs import SUFFIXES, codec_of
from tamis.stores.opening import open_buffered

if TYPE_CHECKING:
    from tamis.formats.base import LineFormat, RecordFormat, TableFormat

CODEC_SUFFIXES = ("", *SUFFIXES)
"""Plain, or with the suffix of a compression."""
FILE_TYPES = ("jsonl", "parquet")
"""The formats that NeMo Curator's parameters name: input_filetype, output_filetype, input_file_type, read_format."""


class LineEntry(NamedTuple):
    """A format of lines, plain or compressed. `module` has the names of `base.LineFormat`."""

    suffixes: tuple[str, ...]
    module: str


class RecordEntry(NamedTuple):
    """A format of records, plain or compressed. `module` has the names of `base.RecordFormat`."""

    suffixes: tuple[str, ...]
    module: str


class TableEntry(NamedTuple):
    """A format of rows.

    `module` has the names of `base.TableFormat`: a dotted name, or that of a satellite (tamis/_satellites.py).
    """

    suffixes: tuple[str, ...]
    module: str
    magic: bytes = b""
    """First bytes of its files."""
    codecs: tuple[str, ...] = ("",)
    """Suffixes of compressions that may follow; "" is none."""
    explicit_only: bool = False
    """Read only where a reader names this format."""
    sidecars: tuple[str, ...] = ()
    """Suffixes of files that belong to the file of the same name."""
    expansion: float = 4.0
    """Bytes of rows for a byte of a file, before any was read."""
    reads_empty: bool = False
    """Hand out files of zero bytes, too: they are bad files, not files without rows."""
    files_together: int = 1024
    """Small files that are one partition at most."""


LINES = {"jsonl": LineEntry((".jsonl", ".json", ".ndjson"), "tamis.formats.jsonl.format")}
TABLES = {
    "parquet": TableEntry((".parquet", ".pq"), "tamis.formats.parquet.format", b"PAR1"),
    "arrow": TableEntry((".arrow", ".feather"), "tamis.formats.arrow.format", b"ARROW1"),
    "text": TableEntry(
        (".txt", ".text", ".md"), "tamis.formats.text.format", codecs=CODEC_SUFFIXES, explicit_only=True
    ),
    "video": TableEntry((".mp4", ".mov", ".avi", ".mkv", ".webm"), "format.video", explicit_only=True),
    "images": TableEntry(
        (".tar", ".jpg", ".jpeg", ".png", ".webp"),
        "format.images",
        explicit_only=True,
        sidecars=(".txt", ".json"),
        expansion=0.01,
        reads_empty=True,
        files_together=1000,
    ),
}
RECORDS = {"warc": RecordEntry((".warc", ".wet"), "tamis.formats.warc.format")}
PACKERS = {
    "webdataset": "packer.webdataset",
    "megatron": "tamis.formats.tokens.format",
    "tokens": "tamis.formats.tokens.format",
}
"""Formats that are written as several files at once, by a module with `write` (images/webdataset.py)."""


def suffixes(*formats: str) -> tuple[str, ...]:
    """Return the suffixes of these formats ("jsonl" among them) without compressions; by default of all read unasked.

    >>> suffixes("parquet"), suffixes()
    (('.parquet', '.pq'), ('.jsonl', '.json', '.ndjson', '.parquet', '.pq', '.arrow', '.feather', '.warc', '.wet'))
    """
    return tuple(s for name in formats or unasked_formats() for s in _entry(name).suffixes)


def unasked_formats() -> tuple[str, ...]:
    """Return the formats that are read by the names of files, where no reader names one.

    >>> unasked_formats()
    ('jsonl', 'parquet', 'arrow', 'warc')
    """
    return (*LINES, *(name for name, entry in TABLES.items() if not entry.explicit_only), *RECORDS)


def _entry(name: str) -> LineEntry | TableEntry | RecordEntry:
    return LINES[name] if name in LINES else RECORDS[name] if name in RECORDS else TABLES[name]


def codecs_of(suffix: str) -> tuple[str, ...]:
    """Return the compression suffixes that may follow this file suffix.

    >>> codecs_of(".parquet"), codecs_of(".jsonl")
    (('',), ('', '.gz', '.zst', '.bz2', '.xz'))
    """
    return next((entry.codecs for entry in TABLES.values() if suffix in entry.suffixes), CODEC_SUFFIXES)


def table_name(path: str) -> str:
    """Return the table format that a file name indicates, or "" for line formats and unknown names.

    >>> table_name("a.Parquet"), table_name("b.arrow"), table_name("notes.txt.gz"), table_name("a.jsonl.gz")
    ('parquet', 'arrow', 'text', '')
    """
    plain = path.lower()
    for name, entry in TABLES.items():
        if plain.endswith(tuple(s + c for s in entry.suffixes for c in entry.codecs)):
            return name
    return ""


def is_table(path: str) -> bool:
    """Return True if a file of this name holds rows, unless a reader specifies otherwise.

    >>> is_table("a.Parquet"), is_table("a.jsonl"), is_table("notes.txt")
    (True, False, False)
    """
    name = table_name(path)
    return name != "" and not TABLES[name].explicit_only


def holds_rows(path: str) -> bool:
    """Return True if the name or the first bytes of a file indicate rows: a reader may be given files of any name."""
    return is_table(path) or _begins_as(path) != ""


def reads_rows(path: str, formats: Sequence[str]) -> bool:
    """Return True if a reader of these formats treats a file as rows.

    The formats of the reader decide; the file itself decides only if they include both kinds.
    """
    kinds = {name in TABLES for name in formats}
    return holds_rows(path) if len(kinds) != 1 else kinds.pop()


def is_read_whole(formats: Sequence[str]) -> bool:
    """Return True if files of these formats are documents, or archives of them, that cannot be read in part."""
    return any(entry.explicit_only for entry in table_entries(formats))


def table_format(path: str) -> TableFormat:
    """Return the module that reads a file of rows.

    It is chosen by the file's name, or by its first bytes if a reader was configured to read other names.
    """
    return load_table_format(table_name(path) or _begins_as(path) or "parquet")


def _begins_as(path: str) -> str:
    with open_buffered(path) as file:
        head = file.read(8)
    return next((name for name, entry in TABLES.items() if entry.magic and head.startswith(entry.magic)), "")


def table_entries(formats: Sequence[str]) -> list[TableEntry]:
    """Return the registry entries of those of these formats that have rows."""
    return [TABLES[name] for name in formats if name in TABLES]


def sidecars(suffixes: Sequence[str]) -> tuple[str, ...]:
    """Return the suffixes of files that belong to files with these suffixes, and are read with them.

    >>> sidecars([".jpg"]), sidecars([".jsonl"])
    (('.txt', '.json'), ())
    """
    endings = {s.lower() for s in suffixes}
    return next((t.sidecars for t in TABLES.values() if endings & set(t.suffixes) and t.sidecars), ())


def line_name(path: str) -> str:
    """Return the line format of a file: by its name, or JSONL if a reader was configured to read other names.

    >>> line_name("a.JSONL.gz"), line_name("a.log")
    ('jsonl', 'jsonl')
    """
    plain = path.lower()
    names = (
        name
        for name, entry in LINES.items()
        if plain.endswith(tuple(s + c for s in entry.suffixes for c in CODEC_SUFFIXES))
    )
    return next(names, "jsonl")


def record_name(path: str) -> str:
    """Return the format of records that a file name indicates, or "".

    >>> record_name("CC-MAIN-0.warc.gz"), record_name("a.wet"), record_name("a.jsonl.gz")
    ('warc', 'warc', '')
    """
    plain = path.lower()
    for name, entry in RECORDS.items():
        if plain.endswith(tuple(s + c for s in entry.suffixes for c in CODEC_SUFFIXES)):
            return name
    return ""


def record_format(path: str) -> RecordFormat | None:
    """Return the module that reads a file of records, or None for files of lines or rows."""
    name = record_name(path)
    return cast("RecordFormat", _load(RECORDS[name].module)) if name else None


def is_stream(path: str) -> bool:
    """Return True if a file of lines or records cannot be entered in the middle.

    >>> is_stream("a.jsonl"), is_stream("a.jsonl.gz"), is_stream("a.warc")
    (False, True, True)
    """
    return codec_of(path) is not None or record_name(path) != ""


def line_format(path: str) -> LineFormat:
    """Return the module that reads a file of lines."""
    return load_line_format(line_name(path))


def load_line_format(name: str) -> LineFormat:
    return cast("LineFormat", _load(LINES[name].module))


def load_packer(name: str) -> Any:
    return _load(PACKERS[name])


def load_table_format(name: str) -> TableFormat:
    return cast("TableFormat", _load(TABLES[name].module))


def _load(module: str) -> Any:
    return _satellites.load(module) if module in _satellites.SATELLITES else import_module(module)
