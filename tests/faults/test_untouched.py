"""Never damage data: what nobody touched comes out byte for byte, also beside what somebody did touch."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pytest

from tests.faults.fault_harness import assert_conserved, execute, lines_of, write_lines
from tests.faults.fault_stages import AddLength, DropOdd, Shout

WEIRD = [
    b'{"id":0,"text":"plain"}',
    b'  {  "id" : 2 ,\t"text" : "spaces"\t}  ',
    b'{"text":"key order","id":4}',
    b'{"id":6,"text":"first","text":"second"}',
    b'{"id":8,"text":"\\u00e9\\/\\ud83d\\ude00 \\u0041 \\b\\f"}',
    b'{"id":10,"text":"n","a":1e5,"b":1.0,"c":12345678901234567890,"d":-0,"e":1E+2,"f":0.1000}',
    b'{"id":12,"text":"","deep":{"a":[1, 2,{"b" : null}],"text":"inner"}}',
    '{"id":14,"text":"é😀\u2028","ключ":"значение"}'.encode(),
    b'{"id":16,"text":"slash \\" quote"}',
    b'{"id":18,"text":"x","empty":{},"list":[ ],"\\u0074ext2":1}',
    b'{"":"","id":20,"text":"empty key"}',
]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    write_lines(tmp_path / "in" / "a.jsonl", WEIRD)
    (tmp_path / "in" / "b.jsonl.gz").write_bytes(gzip.compress(b"\n".join(WEIRD), mtime=0))
    return tmp_path / "in"


@pytest.mark.parametrize("local", [False, True])
def test_copied_byte_for_byte(source: Path, tmp_path: Path, local: bool) -> None:
    result = execute(source, tmp_path / "out", local=local)
    assert_conserved(result)
    assert lines_of(tmp_path / "out") == WEIRD * 2


@pytest.mark.parametrize("mode", ["streaming", "batch"])
def test_added_columns_are_spliced_before_the_last_brace(source: Path, tmp_path: Path, mode: str) -> None:
    result = execute(source, tmp_path / "out", [AddLength(), DropOdd()], settings={"mode": mode})
    assert_conserved(result)
    written = lines_of(tmp_path / "out")
    assert len(written) == 2 * len(WEIRD)
    for line, out in zip(WEIRD * 2, written, strict=True):
        close = line.rindex(b"}")
        assert out == line[:close] + b',"length":%d' % len(json.loads(line)["text"]) + line[close:]


def test_a_changed_column_leaves_the_others_alone(source: Path, tmp_path: Path) -> None:
    """Values of untouched fields keep their spelling; records whose text did not change are untouched altogether."""
    result = execute(source, tmp_path / "out", [Shout()])
    assert_conserved(result)
    written = lines_of(tmp_path / "out")
    for line, out in zip(WEIRD * 2, written, strict=True):
        text = json.loads(line)["text"]
        wanted = text.upper() if len(text) % 3 == 0 else text
        assert json.loads(out)["text"] == wanted
        if wanted == text:
            assert out == line
        else:
            assert {k: v for k, v in json.loads(out).items() if k != "text"} == {
                k: v for k, v in json.loads(line).items() if k != "text"
            }
    numbers = b'"a":1e5,"b":1.0,"c":12345678901234567890,"d":-0,"e":1E+2,"f":0.1000'
    changed = [b'{"id":22,"text":"abc",%s,"dup":1,"dup":2}' % numbers]
    write_lines(tmp_path / "more" / "a.jsonl", changed)
    execute(tmp_path / "more", tmp_path / "out2", [Shout()])
    (out,) = lines_of(tmp_path / "out2")
    assert b'"ABC"' in out
    assert numbers in out


def test_fields_keep_their_spelling(source: Path, tmp_path: Path) -> None:
    write_lines(tmp_path / "more" / "a.jsonl", [b'{"z":0, "id" : 1.50e1,"text":"\\u0041\\/" }'])
    execute(tmp_path / "more", tmp_path / "out", fields=["id", "text"])
    assert lines_of(tmp_path / "out") == [b'{"id":1.50e1,"text":"\\u0041\\/"}']


def test_parquet_rows_keep_their_types(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    table = pa.table(
        {
            "id": pa.array([0, 2, 4], pa.int16()),
            "text": pa.array(["a", None, "ccc"], pa.large_string()),
            "when": pa.array([1, 2, None], pa.timestamp("us", tz="UTC")),
            "blob": pa.array([b"\x00\xff", b"", None], pa.binary()),
            "deep": pa.array([{"a": [1]}, {"a": []}, None], pa.struct([("a", pa.list_(pa.float32()))])),
        }
    )
    (tmp_path / "in").mkdir()
    pq.write_table(table, tmp_path / "in" / "a.parquet")
    result = execute(tmp_path / "in", tmp_path / "out", [DropOdd()], parquet=True)
    assert_conserved(result)
    (path,) = sorted((tmp_path / "out").glob("*.parquet"))
    written = pq.read_table(path)
    assert written.to_pylist() == table.to_pylist()
    assert {f.name: str(f.type).replace("large_", "") for f in written.schema} == {
        "id": "int16",
        "text": "string",
        "when": "timestamp[us, tz=UTC]",
        "blob": "binary",
        "deep": "struct<a: list<element: float>>",
    }
