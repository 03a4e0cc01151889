"""The files that `tamis split` makes: what one may hold, their names, and what came out."""

from __future__ import annotations

import shutil
import tempfile
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from tamis import files
from tamis.errors import RunConflict


@dataclass(frozen=True)
class Limit:
    """What one chunk may hold."""

    n_bytes: int
    n_rows: int | None = None


@dataclass
class Done:
    """What a split produced. `n_rows` counts lines (JSONL, blank ones too) or rows (Parquet)."""

    paths: list[Path] = field(default_factory=list)
    n_rows: int = 0
    n_bytes: int = 0
    n_oversize: int = 0
    faults: list[str] = field(default_factory=list)
    unit: str = "line"


class OpenChunk(ABC):
    """How much the open chunk holds, and all of them together; what writes it is the business of subclasses."""

    def __init__(self, chunks: Chunks, limit: Limit, done: Done) -> None:
        self.chunks, self.limit, self.done = chunks, limit, done
        self._out: Any = None
        self._n_bytes = self._n_rows = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._out is not None:
            self._out.abort()

    def _count(self, n_bytes: int, n_rows: int) -> None:
        self._n_bytes += n_bytes
        self._n_rows += n_rows
        self.done.n_bytes += n_bytes
        self.done.n_rows += n_rows

    def close_chunk(self) -> None:
        """Whole and on the disk; the next one begins with what is written next."""
        if self._out is not None:
            self._sync()
            self.done.n_oversize += self._n_bytes > self.limit.n_bytes
            self._out, self._n_bytes, self._n_rows = None, 0, 0

    @abstractmethod
    def _sync(self) -> None:
        """Finish the file of the open chunk, which is complete, and ensure that it is on disk."""


class Chunks:
    """The files of one split: hidden until `publish`, gone if it does not come to that."""

    def __init__(self, target: Path, stem: str, suffix: str) -> None:
        self.target, self.stem, self.suffix = target, stem, suffix
        self._n_chunks = 0

    def __enter__(self) -> Chunks:
        self.target.mkdir(parents=True, exist_ok=True)
        taken = sorted(p.name for p in self.target.iterdir() if self._is_ours(p.name))
        if taken:
            raise RunConflict(
                f"{self.target / taken[0]} exists already; choose another OUT folder or remove the old chunks"
            )
        self.hidden = Path(tempfile.mkdtemp(prefix=f".{self.stem}-split-", dir=self.target))
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.hidden, ignore_errors=True)

    def _is_ours(self, name: str) -> bool:
        number = name.removeprefix(f"{self.stem}-").split(".", 1)[0]
        return name.startswith(f"{self.stem}-") and number.isdecimal() and len(number) >= 5

    def next_path(self) -> Path:
        path = self.hidden / f"{self.stem}-{self._n_chunks:05d}{self.suffix}"
        self._n_chunks += 1
        return path

    def publish(self) -> list[Path]:
        """Give every chunk its final name without replacing anything."""
        # Numbers above 99,999 have more digits; padding all names alike keeps them sorted in order.
        n_digits = max(5, len(str(max(self._n_chunks - 1, 0))))
        published: list[Path] = []
        try:
            for i in range(self._n_chunks):
                final = self.target / f"{self.stem}-{i:0{n_digits}d}{self.suffix}"
                rename_without_replacing(self.hidden / f"{self.stem}-{i:05d}{self.suffix}", final)
                published.append(final)
        except BaseException:
            for path in published:
                path.unlink()
            raise
        return published


def rename_without_replacing(old: Path, new: Path) -> None:
    try:
        files.move(old, new)
    except FileExistsError:
        raise RunConflict(f"{new} appeared while it was being made; choose another OUT folder") from None
