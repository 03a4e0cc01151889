"""`tamis dedup index-list` and `index-remove`: what an index of kept documents holds, and taking a source out of it."""

from __future__ import annotations

import os
from typing import Annotated

from tamis.cli.parsing import options
from tamis.cli.parsing.arguments import Argument
from tamis.errors import UsageError
from tamis.hints import command
from tamis.stores.urls import absolute

Folder = Annotated[str, Argument(metavar="INDEX", help="Folder of an index that --index made.")]


def index_list(index: Folder, as_json: options.AsJson = False) -> None:
    """Show the sources an index was made of, and how many documents of each it holds.

    Example: tamis dedup index-list kept/
    """
    from tamis.cli.terminal.show import print_json, print_lines, print_table
    from tamis.dedup.index.index import read_index
    from tamis.sizes import format_size

    contents = read_index(os.path.abspath(index))
    sources = [s for entry in contents.entries for s in _sources(contents.paths(entry), entry.by_file)]
    about = {
        "index": contents.path,
        "kind": contents.kind,
        "parameters": contents.parameters,
        "n_documents": sum(e.n_documents for e in contents.entries),
        "n_bytes": sum(e.n_bytes for e in contents.entries),
        "runs": [{"input": e.input, "output": e.output, "n_documents": e.n_documents} for e in contents.entries],
        "sources": [{"path": path, "n_documents": n} for path, n in sources],
    }
    if as_json:
        print_json(about)
        return
    print_table("Sources", ["source", "documents"], [(path, f"{n:,}") for path, n in sources], right=(1,))
    how = ", ".join(f"{k}={v}" for k, v in contents.parameters.items())
    n, size = about["n_documents"], format_size(int(str(about["n_bytes"])))
    print_lines([f"{n:,} documents in {size}, for {contents.kind} deduplication with {how}"])


def index_remove(
    index: Folder,
    source: Annotated[str, Argument(metavar="SOURCE", help="An input file or a folder of them, as index-list shows.")],
    as_json: options.AsJson = False,
) -> None:
    """Take the documents of a source out of an index: new documents are no longer compared with them.

    Documents that were removed as duplicates of these are not in the index either; to add them, deduplicate their
    source again.

    Example: tamis dedup index-remove kept/ data/2023/
    """
    from tamis.cli.terminal.show import print_json, print_lines
    from tamis.dedup.index.entries import remove_source

    source = absolute(source)
    n = remove_source(os.path.abspath(index), source)
    if not n:
        raise UsageError(f"{index} holds no documents of {source}; its sources: {command('dedup index-list', index)}")
    if as_json:
        print_json({"index": os.path.abspath(index), "source": source, "n_removed": n})
    else:
        print_lines([f"{n:,} documents of {source} are no longer in {index}"])


def _sources(paths: list[str], by_file: list[int]) -> list[tuple[str, int]]:
    """Return the documents by folder, or by file where all lie in one folder; sources without any are left out."""
    from tamis.dedup.alarms import sources_of

    totals: dict[str, int] = {}
    for source, n in zip(sources_of(paths), by_file, strict=True):
        totals[source] = totals.get(source, 0) + n
    return [(path, n) for path, n in totals.items() if n]
