"""The log of a bucket goes through memory in pieces, whether it is many objects or one large one."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from tamis.engine.run.output.bucket_log import SpooledLog
from tamis.engine.run.output.commit_log import line_of
from tamis.engine.schema import CommitRecord, CommittedFile, FileKind, RetractRecord, WriterRecord
from tamis.errors import RunConflict
from tamis.stores.s3 import Object


class Held:
    """As much of a bucket as reading takes; the objects are made when they are asked for."""

    def __init__(self, made: Any) -> None:
        self._made = made
        self.name = "b"

    def url(self, key: str) -> str:
        return f"s3://b/{key}"

    def head(self, key: str) -> Object:
        return Object(key, len(self._made(key)), '"e-1"')

    def read_into(self, key: str, etag: str, offset: int, view: memoryview) -> None:
        view[:] = self._made(key)[offset : offset + len(view)]


def _commit(step: int, n_files: int, name: str) -> bytes:
    files = [CommittedFile(f"{name}-{i:08d}.jsonl", FileKind.OUTPUT, n_bytes=1) for i in range(n_files)]
    return line_of(CommitRecord(step, [], files, {}))


def _open(made: Any, keys: list[str], folder: Path) -> SpooledLog:
    return SpooledLog(Held(made), keys, str(folder))  # type: ignore[arg-type]


@pytest.mark.parametrize(("n_objects", "n_lines"), [(60, 20), (1, 1000)])
def test_a_log_is_never_held_as_a_whole(n_objects: int, n_lines: int, tmp_path: Path) -> None:
    one = line_of(CommitRecord(0, [], [], {"x": "x" * 40_000})) * n_lines
    keys = [f"log/{i}" for i in range(n_objects)]
    tracemalloc.start()
    with _open(lambda key: one, keys, tmp_path) as log:
        n = sum(1 for _ in log.valid())
        peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert n == n_objects * n_lines
    assert len(one) * n_objects > 30_000_000
    assert peak < 20_000_000


def test_steps_that_were_taken_back_and_done_again(tmp_path: Path) -> None:
    back = line_of(RetractRecord(1))
    objects = {
        "0": line_of(WriterRecord("x")) + _commit(0, 1, "a") + _commit(1, 1, "b"),
        "1": back + _commit(1, 1, "c"),
        "2": _commit(1, 1, "d"),
    }
    with _open(objects.__getitem__, list(objects), tmp_path) as log:
        assert [r.files[0].name[0] for r in log.valid()] == ["a", "c", "d"]
        assert [r.files[0].name[0] for r in log.retracted()] == ["b"]


def test_a_damaged_object_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunConflict, match=r"s3://b/1 is damaged; start over with fresh=True"):
        _open({"0": _commit(0, 1, "a"), "1": _commit(0, 1, "a")[:-5]}.__getitem__, ["0", "1"], tmp_path)
