"""Values that Arrow holds and Python does not: their text, and whole runs over them."""

from __future__ import annotations

import datetime
import decimal
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tamis import InProcessExecutor, Pipeline
from tamis.errors import Incomplete
from tamis.stages.text.filters import ScoreFilter, WordCountFilter
from tamis.stages.text.io.reader import DocumentReader
from tamis.stages.text.io.writer import JsonlWriter, ParquetWriter
from tamis.tasks.columns.python_values import python_values
from tests.support.run_dirs import run_dir_path

FAR = 2**62
DAY_MS = 86_400_000


def bits(kind: pa.DataType, *values: int) -> pa.Array:
    return pa.array(values, pa.int32() if kind.bit_width == 32 else pa.int64()).view(kind)


def decimals(kind: pa.DataType, *values: int) -> pa.Array:
    data = b"".join(v.to_bytes(kind.byte_width, "little", signed=True) for v in values)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(data)])


def listed(array: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(range(len(array) + 1), pa.int32()), array)


CASES: dict[str, tuple[pa.Array, list[Any]]] = {
    "scale": (decimals(pa.decimal128(38, 2 * 10**9), 1, -25), ["1E-2000000000", "-2.5E-1999999999"]),
    "negative scale": (decimals(pa.decimal256(76, -(10**9)), 1, 10), ["1E+1000000000", "1.0E+1000000001"]),
    "seconds": (bits(pa.timestamp("s"), 0, FAR), ["1970-01-01T00:00:00", "146138514283-06-19T07:45:04"]),
    "milliseconds": (
        bits(pa.timestamp("ms"), FAR + 100, 1),
        ["146140482-04-24T15:36:28.004000", "1970-01-01T00:00:00.001000"],
    ),
    "microseconds": (bits(pa.timestamp("us"), -FAR, 0), ["-144169-06-28T09:59:32.612096", "1970-01-01T00:00:00"]),
    "nanoseconds": (
        bits(pa.timestamp("ns"), -1, 1000),
        ["1969-12-31T23:59:59.999999999", "1970-01-01T00:00:00.000001"],
    ),
    "zone": (
        bits(pa.timestamp("ns", "Europe/Berlin"), 1, 1000),
        ["1970-01-01T01:00:00.000000001+01:00", "1970-01-01T01:00:00.000001+01:00"],
    ),
    "unknown zone": (
        bits(pa.timestamp("us", "Mars/Olympus"), 1, FAR),
        ["1970-01-01T00:00:00.000001+00:00", "148108-07-06T14:00:27.387904+00:00"],
    ),
    "duration": (bits(pa.duration("s"), -FAR, 90_061), ["-53375995583651 days, 16:14:56", "1 day, 1:01:01"]),
    "short duration": (bits(pa.duration("ns"), 1, 10**9), ["0:00:00.000000001", "0:00:01"]),
    "date": (bits(pa.date32(), 2**31 - 1, 0), ["5881580-07-11", "1970-01-01"]),
    "long date": (bits(pa.date64(), DAY_MS * 10**7, 0), ["29349-01-26", "1970-01-01"]),
    "time": (bits(pa.time64("ns"), 3_600_000_000_001, 0), ["01:00:00.000000001", "00:00:00"]),
}
NESTED = {
    "list": (listed(CASES["seconds"][0]), [[text] for text in CASES["seconds"][1]]),
    "struct": (pa.StructArray.from_arrays([CASES["scale"][0]], ["x"]), [{"x": text} for text in CASES["scale"][1]]),
    "dictionary": (CASES["zone"][0].dictionary_encode(), CASES["zone"][1]),
}


def test_values_that_python_has_stay_what_they_are() -> None:
    for value in (
        datetime.datetime(9999, 1, 2),
        datetime.date(1, 2, 3),
        datetime.timedelta(5),
        decimal.Decimal("1.50"),
    ):
        assert python_values(pa.array([value, None])) == [value, None]
    for array, _ in CASES.values():
        assert python_values(pa.nulls(2, array.type)) == [None, None]


def written(folder: Path, array: pa.Array, writer: Any, *stages: Any) -> tuple[Any, list[Any]]:
    """Run a copy of one column, `v`, next to a file without it; return the ledger and what JSON output has for it."""
    (folder / "in").mkdir(parents=True)
    table = pa.table({"text": ["two words", "one"][: len(array)], "v": array})
    for name, part in (("a", pa.table({"text": ["good one"]})), ("b", table)):
        with pa.ipc.new_file(str(folder / "in" / f"{name}.arrow"), part.schema) as out:
            out.write_table(part)
    pipeline = Pipeline("x", stages=[DocumentReader(str(folder / "in")), *stages, writer(str(folder / "out"))])
    try:
        pipeline.run(InProcessExecutor(), memory="400MB")
    except Incomplete:
        assert pipeline.last_result is not None
        assert pipeline.last_result.ledger.quarantined.n
    assert pipeline.last_result is not None
    rows = [json.loads(line) for p in sorted((folder / "out").glob("*.jsonl")) for line in p.read_text().splitlines()]
    return pipeline.last_result.ledger, [row["v"] for row in rows if "v" in row]


@pytest.mark.filterwarnings("ignore:x. (1 document is|2 documents are) in quarantine")
@pytest.mark.parametrize("name", [*CASES, *NESTED])
def test_every_value_is_written_right_or_quarantined(tmp_path: Path, name: str) -> None:
    array, texts = (CASES | NESTED)[name]
    ledger, got = written(tmp_path / "lines", array, JsonlWriter)
    assert (ledger.written.n, got) == (3, texts)
    ledger, _ = written(tmp_path / "table", array, ParquetWriter)
    assert (ledger.records.n, ledger.written.n + ledger.quarantined.n) == (3, 3)
    ledger, _ = written(tmp_path / "dropped", array, JsonlWriter, ScoreFilter(WordCountFilter(min_words=2)))
    assert (ledger.written.n, ledger.n_dropped) == (2, 1)


@pytest.mark.parametrize(
    ("array", "why"),
    [
        (bits(pa.time32("s"), 86_400, 0), "'v' is not a valid time32[s]: "),
        (bits(pa.time64("us"), -1, 0), "'v' is not a valid time64[us]: "),
        (bits(pa.date64(), 12_345, 0), "'v' is not a valid date64[ms]: "),
        (decimals(pa.decimal128(5, 2), 10**9, 1), "'v' is not a valid decimal128(5, 2): "),
        (listed(bits(pa.time32("s"), 86_400, 0)), "'v' is not a valid list<item: time32[s]>: "),
        (pa.array([b"\xff", b"a"]).view(pa.string()), "'v' is not valid UTF-8"),
    ],
)
def test_a_value_that_its_type_does_not_allow_costs_its_own_row(tmp_path: Path, array: pa.Array, why: str) -> None:
    ledger, got = written(tmp_path, array, JsonlWriter)
    assert (ledger.written.n, ledger.quarantined.n, len(got)) == (2, 1, 1)
    told = "".join(p.read_text() for p in (run_dir_path(tmp_path / "out") / "quarantine").glob("*.jsonl"))
    entry = json.loads(told.splitlines()[0])
    assert why in json.dumps(entry, ensure_ascii=False)
    assert "b.arrow" in told


@pytest.mark.parametrize("ids", [CASES["unknown zone"][0], CASES["scale"][0], pa.array([b"\xff", b"\xfe"])])
def test_documents_are_dropped_whatever_their_ids_are(tmp_path: Path, ids: pa.Array) -> None:
    (tmp_path / "in").mkdir()
    table = pa.table({"text": ["two words", "one"], "id": ids})
    with pa.ipc.new_file(str(tmp_path / "in" / "a.arrow"), table.schema) as out:
        out.write_table(table)
    stages = [ScoreFilter(WordCountFilter(min_words=2)), JsonlWriter(str(tmp_path / "out"))]
    pipeline = Pipeline("x", stages=[DocumentReader(str(tmp_path / "in")), *stages])
    pipeline.run(InProcessExecutor(), memory="400MB")
    assert pipeline.last_result is not None
    assert (pipeline.last_result.ledger.written.n, pipeline.last_result.ledger.n_dropped) == (1, 1)
