"""Which format an output gets when it is to be that of the input."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any


def output_format(source: Any, accepted: Sequence[str] | None = None, output: str | None = None) -> tuple[bool, str]:
    """(whether Parquet, extension): that of the input files where they agree; JSONL for a mix of formats, plain for one of codecs.

    `accepted`: the endings of file names that are read, by default all that Tamis knows. `output`: a folder that is no input.
    """
    from tamis.formats.listing import list_files
    from tamis.formats.names import suffix_of
    from tamis.stages.file_partitioning import FilePartitioningStage

    accepted = FilePartitioningStage(source).suffixes() if accepted is None else tuple(accepted)
    files = list_files(source, accepted, leave_out=[output] if output is not None else [])
    suffixes = {suffix_of(os.fsdecode(path), accepted) for path in files.paths}
    if suffixes == {".parquet"}:
        return True, "parquet"
    codecs = {suffix.rpartition(".")[2] for suffix in suffixes if suffix.count(".") == 2}
    same = len(codecs) == 1 and all(suffix.count(".") == 2 for suffix in suffixes)
    return False, f"jsonl.{codecs.pop()}" if same else "jsonl"
