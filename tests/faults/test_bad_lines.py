"""Lines that are no documents, documents without text, files without lines, lines without end."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.faults.fault_harness import (
    assert_conserved,
    content_hash,
    documents,
    execute,
    lines_of,
    outputs,
    quarantine,
    write_lines,
)
from tests.faults.fault_stages import AddLength, Shout

MB = 1_000_000


def test_empty_file_blank_lines_and_one_document(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    write_lines(folder / "a.jsonl", [])
    (folder / "b.jsonl").write_bytes(b"\n\r\n  \n\t\n\n")
    write_lines(folder / "c.jsonl", documents(1))
    (folder / "d.jsonl.gz").write_bytes(gzip.compress(b"", mtime=0))
    (folder / "e.jsonl.gz").write_bytes(gzip.compress(b"\n\n", mtime=0))
    (folder / "f.jsonl.gz").write_bytes(b"")
    result = execute(folder, tmp_path / "out", [AddLength()])
    assert_conserved(result)
    assert result.exit_code == 0
    assert lines_of(tmp_path / "out") == [documents(1)[0][:-1] + b',"length":81}']
    assert result.ledger.n_blank_lines == 7
    assert result.ledger.records.n == 1
    assert quarantine(tmp_path / "out") == []


def test_only_empty_files(tmp_path: Path) -> None:
    write_lines(tmp_path / "in" / "a.jsonl", [])
    result = execute(tmp_path / "in", tmp_path / "out")
    assert (result.exit_code, result.ledger.records.n, outputs(tmp_path / "out")) == (0, 0, [])
    assert execute(tmp_path / "in", tmp_path / "out").status == "already"


@pytest.mark.parametrize("local", [False, True])
def test_bom_crlf_and_no_final_newline(tmp_path: Path, local: bool) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.jsonl").write_bytes(b'\xef\xbb\xbf{"id":1}\r\n{"id":2}')
    (folder / "b.jsonl").write_bytes(b'{"id":3}\r\n\r\n{"id":4}\r\n')
    (folder / "c.jsonl.gz").write_bytes(gzip.compress(b'\xef\xbb\xbf{"id":5}\r\n{"id":6}', mtime=0))
    result = execute(folder, tmp_path / "out", local=local)
    assert_conserved(result)
    assert lines_of(tmp_path / "out") == [b'{"id":%d}' % i for i in range(1, 7)]
    assert result.ledger.n_blank_lines == 1


def test_bad_lines_are_quarantined_with_place_and_bytes(tmp_path: Path) -> None:
    good = documents(400)
    bad = [b'{"id": 1', b"[1, 2]", b'{"id": tru}', b'{"a":1} x', b'{"t":"\xff\xfe"}', b'{"id":01}']
    lines = list(good)
    for i, line in enumerate(bad):
        lines.insert(60 * (i + 1), line)
    data = b"\n".join(lines) + b"\n"
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_bytes(data)
    (tmp_path / "in" / "b.jsonl.gz").write_bytes(gzip.compress(data, mtime=0))
    for blocksize in (None, "64KiB"):
        out = tmp_path / f"out{blocksize}"
        result = execute(tmp_path / "in", out, blocksize=blocksize)
        assert_conserved(result)
        assert sorted(lines_of(out)) == sorted(good * 2)
        for name, unit in (("a.jsonl", "bytes"), ("b.jsonl.gz", "decoded bytes")):
            entries = [e for e in quarantine(out) if e["file"] == str(tmp_path / "in" / name)]
            assert [e["bytes"] for e in entries] == bad
            assert all(data[e["offset"] : e["offset"] + e["length"]] == e["bytes"] for e in entries)
            assert {e["unit"] for e in entries} == {unit}


def test_quarantine_limit_makes_the_run_incomplete(tmp_path: Path) -> None:
    write_lines(tmp_path / "in" / "a.jsonl", [*documents(50), b"{bad", b"{worse"])
    result = execute(tmp_path / "in", tmp_path / "out", local=False, settings={"quarantine_limit": "1%"})
    assert result.exit_code == 3
    assert "2 of 52 records are in quarantine" in result.message
    assert lines_of(tmp_path / "out") == documents(50)
    tolerant = execute(tmp_path / "in", tmp_path / "tolerant", local=False, settings={"quarantine_limit": "5%"})
    assert tolerant.exit_code == 0


def test_null_non_string_and_missing_text(tmp_path: Path) -> None:
    lines = [
        b'{"id":0,"text":null}',
        b'{"id":1,"text":5}',
        b'{"id":2,"text":["a"]}',
        b'{"id":3}',
        b'{"id":4,"text":"abc"}',
        b'{"id":5,"text":true}',
        b'{"id":6,"text":{"a":1}}',
        b'{"id":7,"text":1.5}',
    ]
    write_lines(tmp_path / "in" / "a.jsonl", lines)
    result = execute(tmp_path / "in", tmp_path / "out", local=False)
    assert_conserved(result)
    assert lines_of(tmp_path / "out") == lines
    result = execute(tmp_path / "in", tmp_path / "added", [AddLength()], local=False, blocksize="64KiB")
    assert_conserved(result)
    assert result.ledger.records.n == 8
    assert result.ledger.written.n + result.ledger.n_dropped + result.ledger.quarantined.n == 8
    written = lines_of(tmp_path / "added")
    assert b'{"id":4,"text":"abc","length":3}' in written
    assert all(any(w.startswith(line[:-1]) for line in lines) for w in written), "a value was changed on the way"


# -- types that drift -------------------------------------------------------------------------------------------------
DRIFT = {
    "a.jsonl": [b'{"id":1,"text":"a","v":1}'] * 2000,
    "b.jsonl": [b'{"id":2,"text":"b","v":2.5,"extra":true}'] * 2000,
    "c.jsonl": [b'{"id":3,"text":"c","v":null,"tags":["x"]}'] * 2000,
    "d.jsonl": [b'{"id":4,"text":"d","tags":[]}'] * 2000,
}


def _write_drift(folder: Path) -> None:
    for name, lines in DRIFT.items():
        write_lines(folder / name, lines)


def test_type_drift_jsonl_to_jsonl(tmp_path: Path) -> None:
    _write_drift(tmp_path / "in")
    write_lines(tmp_path / "in" / "e.jsonl", [b'{"id":5,"text":"e","v":"string","tags":{"k":1}}'] * 100)
    for blocksize in (None, "64KiB"):
        result = execute(tmp_path / "in", tmp_path / f"out{blocksize}", [Shout()], local=False, blocksize=blocksize)
        assert_conserved(result)
    assert content_hash(tmp_path / "outNone") == content_hash(tmp_path / "out64KiB")
    assert sorted(set(lines_of(tmp_path / "outNone"))) == [
        *(lines[0] for lines in DRIFT.values()),
        b'{"id":5,"text":"e","v":"string","tags":{"k":1}}',
    ]


def test_type_drift_jsonl_to_parquet_has_one_schema(tmp_path: Path) -> None:
    _write_drift(tmp_path / "in")
    schemas = set()
    for blocksize, local in ((None, False), ("64KiB", True), ("1MiB", False)):
        out = tmp_path / f"out{blocksize}"
        result = execute(tmp_path / "in", out, parquet=True, blocksize=blocksize, local=local)
        assert_conserved(result)
        assert result.exit_code == 0
        schemas |= {str(pq.read_schema(p)) for p in outputs(out)}
        assert sum(pq.read_metadata(p).num_rows for p in outputs(out)) == 8000
        assert content_hash(out) == content_hash(tmp_path / "outNone")
    assert len(schemas) == 1, schemas
    table = pq.read_table(outputs(tmp_path / "outNone")[0])
    assert [str(table.schema.field(n).type) for n in ("id", "v", "extra", "tags")] == [
        "int64",
        "double",
        "bool",
        "list<element: large_string>",
    ]


def test_type_conflict_jsonl_to_parquet(tmp_path: Path) -> None:
    """A number in one file, a string or an object in another: still one schema, and no value is lost."""
    write_lines(tmp_path / "in" / "a.jsonl", [b'{"id":1,"v":12345678901234567890}'] * 2000)
    write_lines(tmp_path / "in" / "b.jsonl", [b'{"id":2,"v":"text"}'] * 2000)
    write_lines(tmp_path / "in" / "c.jsonl", [b'{"id":3,"v":{"deep":[1,2.50]}}'] * 2000)
    seen = []
    for blocksize in (None, "64KiB"):
        out = tmp_path / f"out{blocksize}"
        result = execute(tmp_path / "in", out, local=False, parquet=True, blocksize=blocksize)
        assert_conserved(result)
        assert len({str(pq.read_schema(p)) for p in outputs(out)}) == 1
        rows = [r for p in outputs(out) for r in pq.read_table(p).to_pylist()]
        seen.append(sorted({(r["id"], r["v"]) for r in rows}))
    assert seen[0] == seen[1]
    assert [(i, str(v)) for i, v in seen[0]][:2] == [(1, "12345678901234567890"), (2, "text")]
    assert json.loads(seen[0][2][1]) == {"deep": [1, 2.5]}
    assert content_hash(tmp_path / "outNone") == content_hash(tmp_path / "out64KiB")


# -- long lines -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("compressed", [False, True], ids=["plain", "gz"])
def test_one_huge_line_is_quarantined_whole(tmp_path: Path, compressed: bool) -> None:
    huge = b'{"id":-1,"text":"' + b"x" * (20 * MB) + b'"}'
    lines = [*documents(500), huge, *documents(500, 500)]
    data = b"\n".join(lines) + b"\n"
    folder = tmp_path / "in"
    folder.mkdir()
    path = folder / ("a.jsonl.gz" if compressed else "a.jsonl")
    path.write_bytes(gzip.compress(data, 1, mtime=0) if compressed else data)
    for blocksize, local in ((None, True), ("64KiB", False), ("8MB", False), ("100MB", False)):
        out = tmp_path / f"out{blocksize}"
        result = execute(folder, out, blocksize=blocksize, local=local, settings={"max_record": "1MB"})
        assert_conserved(result)
        assert sorted(lines_of(out)) == sorted(documents(1000))
        (entry,) = quarantine(out)
        assert (entry["file"], entry["offset"], entry["length"]) == (str(path), data.index(huge), len(huge))
        assert entry["bytes"] == huge, "the raw bytes differ"
        assert content_hash(out) == content_hash(tmp_path / "outNone")
        assert result.ledger.quarantined.n == 1


@pytest.mark.parametrize("compressed", [False, True], ids=["plain", "gz"])
def test_records_larger_than_a_partition_are_kept(tmp_path: Path, compressed: bool) -> None:
    large = [b'{"id":%d,"text":"%s"}' % (i, b"y" * (300_000 + i)) for i in range(5)]
    lines = [*documents(50), large[0], large[1], *documents(50, 50), *large[2:]]
    data = b"\n".join(lines)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / ("a.jsonl.gz" if compressed else "a.jsonl")).write_bytes(
        gzip.compress(data, 1, mtime=0) if compressed else data
    )
    for blocksize, local in (("64KiB", True), ("64KiB", False), ("250KB", False)):
        out = tmp_path / f"out{blocksize}{local}"
        result = execute(tmp_path / "in", out, blocksize=blocksize, local=local, settings={"max_record": "1MB"})
        assert_conserved(result)
        assert lines_of(out) == lines
