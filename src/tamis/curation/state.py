"""Typed values that the passes and processes of a curation leave for each other.

Read and written as those of tamis/dedup/state.py.
"""

from __future__ import annotations

import os
from dataclasses import field
from typing import Any

from tamis._dataclasses import dataclass
from tamis.dedup.state import StateFile


@dataclass(frozen=True)
class SourceLimit:
    """The last number of a source that is written, and the position of the last document that has it."""

    draw: str  # 64 bits, which JSON numbers do not hold everywhere
    file: int
    offset: int


@dataclass(frozen=True)
class SourceLimits:
    """The limit of each source; None where all its documents are written."""

    limits: list[SourceLimit | None]


@dataclass(frozen=True)
class PackedFile:
    """A file of the output that was packed from those of the last pass.

    `path`: where it is until it is moved to the output.
    """

    name: str
    path: str
    split: str
    rows: int
    bytes: int


@dataclass(frozen=True)
class PackedFiles:
    """The files that were packed; `numbers` of token ids: rows (documents or sequences), tokens, and padding."""

    files: list[PackedFile]
    numbers: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class OutputFiles:
    """Files that were written next to those of the last pass, and those of the last pass that they replace.

    `numbers`: as of PackedFiles.
    """

    files: list[str] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class CurationRecord:
    """The record that a curation is done."""

    identity: dict[str, Any]
    deduplications: dict[str, dict[str, Any]]  # summaries by step
    plan: dict[str, Any]
    about: dict[str, Any]
    output_files: OutputFiles


# -- tasks of processes between passes --------------------------------------------------------------------------------
@dataclass(frozen=True)
class ChoiceTask:
    """Find the limit of each source.

    `records`: files with a number for each document; `most`: documents to write; None: all.
    """

    records: list[str]
    most: list[int | None]
    limits: str


@dataclass(frozen=True)
class ScoresTask:
    """Keep the scores of earlier passes, given by their run directories, for documents that the last pass wrote."""

    passes: list[str]
    run_dir: str


@dataclass(frozen=True)
class PackTask:
    """Pack the files of the last pass (`parts`) anew, as Writing says."""

    parts: list[str]
    text_field: str
    extension: str
    file_bytes: int | None
    split: dict[str, float]
    shuffle: int | None
    room_bytes: int


@dataclass(frozen=True)
class TokenPackTask:
    """Arrange the token ids of the last pass (`parts`), as Writing says.

    `is_compressed`: shards of MDS. `has_ends`: each document ends with the same token.
    """

    parts: list[str]
    format: str
    is_compressed: bool
    sequence_length: int | None
    packing: str
    has_ends: bool
    file_bytes: int | None
    split: dict[str, float]
    shuffle: int | None
    room_bytes: int


def limits_file(path: str) -> StateFile[SourceLimits]:
    """Return the file with the limits of all sources."""
    return StateFile(path, SourceLimits)


def packed_file(folder: str) -> StateFile[PackedFiles]:
    """Return the file that lists what was packed, which is written when all of it is there."""
    return StateFile(os.path.join(folder, "packed.json"), PackedFiles)
