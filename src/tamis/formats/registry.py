"""Which formats there are. A new one is a folder with a `format.py` (base.py says what that has) and one line here.

Only names: who decides what is read (the supervisor) must not import Arrow. `table_format` imports the module.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from tamis.formats.compression.codecs import SUFFIXES
from tamis.stores.opening import open_buffered

if TYPE_CHECKING:
    from tamis.formats.base import LineFormat, TableFormat

CODEC_SUFFIXES = ("", *SUFFIXES)
"""Plain, or with the suffix of a compression."""


class Lines(NamedTuple):
    """A format of lines, plain or compressed. `module` has the names of `base.LineFormat`."""

    suffixes: tuple[str, ...]
    module: str


class Rows(NamedTuple):
    """A format of rows. `module` has the names of `base.TableFormat`; `magic`: how its files begin.

    `only_asked`: files with these endings are read only where a reader names them. `beside`: endings of files that belong to the file of
    the same name. `ratio`: bytes of its rows for a byte of a file, before any was read. `takes_empty`: a file of no bytes is no file without
    rows, but a bad one. `files_together`: of small files so many are one partition at most.
    """

    suffixes: tuple[str, ...]
    module: str
    magic: bytes = b""
    codecs: tuple[str, ...] = ("",)
    only_asked: bool = False
    beside: tuple[str, ...] = ()
    ratio: float = 4.0
    takes_empty: bool = False
    files_together: int = 1024


LINES = {"jsonl": Lines((".jsonl", ".json", ".ndjson"), "tamis.formats.jsonl.format")}
TABLES = {
    "parquet": Rows((".parquet",), "tamis.formats.parquet.format", b"PAR1"),
    "arrow": Rows((".arrow", ".feather"), "tamis.formats.arrow.format", b"ARROW1"),
    "text": Rows((".txt", ".text", ".md"), "tamis.formats.text.format", codecs=CODEC_SUFFIXES, only_asked=True),
    "video": Rows((".mp4", ".mov", ".avi", ".mkv", ".webm"), "tamis.formats.video.format", only_asked=True),
    "images": Rows(
        (".tar", ".jpg", ".jpeg", ".png", ".webp"), "tamis.formats.images.format", only_asked=True, beside=(".txt", ".json"), ratio=0.01,
        takes_empty=True, files_together=1000,
    ),
}  # fmt: skip
PACKERS = {"webdataset": "tamis.formats.webdataset.format"}
"""Formats that are written as several files at once, of a module with `write` (formats/webdataset/format.py)."""


def suffixes(*formats: str) -> tuple[str, ...]:
    """Endings of the files of these formats ("jsonl" among them), compression not among them; of all that are read unasked by default.

    >>> suffixes("parquet"), suffixes()
    (('.parquet',), ('.jsonl', '.json', '.ndjson', '.parquet', '.arrow', '.feather'))
    """
    wanted = formats or (*LINES, *(name for name, rows in TABLES.items() if not rows.only_asked))
    return tuple(s for name in wanted for s in (LINES[name] if name in LINES else TABLES[name]).suffixes)


def codecs_of(suffix: str) -> tuple[str, ...]:
    """Return the compression suffixes that may follow this file suffix.

    >>> codecs_of(".parquet"), codecs_of(".jsonl")
    (('',), ('', '.gz', '.zst', '.bz2', '.xz'))
    """
    return next((rows.codecs for rows in TABLES.values() if suffix in rows.suffixes), CODEC_SUFFIXES)


def table_name(path: str) -> str:
    """Return the table format that a file name indicates, or "" for line formats and unknown names.

    >>> table_name("a.Parquet"), table_name("b.arrow"), table_name("notes.txt.gz"), table_name("a.jsonl.gz")
    ('parquet', 'arrow', 'text', '')
    """
    plain = path.lower()
    for name, rows in TABLES.items():
        if plain.endswith(tuple(s + c for s in rows.suffixes for c in rows.codecs)):
            return name
    return ""


def is_table(path: str) -> bool:
    """Return True if a file of this name holds rows, unless a reader specifies otherwise.

    >>> is_table("a.Parquet"), is_table("a.jsonl"), is_table("notes.txt")
    (True, False, False)
    """
    name = table_name(path)
    return name != "" and not TABLES[name].only_asked


def holds_rows(path: str) -> bool:
    """By its name, or by how it begins: a reader may be given files of any name."""
    return is_table(path) or _begins_as(path) != ""


def reads_rows(path: str, formats: Sequence[str]) -> bool:
    """Return True if a reader of these formats treats a file as rows.

    The formats of the reader decide; the file itself decides only if they include both kinds.
    """
    kinds = {name in TABLES for name in formats}
    return holds_rows(path) if len(kinds) != 1 else kinds.pop()


def is_read_whole(formats: Sequence[str]) -> bool:
    """Return True if files of these formats are documents, or archives of them, that cannot be read in part."""
    return any(rows.only_asked for rows in rows_of(formats))


def table_format(path: str) -> TableFormat:
    """Return the module that reads a file of rows.

    It is chosen by the file's name, or by its first bytes if a reader was configured to read other names.
    """
    return named(table_name(path) or _begins_as(path) or "parquet")


def _begins_as(path: str) -> str:
    with open_buffered(path) as file:
        head = file.read(8)
    return next((name for name, rows in TABLES.items() if rows.magic and head.startswith(rows.magic)), "")


def rows_of(formats: Sequence[str]) -> list[Rows]:
    """Return the registry entries of those of these formats that have rows."""
    return [TABLES[name] for name in formats if name in TABLES]


def beside(suffixes: Sequence[str]) -> tuple[str, ...]:
    """Endings of files that belong to files with these endings, and are read with them.

    >>> beside([".jpg"]), beside([".jsonl"])
    (('.txt', '.json'), ())
    """
    wanted = {s.lower() for s in suffixes}
    return next((r.beside for r in TABLES.values() if wanted & set(r.suffixes) and r.beside), ())


def line_name(path: str) -> str:
    """Return the line format of a file: by its name, or JSONL if a reader was configured to read other names.

    >>> line_name("a.JSONL.gz"), line_name("a.log")
    ('jsonl', 'jsonl')
    """
    plain = path.lower()
    found = (
        name for name, of in LINES.items() if plain.endswith(tuple(s + c for s in of.suffixes for c in CODEC_SUFFIXES))
    )
    return next(found, "jsonl")


def line_format(path: str) -> LineFormat:
    """Return the module that reads a file of lines."""
    return lines_named(line_name(path))


def lines_named(name: str) -> LineFormat:
    return cast("LineFormat", import_module(LINES[name].module))


def packer(name: str) -> Any:
    return import_module(PACKERS[name])


def named(name: str) -> TableFormat:
    return cast("TableFormat", import_module(TABLES[name].module))
