"""Records that an earlier pass found: taken only where they cover a range without a gap, and then exactly those."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tamis.dedup.records import Records
from tamis.formats.jsonl import known_records
from tamis.formats.jsonl.block import JsonlBlock
from tamis.formats.jsonl.known_records import KnownRecords, known_columns
from tamis.tasks import DocumentBatch


def _record(i: int, n: int = 600) -> bytes:
    return b'{"text":"' + str(i).encode() * n + b'"}'


def _told(folder: Path, files: dict[int, bytes], cuts: dict[int, list[int]] | None = None) -> KnownRecords:
    """What a first pass tells of these files, each in one record batch or cut at some of its records."""
    folder.mkdir(exist_ok=True)
    paths = []
    for file, data in files.items():
        block = JsonlBlock.parse(np.frombuffer(data, np.uint8), ["text"])
        block.is_open = True
        for a, b in zip([0, *(cuts or {}).get(file, [])], [*(cuts or {}).get(file, []), block.n_rows], strict=True):
            batch = DocumentBatch.over(block, np.arange(a, b))
            hi, lo = block.identity()
            batch._identity = (hi[a:b], lo[a:b])
            columns = {"file": np.full(b - a, file, np.int32), "offset": block.start[a:b]} | known_columns(batch)
            paths.append(str(folder / f"{file}-{a}.arrow"))
            with pa.OSFile(paths[-1], "wb") as out:
                table = pa.table({name: pa.array(values) for name, values in columns.items()})
                with pa.ipc.new_file(out, table.schema) as writer:
                    writer.write_table(table)
    Records(paths).write_known(str(folder / "known"))
    return KnownRecords(str(folder / "known"))


def test_every_cut_of_a_file_gives_every_record_once(tmp_path: Path) -> None:
    records = [_record(i, 512 + 37 * i) for i in range(9)]
    data = b"".join(r + b"\n" for r in records)
    told = _told(tmp_path, {3: data}, {3: [4, 7]})
    starts = np.cumsum([0, *(len(r) + 1 for r in records)])[:-1]
    block = JsonlBlock.parse(np.frombuffer(data, np.uint8))
    for cut in [*range(0, len(data), 97), *starts.tolist(), *(starts + 1).tolist()]:
        seen: list[int] = []
        for a, b in ((0, cut), (cut, len(data) + 5)):
            expected = starts[(starts >= a) & (starts < b)].tolist()
            found = told.find(3, a, b, len(data))
            if not expected:
                assert found is None
                continue
            assert found is not None, (a, b)
            assert found.start.tolist() == expected
            assert [data[s:e] for s, e in zip(found.start, found.end, strict=True)] == [
                records[starts.tolist().index(s)] for s in expected
            ]
            rows = np.searchsorted(starts, found.start)
            assert np.array_equal(found.identity[0], block.identity()[0][rows])
            assert np.array_equal(found.identity[1], block.identity()[1][rows])
            seen += expected
        assert seen == starts.tolist()


def test_files_of_one_batch_are_told_apart(tmp_path: Path) -> None:
    files = {i: b"".join(_record(10 * i + k) + b"\n" for k in range(3)) for i in range(4)}
    told = _told(tmp_path, files)
    for i, data in files.items():
        found = told.find(i, 0, len(data), len(data))
        assert found is not None
        assert [data[a:b] for a, b in zip(found.start, found.end, strict=True)] == data.split(b"\n")[:-1]
    assert told.find(4, 0, 100, 100) is None


@pytest.mark.parametrize(
    "data",
    [
        _record(1) + b"\n\n" + _record(2) + b"\n",
        _record(1) + b"\r\n" + _record(2) + b"\r\n",
        _record(1) + b"\n" + _record(2),
        _record(1) + b"\n" + _record(2) + b"\n\n",
        b"\n" + _record(1) + b"\n",
        _record(1) + b"\nnot JSON\n" + _record(2) + b"\n",
    ],
    ids=["blank line", "CRLF", "no last line feed", "blank at the end", "blank at the start", "bad record"],
)
def test_what_is_not_covered_is_looked_for_in_the_file(tmp_path: Path, data: bytes) -> None:
    assert _told(tmp_path, {0: data}).find(0, 0, len(data), len(data)) is None


def test_a_file_that_is_longer_than_what_was_told_is_looked_into(tmp_path: Path) -> None:
    data = _record(1) + b"\n" + _record(2) + b"\n"
    told = _told(tmp_path, {0: data})
    assert told.find(0, 0, len(data), len(data)) is not None
    assert told.find(0, 0, len(data) + 9, len(data) + 9) is None


def test_records_that_cannot_be_read_at_once_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    block = JsonlBlock.parse(np.frombuffer(_record(1) + b"\n" + _record(22) + b"\n", np.uint8))
    block.is_open = True
    batch = DocumentBatch.over(block, np.arange(2))
    batch._identity = block.identity()
    assert known_columns(batch)
    monkeypatch.setattr(known_records, "_MOST_BYTES", len(_record(1)))
    assert known_columns(batch) == {}


def test_short_records_and_compressed_ones_are_not_kept() -> None:
    short = JsonlBlock.parse(np.frombuffer(b'{"a":1}\n' * 3, np.uint8))
    long = JsonlBlock.parse(np.frombuffer(_record(1) + b"\n", np.uint8))
    for block, is_open, told in ((short, True, False), (long, False, False), (long, True, True)):
        block.is_open = is_open
        batch = DocumentBatch.over(block, np.arange(block.n_rows))
        batch._identity = block.identity()
        assert bool(known_columns(batch)) is told


def test_a_record_file_that_ends_early_is_not_believed(tmp_path: Path) -> None:
    data = b"".join(_record(i) + b"\n" for i in range(50))
    told = _told(tmp_path, {0: data})
    with open(tmp_path / "0-0.arrow", "r+b") as file:
        file.truncate(300)
    assert told.find(0, 0, len(data), len(data)) is None
