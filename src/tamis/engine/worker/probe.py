"""Find the stage that keeps memory: compare allocators before and after each, with no partition in memory.

A stage's result is larger than any leak, so counters around the call say nothing. A worker under suspicion therefore
puts the documents aside between stages, in a file (as between two segments), gives everything back, counts, and takes
them up again: what a stage added then is what it keeps. Exact to a few kilobytes; done for a handful of partitions
only.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, BinaryIO

import numpy as np

from tamis import files
from tamis.engine.messages import RetainedMemory
from tamis.engine.worker import handover
from tamis.engine.worker.rejections import Rejections
from tamis.memory import meter
from tamis.memory.attribution import ObjectCounts, count_objects, counts, variables_of
from tamis.memory.release import release
from tamis.tasks import DocumentBatch, Task


class StageProbe:
    """One partition, measured between stages. `retained`: labels, each with what was kept since the one before."""

    def __init__(self, path: str) -> None:
        self.retained: list[tuple[str, dict[str, int]]] = []
        self._path = path
        self._rejected: list[str] = []  # files with what was rejected so far
        self._is_possible = True
        self._check = ""  # of what was put aside last
        self._before = _level()

    def after(
        self, label: str, tasks: list[Task[Any]], rejections: Rejections, engine_bytes: int = 0
    ) -> list[Task[Any]]:
        """Put everything aside, count, take the tasks up again. Once that is not possible, no more is measured.

        `engine_bytes`: bytes that the engine itself holds of this partition.
        """
        spilled = self._spill(tasks, rejections) if self._is_possible else None
        if spilled is None:
            self._is_possible = False
            return tasks
        tasks.clear()  # the caller still has the list
        self.mark(label, engine_bytes)
        return self._reload(spilled)

    def mark(self, label: str, engine_bytes: int = 0) -> None:
        """Count now: what was kept since the last mark is `label`'s."""
        if self._is_possible:
            release()
            now = _level()
            now |= {name: now[name] - engine_bytes for name in ("malloc_bytes", "rss_bytes") if name in now}
            self.retained.append((label, {name: now[name] - self._before.get(name, 0) for name in now}))
            self._before = now

    def restore(self, rejections: Rejections) -> None:
        """Take up again what was rejected, in order."""
        for path in reversed(self._rejected):
            rejections.restore(path)
        self._rejected.clear()

    def _spill(self, tasks: list[Task[Any]], rejections: Rejections) -> list[Task[Any] | dict[str, Any]] | None:
        """Return per task what is not in the file (a batch without documents is unchanged); None if impossible."""
        batches = [t for t in tasks if isinstance(t, DocumentBatch) and t.num_items]
        if any(not isinstance(t, DocumentBatch) or not t.is_identified for t in tasks):
            return None
        try:
            self._check = handover.save(batches, self._path).check
            with files.create(self._path + ".shared", 0o600) as file:
                for batch in batches:
                    _save_measured(batch.measured, file)
            path = f"{self._path}.rejected{len(self._rejected)}"
            if rejections.spill(path):
                self._rejected.append(path)
        except Exception:  # no room, or values that no file can hold: the partition matters, the measurement does not
            for name in (self._path, self._path + ".shared", f"{self._path}.rejected{len(self._rejected)}"):
                files.remove(name)
            return None
        return [
            {"_metadata": t._metadata, "_stage_perf": t._stage_perf, "task_id": t.task_id} if t.num_items else t
            for t in tasks
        ]

    def _reload(self, spilled: list[Task[Any] | dict[str, Any]]) -> list[Task[Any]]:
        loaded, _ = handover.load(self._path, (0, sys.maxsize), self._check)
        with open(self._path + ".shared", "rb") as file:
            measured = [_load_measured(file) for _ in loaded]
        for path in (self._path, self._path + ".shared"):
            os.unlink(path)
        pairs = iter(zip(loaded, measured, strict=True))
        tasks: list[Task[Any]] = []
        for facts in spilled:
            if isinstance(facts, Task):
                tasks.append(facts)
                continue
            task, values = next(pairs)
            vars(task).update(facts)
            assert isinstance(task, DocumentBatch)
            task.measured.update(values)
            tasks.append(task)
        return tasks


def _save_measured(measured: Mapping[tuple[str, str], np.ndarray[Any, Any]], file: BinaryIO) -> None:
    """Store arrays by name in one shared segment, never pickled; raise TypeError for values that would change."""
    names = [(*name, values.dtype.hasobject) for name, values in measured.items()]
    file.write(json.dumps(names).encode() + b"\n")
    for values in measured.values():
        if not values.dtype.hasobject:
            np.save(file, values, allow_pickle=False)
        elif _is_json(plain := values.tolist()):
            file.write(json.dumps(plain).encode() + b"\n")
        else:
            raise TypeError("values that JSON does not know")


def _load_measured(file: BinaryIO) -> dict[tuple[str, str], np.ndarray[Any, Any]]:
    measured = {}
    for column, name, is_json in json.loads(file.readline()):
        if is_json:
            objects = json.loads(file.readline())
            values = np.empty(len(objects), object)
            for i, value in enumerate(objects):  # not values[:] = objects, which takes lists for rows
                values[i] = value
        else:
            values = np.load(file, allow_pickle=False)
        measured[column, name] = values
    return measured


def _is_json(value: Any) -> bool:
    """Return True if a value survives a round trip through JSON unchanged."""
    if type(value) is list:
        return all(map(_is_json, value))
    if type(value) is dict:
        return all(type(k) is str and _is_json(v) for k, v in value.items())
    return value is None or type(value) in (str, int, float, bool)


def _level() -> dict[str, int]:
    status = meter.status() or {}
    return {**counts(), "rss_bytes": status.get("RssAnon", 0) + status.get("RssShmem", 0)}


class PythonProbe:
    """Growth of the Python objects of a worker over one partition, and the type that most of it is."""

    def __init__(self, stages: Sequence[Any]) -> None:
        self._stages = stages
        self._before = self._count_objects()

    def with_python_growth(self, retained: RetainedMemory) -> RetainedMemory:
        """Add the growth of Python objects since the probe began to what was measured by stage.

        Returns it unchanged where the growth is not known.
        """
        now = self._count_objects()
        if self._before is None or now is None:
            return retained
        return replace(retained, **now.growth(self._before)._asdict())

    def _count_objects(self) -> ObjectCounts | None:
        # Stages and the globals of their modules are older than gc.freeze(): the collector does not list them.
        try:
            return count_objects(self._stages, variables=variables_of(self._stages))
        except MemoryError:  # the cap is tight: then it is not known
            return None
