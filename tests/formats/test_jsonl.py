"""JsonlBlock.column against json.loads of every record."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tamis.errors import FormatError
from tamis.formats.jsonl.block import JsonlBlock
from tamis.tasks.columns.canonical import EXACT_INT, canonical_text
from tamis.tasks.columns.exact import stored, values_of
from tamis.tasks.columns.json_type import Digits
from tests.support.limits import examples

MISSING = object()
JSON = "extension<tamis.json<JsonType>>"
SHARED = Path(os.environ.get("TAMIS_SHARED", Path(__file__).resolve().parents[3] / "shared"))


def block(*records: str | bytes, keys: tuple[str, ...] = ()) -> JsonlBlock:
    raw = b"".join((r.encode() if isinstance(r, str) else r) + b"\n" for r in records)
    return JsonlBlock.parse(np.frombuffer(raw, np.uint8), keys)


def whole(value: Any) -> Any:
    """Lone surrogates replaced, as decoded text has them."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [whole(v) for v in value]
    return {whole(k): whole(v) for k, v in value.items()} if isinstance(value, dict) else value


def kind_of(value: Any) -> str:
    return {bool: "bool", int: "int", float: "float", str: "text", list: "list", dict: "object"}[type(value)]


def expected_flat(values: list[Any]) -> tuple[str, list[Any]]:
    """(Arrow type, values) of a column without nested values, by the rules as documented."""
    kinds = {kind_of(v) for v in values if v is not None}
    ints = [v for v in values if v is not None and kind_of(v) == "int"]
    if not kinds:
        return "null", values
    if kinds == {"text"}:
        return "large_string", values
    if kinds == {"bool"}:
        return "bool", values
    if kinds == {"int"} and all(-(2**63) <= v < 2**63 for v in ints):
        return "int64", values
    if kinds == {"int"} and all(0 <= v < 2**64 for v in ints):
        return "uint64", values
    if kinds <= {"int", "float"} and "float" in kinds and all(abs(v) <= EXACT_INT for v in ints):
        return "double", [None if v is None else float(v) for v in values]
    return "extension<tamis.json<JsonType>>", values


def same(a: list[Any], b: list[Any]) -> bool:
    return json.dumps(a) == json.dumps(b)  # tells 1 from 1.0 and 0.0 from -0.0, and NaN equals itself


big = st.sampled_from([0, -1, 2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), 10**30])
texts = st.text(st.characters(), max_size=12)  # with surrogates: json.dumps writes them as escapes
scalars = {
    "text": texts,
    "int": st.one_of(st.integers(), big),
    "float": st.floats(),
    "bool": st.booleans(),
}


@st.composite
def columns(draw: st.DrawFn) -> list[Any]:
    kinds = draw(st.lists(st.sampled_from(sorted(scalars)), min_size=1, max_size=2, unique=True))
    values = st.one_of(*(scalars[k] for k in kinds), st.none(), st.just(MISSING))
    return draw(st.lists(values, min_size=1, max_size=12))


@settings(max_examples=examples(400), deadline=None)
@given(columns(), st.booleans())
@example([MISSING, None], False)
@example([-0.0, 0, 1], True)
@example([2**53 + 1, 0.5], True)
@example([-1, 2**63], True)
def test_a_flat_column_is_json_loads_of_every_record(values: list[Any], ascii_only: bool) -> None:
    lines = []
    for value in values:
        record = {"a": [1, {"x": 2}], "x": value, "z": "x"}
        if value is MISSING:
            del record["x"]
        try:
            lines.append(json.dumps(record, ensure_ascii=ascii_only).encode())
        except UnicodeEncodeError:
            lines.append(json.dumps(record).encode())
    found = block(*lines)
    loaded = [whole(json.loads(line).get("x")) for line in lines]
    kind, wanted = expected_flat(loaded)
    array = found.column("x")
    assert found.bad == []
    assert str(array.type) == kind
    assert same(array.to_pylist(), wanted)
    assert block(*lines, keys=("x",)).column("x").equals(array) or any(v != v for v in wanted)


nested = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), big, st.floats(allow_nan=False), texts),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(["a", "b", "é"]), inner, max_size=3)
    ),
    max_leaves=8,
)


def without_nulls(value: Any) -> Any:
    """Drop members that are null: a struct cannot distinguish them from missing ones."""
    if isinstance(value, list):
        return [without_nulls(v) for v in value]
    if isinstance(value, dict):
        return {k: without_nulls(v) for k, v in sorted(value.items()) if v is not None}
    return value


@settings(max_examples=examples(400), deadline=None)
@given(st.lists(nested, min_size=1, max_size=5))
@example([{"a": 1}, {"a": "x"}])
@example([[1], [0.5], [2**60]])
@example([[2**63]])
@example([{}, None])
@example([[True], [1]])
@example([1.5, True])
def test_a_nested_column_holds_the_values_and_is_stored_as_they_or_their_canonical_text(values: list[Any]) -> None:
    lines = [json.dumps({"x": v}) for v in values]
    loaded = [whole(v) for v in values]
    found = block(*lines)
    assert without_nulls(found.column("x").to_pylist()) == without_nulls(loaded)
    rows = np.array([*range(len(values)), -1])
    assert same(values_of(found.exact("x", rows)), [*loaded, None])
    array = stored(found.column("x"))
    assert stored(found.exact("x", rows[:-1])).equals(array)
    if pa.types.is_large_string(array.type) and not all(v is None or isinstance(v, str) for v in loaded):
        assert array.to_pylist() == [None if v is None else canonical_text(v) for v in loaded]


@pytest.mark.parametrize(
    ("records", "kind", "values"),
    [
        (['{"x":"a\\u00e9\\n"}', "{}", '{"x":null}'], "large_string", ["aé\n", None, None]),
        (['{"x":1}', '{"x":-0}'], "int64", [1, 0]),
        (['{"x":18446744073709551615}', '{"x":-0}'], "uint64", [2**64 - 1, 0]),
        (['{"x":18446744073709551616}', '{"x":-0}'], JSON, [2**64, 0]),
        (['{"x":1}', '{"x":2.5}'], "double", [1.0, 2.5]),
        (['{"x":9007199254740993}', '{"x":2.0}', '{"x":-0}'], JSON, [9007199254740993, 2.0, 0]),
        (['{"x":1}', '{"x":"a"}', '{"x":true}', '{"x":[1]}'], JSON, [1, "a", True, [1]]),
        (['{"x":1,"x":"last"}'], "large_string", ["last"]),
        (['{"\\u0078":5}'], "int64", [5]),
        (['{"x":"\\ud800"}', '{"x":"\\ud83d\\ude00"}'], "large_string", ["\ufffd", "😀"]),
        (
            ['{"x":{"b":1}}', '{"x":{"a":"\\udc00"}}'],
            "struct<a: large_string, b: int64>",
            [{"a": None, "b": 1}, {"a": "\ufffd", "b": None}],
        ),
        (['{"x":[[1],[]]}', '{"x":null}'], "list<item: list<item: int64>>", [[[1], []], None]),
        (['{"x":[1,"a"]}', '{"x":[]}'], JSON, [[1, "a"], []]),
    ],
)
def test_types_follow_the_values(records: list[str], kind: str, values: list[Any]) -> None:
    array = block(*records).column("x")
    assert str(array.type) == kind
    assert same(array.to_pylist(), values)


def test_spellings_of_floats_that_only_json_loads_knows() -> None:
    spellings = [
        "NaN",
        "Infinity",
        "-Infinity",
        "1e400",
        "-1e400",
        "1e-400",
        "5e-324",
        "2.5e-324",
        "1E5",
        "0.1",
        "-0.0",
        "1e0",
    ]
    got = block(*(f'{{"x":{s}}}' for s in spellings)).column("x").to_pylist()
    assert same(got, [json.loads(s) for s in spellings])


@settings(max_examples=examples(200), deadline=None)
@given(
    st.lists(
        st.from_regex(r"-?(0|[1-9][0-9]{0,40})\.[0-9]{1,40}([eE][+-]?[0-9]{1,3})?", fullmatch=True),
        min_size=1,
        max_size=30,
    )
)
def test_long_decimals_round_as_in_python(spellings: list[str]) -> None:
    got = block(*(f'{{"x":{s}}}' for s in spellings)).column("x").to_pylist()
    assert [math.copysign(1, g) for g in got] == [math.copysign(1, float(s)) for s in spellings]
    assert got == [float(s) for s in spellings]


def test_integers_with_more_digits_than_python_converts() -> None:
    digits = "7" * 5000
    for other, value, text in (("1", 1, "1"), ("1.5", 1.5, "1.5"), ('"a"', "a", "a")):
        column = block(f'{{"x":{digits}}}', f'{{"x":{other}}}').column("x")
        assert column.to_pylist() == [Digits(digits), value]
        assert stored(column).to_pylist() == [digits, text]
    assert stored(block(f'{{"x":[{digits}]}}').column("x")).to_pylist() == [f'["{digits}"]']


def test_values_nested_as_deep_as_the_scanner_lets_pass_are_text() -> None:
    deep = "[" * 998 + "1" + "]" * 998
    found = block(f'{{"x":{deep}}}', '{"x":[2]}')
    assert found.n_rows == 2
    assert stored(found.column("x")).to_pylist() == [deep, "[2]"]
    assert found.column("x")[1].as_py() == [2]


def test_an_object_used_as_a_dictionary_is_text() -> None:
    found = block(*(json.dumps({"x": {f"user{i}": i}}) for i in range(1500)))
    assert found.column("x").to_pylist()[1499] == {"user1499": 1499}
    assert stored(found.column("x")).to_pylist()[1499] == '{"user1499":1499}'


def test_bad_records_are_named_and_the_others_stay() -> None:
    found = block('{"x":1}', "[1]", '{"x":', b'{"x":"\xff"}', "", "  ", '{"x":2}')
    assert found.n_rows == 2
    assert found.n_blank == 2
    assert [(found.buf[s:e].tobytes(), why) for s, e, why in found.bad] == [
        (b"[1]", "valid JSON, but not an object"),
        (b'{"x":', "not valid JSON"),
        (b'{"x":"\xff"}', "not valid UTF-8"),
    ]
    assert found.column("x").to_pylist() == [1, 2]
    assert found.field_names() == ["x"]


def test_a_record_above_the_limit_is_bad() -> None:
    raw = np.frombuffer(b'{"x":1}\n{"x":12345}\n', np.uint8)
    found = JsonlBlock.parse(raw, (), 10)
    assert (found.n_rows, found.bad) == (1, [(8, 19, "larger than max_record")])


def test_literals_keep_quotes_and_name_missing_ones() -> None:
    found = block('{"x":"a\\n"}', '{"x": 1.50 }', "{}", '{"x":null}')
    _, start, length = found.literals(["x"])
    spans = [found.buf[s : s + n].tobytes() if n >= 0 else None for s, n in zip(start[:, 0], length[:, 0], strict=True)]
    assert spans == [b'"a\\n"', b"1.50", None, b"null"]


def test_checked_records_are_the_same_and_their_fields_are_found_on_request() -> None:
    data = np.frombuffer(b'{"id":1,"text":"a"}\n\n {"id":2,"text":"b\\n"}\r\n{"id":3}', np.uint8)
    parsed, checked = JsonlBlock.parse(data), JsonlBlock.parse_valid(data)
    assert not checked.is_parsed
    assert (checked.n_rows, checked.n_blank, checked.bad) == (3, 1, [])
    assert [h.tolist() for h in checked.identity()] == [h.tolist() for h in parsed.identity()]
    assert checked.column_of("id", np.array([2, 0])).to_pylist() == [3, 1]
    assert not checked.is_parsed
    assert checked.column("text").to_pylist() == ["a", "b\n", None]
    assert checked.is_parsed
    assert (checked.field_names(), checked.close.tolist()) == (["id", "text"], parsed.close.tolist())


def test_records_that_are_not_valid_after_all_are_noticed() -> None:
    plain = JsonlBlock.parse_valid(np.frombuffer(b'{"a":1}\n[2]\n', np.uint8))
    assert (plain.n_rows, len(plain.bad)) == (1, 1)
    large = JsonlBlock.parse_valid(np.frombuffer(b'{"a":1}\n{"a":12345}\n', np.uint8), 8)
    assert (large.n_rows, large.bad) == (1, [(8, 19, "larger than max_record")])
    broken = JsonlBlock.parse_valid(np.frombuffer(b'{"a":1}\n{"a" 2}\n', np.uint8))
    assert broken.n_rows == 2
    with pytest.raises(FormatError, match="the input changed"):
        broken.column("a")


def test_identity_is_that_of_the_bytes() -> None:
    found = block('{"x":1}', '{"x": 1}', '{"x":1}')
    hi, lo = found.identity()
    assert (hi[0], lo[0]) == (hi[2], lo[2])
    assert (hi[0], lo[0]) != (hi[1], lo[1])


@pytest.mark.corpus
def test_real_documents_equal_json_loads() -> None:
    path = SHARED / "corpus" / "part-000.jsonl.zst"
    if not path.exists():
        pytest.skip(f"no corpus at {path}")
    zstandard = pytest.importorskip("zstandard")
    with open(path, "rb") as raw, zstandard.ZstdDecompressor().stream_reader(raw) as stream:
        data = stream.read(8 << 20)
    data = data[: data.rfind(b"\n") + 1]
    found = JsonlBlock.parse(np.frombuffer(data, np.uint8))
    records = [json.loads(line) for line in data.splitlines()]
    assert found.n_rows == len(records)
    for name in found.field_names():
        assert found.column(name).to_pylist() == [r.get(name) for r in records]
