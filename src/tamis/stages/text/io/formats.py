"""Which format an output gets when it is to be that of the input."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any


def output_format(source: Any) -> tuple[bool, str]:
    """(whether Parquet, extension): that of the input files where they agree; JSONL for a mix of formats, plain for one of codecs."""
    from tamis.formats.listing import list_files
    from tamis.stages.file_partitioning import FilePartitioningStage

    stage = FilePartitioningStage(source)
    files = list_files(source, stage.suffixes())
    suffixes = {_suffix(os.fsdecode(path), stage.suffixes()) for path in files.paths}
    if suffixes == {".parquet"}:
        return True, "parquet"
    codecs = {suffix.rpartition(".")[2] for suffix in suffixes if suffix.count(".") == 2}
    same = len(codecs) == 1 and all(suffix.count(".") == 2 for suffix in suffixes)
    return False, f"jsonl.{codecs.pop()}" if same else "jsonl"


def _suffix(path: str, suffixes: Sequence[str]) -> str:
    return max((s for s in suffixes if path.endswith(s)), key=len, default="")
