"""Records that an earlier pass found: taken only where they cover a range without a gap, and then exactly those."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tamis.dedup.records import Records
from tamis.formats.jsonl import file_spans, record_index
from tamis.formats.jsonl.block import JsonlBlock
from tamis.formats.jsonl.encode import encode_jsonl
from tamis.formats.jsonl.file_spans import FileSpan, FileSpans
from tamis.formats.jsonl.record_index import DroppedWriter, RecordIndex, record_columns
from tamis.tasks import DocumentBatch


def _record(i: int, n: int = 600) -> bytes:
    return b'{"text":"' + str(i).encode() * n + b'"}'


def _told(folder: Path, files: dict[int, bytes], cuts: dict[int, list[int]] | None = None) -> RecordIndex:
    """Write the index of these files, each in one record batch or cut at some of its records."""
    folder.mkdir(exist_ok=True)
    paths = []
    for file, data in files.items():
        block = JsonlBlock.parse(np.frombuffer(data, np.uint8), ["text"])
        block.is_open = True
        for a, b in zip([0, *(cuts or {}).get(file, [])], [*(cuts or {}).get(file, []), block.n_rows], strict=True):
            batch = DocumentBatch.over(block, np.arange(a, b))
            hi, lo = block.identity()
            batch._identity = (hi[a:b], lo[a:b])
            columns = {"file": np.full(b - a, file, np.int32), "offset": block.start[a:b]} | record_columns(batch)
            paths.append(str(folder / f"{file}-{a}.arrow"))
            with pa.OSFile(paths[-1], "wb") as out:
                table = pa.table({name: pa.array(values) for name, values in columns.items()})
                with pa.ipc.new_file(out, table.schema) as writer:
                    writer.write_table(table)
    Records(paths).write_known(str(folder / "known"))
    return RecordIndex(str(folder / "known"))


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


def test_files_of_one_batch_are_distinguished(tmp_path: Path) -> None:
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
        _record(1) + b"\n" + _record(2) + b"\r",
    ],
    ids=[
        "blank line",
        "CRLF",
        "no last line feed",
        "blank at the end",
        "blank at the start",
        "bad record",
        "CR at the end",
    ],
)
def test_what_is_not_covered_is_looked_for_in_the_file(tmp_path: Path, data: bytes) -> None:
    assert _told(tmp_path, {0: data}).find(0, 0, len(data), len(data)) is None


def test_a_range_whose_last_line_has_another_end_is_looked_into(tmp_path: Path) -> None:
    data = _record(1) + b"\n" + _record(2) + b"\r\n" + _record(3) + b"\n"
    told = _told(tmp_path, {0: data, 1: _record(4) + b"\n" + _record(5)})
    for end in range(len(_record(1)) + 2, len(data), 97):  # it would be copied without its line feed
        assert told.find(0, 0, end, len(data)) is None
    assert told.find(1, 0, 10, 2 * len(_record(4)) + 1) is not None  # only the last line is without


def test_where_the_folder_cannot_be_seen_records_are_looked_for(tmp_path: Path) -> None:
    """On another node, which reads the input and the scratch of a bucket, and not the disk of the first."""
    assert RecordIndex(str(tmp_path / "elsewhere")).find(0, 0, 100, 100) is None


def test_a_file_that_is_longer_than_what_was_reported_is_looked_into(tmp_path: Path) -> None:
    data = _record(1) + b"\n" + _record(2) + b"\n"
    told = _told(tmp_path, {0: data})
    assert told.find(0, 0, len(data), len(data)) is not None
    assert told.find(0, 0, len(data) + 9, len(data) + 9) is None


def test_records_that_cannot_be_read_at_once_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    block = JsonlBlock.parse(np.frombuffer(_record(1) + b"\n" + _record(22) + b"\n", np.uint8))
    block.is_open = True
    batch = DocumentBatch.over(block, np.arange(2))
    batch._identity = block.identity()
    assert record_columns(batch)
    monkeypatch.setattr(record_index, "_MOST_BYTES", len(_record(1)))
    assert record_columns(batch) == {}


def test_short_records_and_compressed_ones_are_not_kept() -> None:
    short = JsonlBlock.parse(np.frombuffer(b'{"a":1}\n' * 3, np.uint8))
    long = JsonlBlock.parse(np.frombuffer(_record(1) + b"\n", np.uint8))
    for block, is_open, told in ((short, True, False), (long, False, False), (long, True, True)):
        block.is_open = is_open
        batch = DocumentBatch.over(block, np.arange(block.n_rows))
        batch._identity = block.identity()
        assert bool(record_columns(batch)) is told


def test_a_record_file_that_ends_early_is_not_believed(tmp_path: Path) -> None:
    data = b"".join(_record(i) + b"\n" for i in range(50))
    told = _told(tmp_path, {0: data})
    with open(tmp_path / "0-0.arrow", "r+b") as file:
        file.truncate(300)
    assert told.find(0, 0, len(data), len(data)) is None


def test_records_of_documents_that_stayed_and_that_were_dropped_cover_a_file_together(tmp_path: Path) -> None:
    files = {i: b"".join(_record(10 * i + k, 520 + 31 * k) + b"\n" for k in range(9)) for i in (2, 5)}
    stayed = {2: [1, 2, 7], 5: []}
    paths, dropped = [], DroppedWriter(str(tmp_path / "known"))
    for file, data in files.items():
        block = JsonlBlock.parse(np.frombuffer(data, np.uint8))
        block.is_open = True
        batch = DocumentBatch.over(block, np.arange(block.n_rows))
        batch.identify(*block.identity())
        gone = np.setdiff1d(np.arange(9), stayed[file])
        for part in (gone[:4], gone[4:]):  # two units
            dropped.add({"file": np.full(len(part), file), "offset": block.start[part]} | record_columns(batch, part))
        if stayed[file]:
            kept = np.array(stayed[file])
            columns = {"file": np.full(len(kept), file, np.int32), "offset": block.start[kept]}
            table = pa.table({k: pa.array(v) for k, v in (columns | record_columns(batch, kept)).items()})
            paths.append(str(tmp_path / f"{file}.arrow"))
            with pa.OSFile(paths[-1], "wb") as out, pa.ipc.new_file(out, table.schema) as writer:
                writer.write_table(table)
    dropped.close()
    Records(paths).write_known(str(tmp_path / "known"))
    told = RecordIndex(str(tmp_path / "known"))
    for file, data in files.items():
        lines, block = data.split(b"\n")[:-1], JsonlBlock.parse(np.frombuffer(data, np.uint8))
        for cut in range(0, len(data), 613):
            seen: list[bytes] = []
            for a, b in ((0, cut), (cut, len(data))):
                if (found := told.find(file, a, b, len(data))) is not None:
                    seen += [data[s:e] for s, e in zip(found.start, found.end, strict=True)]
                    rows = np.searchsorted(block.start, found.start)
                    assert np.array_equal(found.identity[0], block.identity()[0][rows])
                    assert np.array_equal(found.identity[1], block.identity()[1][rows])
            assert seen == lines, (file, cut)


def test_a_block_of_which_few_documents_are_left_is_read_in_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes of the documents that are left is the same, whether or not the others were read; and they were not."""
    lines = [b'{"id":"d%d","text":"%s"}' % (i, b"word \\u00e9 " * 900) for i in range(20)]
    data = b"".join(line + b"\n" for line in lines)
    path = tmp_path / "a.jsonl"
    path.write_bytes(data)
    info = path.stat()
    whole = JsonlBlock.parse(np.frombuffer(data, np.uint8), ["text"])
    n_read: list[int] = []
    read_at = file_spans.read_at

    def counted(file: Any, view: memoryview, offset: int) -> int:
        n_read.append(len(view))
        return read_at(file, view, offset)

    monkeypatch.setattr(file_spans, "read_at", counted)
    for rows in ([3], [0, 1, 2, 11, 19], list(range(14)), list(range(19))):
        left = np.array(rows)
        parts = [FileSpan(str(path), 0, len(data), (info.st_size, info.st_mtime_ns))]
        block = JsonlBlock.from_index(FileSpans(parts), whole.start, whole.end, whole.identity())
        block.narrow(left)
        n_read.clear()
        batch, twin = (DocumentBatch.over(b, left) for b in (block, whole))
        assert batch.texts("text").equals(twin.texts("text"))
        assert batch.get_columns() == ["id", "text"]
        assert batch.values("id") == [f"d{i}" for i in rows]
        changed = [b.with_column("text", pa.array([f"new {i}" for i in rows])) for b in (batch, twin)]
        assert encode_jsonl(changed[0]).data.tobytes() == encode_jsonl(changed[1]).data.tobytes()
        assert encode_jsonl(batch).data.tobytes() == b"".join(lines[i] + b"\n" for i in rows)
        assert sum(n_read) == (len(data) if len(rows) > 15 else sum(len(lines[i]) + 1 for i in rows))
        assert [block.raw(i) for i in range(20)] == lines  # also those that were not read with the others
