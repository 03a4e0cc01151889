"""Stages that misbehave on purpose, and well-behaved ones whose effect is easy to predict.

Triggers are texts: a stage acts on the record whose text holds its word, so a fault stays with its record however the
input is cut. Imported by worker processes too.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import stat
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tamis import DocumentBatch, ProcessingStage


def texts(batch: DocumentBatch) -> list[Any]:
    return list(batch.column("text").to_pylist())


def has(batch: DocumentBatch, word: str) -> bool:
    return any(isinstance(t, str) and word in t for t in texts(batch))


class TextStage(ProcessingStage[DocumentBatch, DocumentBatch]):
    name = "text_stage"

    def inputs(self) -> Any:
        return ["data"], ["text"]


# -- well-behaved -----------------------------------------------------------------------------------------------------
@dataclass(repr=False)
class Slow(TextStage):
    """Changes nothing, takes its time: so that a kill finds work under way."""

    seconds: float = 0.03
    name: str = "slow"

    def process(self, task: DocumentBatch) -> DocumentBatch:
        time.sleep(self.seconds)
        return task


@dataclass(repr=False)
class AddLength(TextStage):
    """An added column."""

    name: str = "add_length"

    def process(self, task: DocumentBatch) -> DocumentBatch:
        return task.with_column(
            "length", pa.array([len(t) if isinstance(t, str) else -1 for t in texts(task)], pa.int64())
        )


@dataclass(repr=False)
class Shout(TextStage):
    """A changed column, for some documents only."""

    name: str = "shout"

    def process(self, task: DocumentBatch) -> DocumentBatch:
        changed = [t.upper() if isinstance(t, str) and len(t) % 3 == 0 else t for t in texts(task)]
        return task.with_column("text", pa.array(changed, pa.string()))


@dataclass(repr=False)
class DropOdd(TextStage):
    """Fewer documents."""

    name: str = "drop_odd"
    remainder: int = 1

    def process(self, task: DocumentBatch) -> DocumentBatch:
        keep = pa.array([i % 2 != self.remainder for i in task.column("id").to_pylist()])
        return task.filter(keep.to_numpy(zero_copy_only=False))


@dataclass(repr=False)
class Halves(TextStage):
    """1 to n: every document becomes two, by the Arrow table, whose hidden row id tells parents."""

    name: str = "halves"

    def process(self, task: DocumentBatch) -> DocumentBatch:
        table = task.to_pyarrow()
        at = pa.array([i for i in range(len(table)) for _ in range(2)])
        doubled = table.take(at)
        parts = [
            t[: len(t) // 2] if i % 2 == 0 else t[len(t) // 2 :] for i, t in enumerate(doubled["text"].to_pylist())
        ]
        index = doubled.schema.get_field_index("text")
        return DocumentBatch(task.dataset_name, doubled.set_column(index, "text", pa.array(parts, pa.string())))


@dataclass(repr=False)
class JoinAll(TextStage):
    """n to 1: all documents of a partition become one without a row id."""

    name: str = "join_all"

    def process(self, task: DocumentBatch) -> DocumentBatch | None:
        if not task.num_items:
            return None
        joined = pa.table({"id": [min(task.column("id").to_pylist())], "text": ["|".join(sorted(texts(task)))]})
        return DocumentBatch(task.dataset_name, joined)


@dataclass(repr=False)
class ThroughPandas(TextStage):
    """A round trip through pandas with an added column, as many users write stages."""

    name: str = "through_pandas"

    def process(self, task: DocumentBatch) -> DocumentBatch:
        frame = task.to_pandas()
        frame["n_words"] = [len(t.split()) for t in frame["text"]]
        return DocumentBatch(task.dataset_name, frame)


# -- misbehaving ------------------------------------------------------------------------------------------------------
@dataclass(repr=False)
class RaiseOn(TextStage):
    word: str = ""
    name: str = "raise_on"

    def process(self, task: DocumentBatch) -> DocumentBatch:
        if has(task, self.word):
            raise ValueError(f"cannot bear {self.word!r}")
        return task


@dataclass(repr=False)
class HangOn(TextStage):
    word: str = "HANG"
    name: str = "hang_on"

    def process(self, task: DocumentBatch) -> DocumentBatch:
        if has(task, self.word):
            time.sleep(600)
        return task


@dataclass(repr=False)
class ExitOn(TextStage):
    word: str = "EXIT"
    name: str = "exit_on"

    def process(self, task: DocumentBatch) -> DocumentBatch:
        if has(task, self.word):
            os._exit(3)
        return task


@dataclass(repr=False)
class SegfaultOn(TextStage):
    word: str = "SEGFAULT"
    name: str = "segfault_on"

    def process(self, task: DocumentBatch) -> DocumentBatch:
        if has(task, self.word):
            ctypes.string_at(0)
        return task


@dataclass(repr=False)
class BabbleOn(TextStage):
    """Writes what no worker says to every socket that it finds, and stays."""

    word: str = "BABBLE"
    name: str = "babble_on"

    def process(self, task: DocumentBatch) -> DocumentBatch:
        if has(task, self.word):
            said = b'{"type":"Done","files":[{"path":7}]}'
            for fd in map(int, os.listdir("/proc/self/fd")):
                with contextlib.suppress(OSError):
                    if stat.S_ISSOCK(os.fstat(fd).st_mode):
                        os.write(fd, len(said).to_bytes(4, "little") + said)
            time.sleep(1000)
        return task


@dataclass(repr=False)
class HogOn(TextStage):
    """Allocates without bound."""

    word: str = "HOG"
    name: str = "hog_on"

    def process(self, task: DocumentBatch) -> DocumentBatch:
        hoard = []
        while has(task, self.word):
            hoard.append(b"x" * 1_000_000)
        return task


@dataclass(repr=False)
class WordList(TextStage):
    """A Python list of every word, held together: about thirty times the text."""

    name: str = "word_list"

    def process(self, task: DocumentBatch) -> DocumentBatch:
        words = [w for t in texts(task) for w in t.split()]
        return task.with_column("n_all", pa.array([1 if words else 0] * task.num_items, pa.int64()))


@dataclass(repr=False)
class Leak(TextStage):
    """Keeps some memory of every partition it sees."""

    n_bytes: int = 2_000_000
    name: str = "leak"

    def setup(self, worker_metadata: Any = None) -> None:
        self._kept: list[bytes] = []

    def process(self, task: DocumentBatch) -> DocumentBatch:
        self._kept.append(os.urandom(self.n_bytes))
        return task


@dataclass(repr=False)
class Chatter(TextStage):
    n_bytes: int = 3_000_000
    name: str = "chatter"

    def process(self, task: DocumentBatch) -> DocumentBatch:
        for stream in (sys.stdout, sys.stderr):
            stream.write(("chatter " * 8 + "\n") * (self.n_bytes // 65))
            stream.flush()
        return task


@dataclass(repr=False)
class Parent(TextStage):
    """Starts a child process that allocates on its own, outside the limit of its parent, on one record."""

    word: str = "CHILD"
    n_bytes: int = 2_000_000_000
    name: str = "parent"

    def process(self, task: DocumentBatch) -> DocumentBatch:
        if has(task, self.word):
            code = (
                "import contextlib, resource, time\n"
                "with contextlib.suppress(ValueError):\n"
                "    resource.setrlimit(resource.RLIMIT_DATA, (resource.getrlimit(resource.RLIMIT_DATA)[1],) * 2)\n"
                "hoard = []\n"
                f"for _ in range({self.n_bytes // 10_000_000}):\n"
                "    hoard.append(b'x' * 10_000_000)\n"
                "    time.sleep(0.02)\n"
                "time.sleep(600)\n"
            )
            subprocess.run([sys.executable, "-c", code], check=True)
        return task


@dataclass(repr=False)
class FixedCost(TextStage):
    """Takes the same memory for every call, whatever the documents."""

    n_bytes: int = 150 << 20
    name: str = "fixed_cost"

    def process(self, task: DocumentBatch) -> DocumentBatch:
        np.ones(self.n_bytes, np.uint8)
        return task


@dataclass(repr=False)
class Model(TextStage):
    """Sets up something large and keeps it."""

    n_bytes: int = 150 << 20
    name: str = "model"

    def setup(self, worker_metadata: Any = None) -> None:
        self._weights = np.ones(self.n_bytes, np.uint8)

    def process(self, task: DocumentBatch) -> DocumentBatch:
        return task
