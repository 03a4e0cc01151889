"""`tamis split`: one large file into chunks of a size, at record boundaries (formats/splitting.py)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from tamis.cli.parsing.arguments import Argument, Option
from tamis.errors import Incomplete, TamisError
from tamis.formats.compression.codecs import NAMES_TEXT, SUFFIXES_TEXT


def split(
    source: Annotated[
        Path, Argument(metavar="IN", help=f"A .jsonl/.json/.ndjson file (plain, {SUFFIXES_TEXT}) or .parquet.")
    ],
    target: Annotated[
        Path, Argument(metavar="OUT", help="The folder for the chunks; it is created if it does not exist.")
    ],
    size: Annotated[
        str, Option(help="Largest size of a chunk, measured uncompressed. MB = 10^6, MiB = 2^20.")
    ] = "128MB",
    rows: Annotated[int | None, Option(min=1, help="Write at most so many records into a chunk.")] = None,
    compress: Annotated[
        str | None, Option(help=f"Compression of the chunks: {NAMES_TEXT} or none. Default: as the input.")
    ] = None,
) -> None:
    """Split one large file into smaller ones, between records.

    Lines are copied byte for byte; a record larger than the size gets a chunk of its own.

    Existing files are never overwritten. Tamis itself needs no splitting: this is for other tools and for moving data.

    Example: tamis split big.jsonl.gz chunks/ --size 256MB
    """
    from tamis.cli.terminal.show import count, print_lines
    from tamis.formats.splitting import ChunkLimit, split_file
    from tamis.sizes import format_size, parse_size

    limit = ChunkLimit(parse_size(size, "--size"), rows)
    with _os_errors(source, target):
        result = split_file(source, target, limit, compress)
    lines = [
        f"{count(len(result.paths), 'chunk')}, {count(result.n_rows, result.unit)}, {format_size(result.n_bytes)} "
        "decoded"
    ]
    if result.paths:
        lines.append(f"{result.paths[0]}" + (f" ... {result.paths[-1].name}" if len(result.paths) > 1 else ""))
    if result.n_oversize:
        lines.append(f"{count(result.n_oversize, 'chunk')} larger than --size: a single record does not fit into it")
    print_lines(lines)
    if result.faults:
        more = f" (and {len(result.faults) - 1} more)" if len(result.faults) > 1 else ""
        raise Incomplete(
            f"{source} is damaged: {result.faults[0]}{more}; the chunks hold everything else, restore the file for "
            "the rest"
        )


@contextmanager
def _os_errors(source: Path, target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        path = exc.filename or target
        raise TamisError(
            f"{path}: {exc.strerror or exc}; nothing was left in {target}, fix this and run it again"
        ) from exc
