"""scan_records, rescan and discover_keys against json.loads."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tamis.errors import FormatError
from tamis.kernels.records import json_scan
from tamis.kernels.records.json_scan import Scan, discover_keys, rescan, scan_records
from tests.reference import json_fuzz
from tests.reference import json_twin as twin
from tests.support.limits import examples

KEYS = ["text", "id", "", "\u00e9", 'q"uote']
LIMIT = 1 << 26


def view(data: bytes) -> np.ndarray:
    return np.frombuffer(data, np.uint8)


def check(data: bytes, keys: list[str] = KEYS) -> Scan:
    """Scan `data` and compare every field with the twin."""
    found = scan_records(view(data), keys, LIMIT)
    records, n_blank = twin.scan(data)
    assert (found.n_records, found.n_blank) == (len(records), n_blank)
    types, val_start, val_len = rescan(view(data), found, keys)
    assert np.array_equal(types, found.types)
    assert np.array_equal(val_start, found.val_start)
    assert np.array_equal(val_len, found.val_len)
    for i, record in enumerate(records):
        line = data[record.start : record.end]
        assert (found.start[i], found.end[i]) == (record.start, record.end), line
        assert found.status[i] == record.status, line
        assert (found.close[i], found.n_fields[i]) == (record.close, record.n_fields), line
        for k, key in enumerate(keys):
            got = (found.types[i, k], found.val_start[i, k], found.val_len[i, k])
            assert got == record.fields.get(key, (0, 0, 0)), (line, key)
    wanted = list(dict.fromkeys(key for record in records for key in record.fields))
    assert sorted(discover_keys(view(data), found)) == sorted(wanted)
    return found


def status_of(line: bytes) -> int:
    found = check(line)
    assert found.n_records == 1
    return int(found.status[0])


def test_spans_of_a_small_file() -> None:
    data = b'{"id":1,"text":"abc"}\n\n{"text":"a\\nb", "id":2.5}\r\n[1]\n{"id"'
    found = scan_records(view(data), ["text", "id"], LIMIT)
    assert (found.n_records, found.n_blank, found.keys) == (4, 1, ("text", "id"))
    assert found.start.tolist() == [0, 23, 50, 54]
    assert found.end.tolist() == [21, 48, 53, 59]
    assert found.close.tolist() == [20, 47, -1, -1]
    assert found.n_fields.tolist() == [2, 2, 0, 0]
    assert found.status.tolist() == [0, 0, 1, 2]
    assert found.types.tolist() == [[6, 4], [7, 5], [0, 0], [0, 0]]
    assert found.val_start.tolist() == [[16, 6], [32, 44], [0, 0], [0, 0]]
    assert found.val_len.tolist() == [[3, 1], [4, 3], [0, 0], [0, 0]]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (b"null", 1),
        (b"false", 2),
        (b"true", 3),
        (b"-0", 4),
        (b"12345678901234567890", 4),
        (b"1.0", 5),
        (b"1e5", 5),
        (b"1E-5", 5),
        (b"NaN", 5),
        (b"Infinity", 5),
        (b"-Infinity", 5),
        (b'"abc"', 6),
        (b'""', 6),
        (b'"\\n"', 7),
        (b"{}", 8),
        (b'{"text":1}', 8),
        (b"[]", 9),
        (b'["text"]', 9),
    ],
)
def test_type_codes(value: bytes, kind: int) -> None:
    found = check(b'{"text":' + value + b"}\n")
    assert found.status.tolist() == [0]
    assert found.types[0, 0] == kind


@pytest.mark.parametrize(
    ("line", "status"),
    [
        (b"{}", 0),
        (b" {} ", 0),
        (b'{"a":1}', 0),
        (b'{"a":"\\ud800"}', 0),
        (b'{"a":"\x7f"}', 0),
        (b'{"\\u0000":1}', 0),
        (b"1", 1),
        (b'"a"', 1),
        (b"[]", 1),
        (b"NaN", 1),
        (b"-Infinity", 1),
        (b"[[[]]]", 1),
        (b"0", 1),
        (b"0e0", 1),
        (b"", None),
        (b" \t\r", None),
        (b"\x0c", 2),
        (b"\x00", 2),
        (b"{", 2),
        (b"}", 2),
        (b'{"a"}', 2),
        (b'{"a":}', 2),
        (b'{"a":1,}', 2),
        (b"{,}", 2),
        (b"[1,]", 2),
        (b"[,1]", 2),
        (b"[1 2]", 2),
        (b'{"a":1 "b":2}', 2),
        (b"{} {}", 2),
        (b"{}x", 2),
        (b"01", 2),
        (b"-", 2),
        (b"+1", 2),
        (b"1.", 2),
        (b".5", 2),
        (b"1e", 2),
        (b"1e+", 2),
        (b"-01", 2),
        (b"0x1", 2),
        (b"tru", 2),
        (b"trueX", 2),
        (b"nan", 2),
        (b"-NaN", 2),
        (b"Infinit", 2),
        (b"-Infinit", 2),
        (b'"', 2),
        (b'"\\"', 2),
        (b'"\\', 2),
        (b'"\\x"', 2),
        (b'"\\u12"', 2),
        (b'"\\u12g4"', 2),
        (b'"\t"', 2),
        (b'"\x1f"', 2),
        (b"'a'", 2),
        (b"{a:1}", 2),
        (b"{1:1}", 2),
        (b"[}", 2),
        (b"{]", 2),
        (b"[{]}", 2),
        (b"/", 2),
        (b"\xef\xbb\xbf{}", 2),
        (b'"\xff"', 3),
        (b"{}\xff", 3),
        (b'"\xc0\xaf"', 3),
        (b'"\xed\xa0\x80"', 3),
        (b'"\xf4\x90\x80\x80"', 3),
        (b'"\xe2\x82"', 3),
        (b'{"a":1\xe2', 3),
        (b'"\xf0\x8f\xbf\xbf"', 3),
        (b"\x80", 3),
    ],
)
def test_status_of_single_lines(line: bytes, status: int | None) -> None:
    found = check(line)
    assert found.status.tolist() == ([] if status is None else [status])
    assert check(b'{"id":1}\n' + line + b'\n{"id":2}').status.tolist() == [0, *found.status.tolist(), 0]


def test_keys_are_compared_after_unescaping() -> None:
    found = check(b'{"te\\u0078t":"abc","\\u0065\\u0301":1,"\\u00e9":2}')
    assert found.types[0].tolist() == [6, 0, 0, 4, 0]


def test_last_duplicate_wins_and_every_member_counts() -> None:
    found = check(b'{"text":"first","text":2,"te\\u0078t":[3]}')
    assert (found.types[0, 0], found.n_fields[0]) == (9, 3)


def test_nested_keys_are_not_depth_one() -> None:
    found = check(b'{"meta":{"text":"no","id":[{"text":1}]},"list":["text",{"id":1}]}')
    assert found.types[0].tolist() == [0, 0, 0, 0, 0]


def test_lone_surrogates_in_keys_read_as_replacement_character() -> None:
    data = b'{"\\ud800":1}'
    found = scan_records(view(data), ["\ufffd"], LIMIT)
    assert found.types.tolist() == [[4]]
    assert scan_records(view(data), ["\ud800"], LIMIT).types.tolist() == [[4]]
    assert discover_keys(view(data), found) == ["\ufffd"]


@pytest.mark.parametrize(("n_levels", "status"), [(999, 0), (1000, 0), (1001, 4)])
def test_depth_limit(n_levels: int, status: int) -> None:
    arrays = b'{"text":' + b"[" * (n_levels - 1) + b"]" * (n_levels - 1) + b"}"
    objects = b'{"text":' * n_levels + b"1" + b"}" * n_levels
    top = b"[" * n_levels + b"]" * n_levels
    found = scan_records(view(arrays + b"\n" + objects + b"\n" + top), ["text"], LIMIT)
    assert found.status.tolist() == [status, status, status or 1]
    mixed = b'{"text":' + b'[{"a":' * ((n_levels - 1) // 2) + b"[]" + b"}]" * ((n_levels - 1) // 2) + b"}"
    assert scan_records(view(mixed), ["text"], LIMIT).status.tolist() == [0 if n_levels < 1001 else 4]


def test_too_deep_is_found_before_a_later_error() -> None:
    assert scan_records(view(b"[" * 5000), [], LIMIT).status.tolist() == [4]
    assert scan_records(view(b"[" * 1000), [], LIMIT).status.tolist() == [2]


def test_too_large_is_not_parsed() -> None:
    data = b'{"id":12}\n{"id":"\xff\xff\xff"}\n\n{"id":123}\r\n' + b" " * 30
    found = scan_records(view(data), ["id"], 10)
    assert found.status.tolist() == [0, 5, 0]
    assert found.n_blank == 2


def test_integers_of_any_length_are_valid() -> None:
    found = scan_records(view(b'{"id":' + b"9" * 10_000 + b"}"), ["id"], LIMIT)
    assert (found.status[0], found.types[0, 0], found.val_len[0, 0]) == (0, 4, 10_000)


def test_empty_buffers_and_no_keys() -> None:
    for data in (b"", b"\n", b"\n\n\n", b"\r\n", b" "):
        found = check(data)
        assert found.n_records == 0
    found = scan_records(view(b'{"a":1}\n'), [], LIMIT)
    assert found.types.shape == (1, 0)


def test_line_ends() -> None:
    found = check(b'{"id":1}\r\n{"id":2}\r\r\n\r\n{"id":3}\n\r\n \r\n{"id":4}\r')
    assert (found.n_records, found.n_blank) == (4, 3)
    assert found.end.tolist() == [8, 19, 31, 45]


@pytest.mark.parametrize(
    "special",
    [
        b'"',
        b"\\",
        b"\\n",
        b'\\"',
        b"\\\\",
        b"\\u00e9",
        b"\\ud83d\\ude00",
        b"\x1f",
        b"\n",
        b"\r",
        "\u00e9".encode(),
        "\u6f22".encode(),
        "\U0001f600".encode(),
        b"\x80",
        b"\xc3",
        b"\xe6\xbc",
        b"\xf0\x9f\x98",
        b"\xed\xa0\x80",
        b"\xff",
    ],
)
def test_every_special_byte_at_every_position_of_a_block(special: bytes) -> None:
    lines = []
    for n_before in range(70):
        lines.append(b'{"text":"' + b"x" * n_before + special + b'"}\n')
        lines.append(b'{"text":"' + b"x" * n_before + special + b"y" * 66 + b'","id":1}\n')
    data = b"".join(lines)
    check(data)
    for n_before in range(0, 70, 3):  # the special byte near the end of the buffer
        check(b'{"text":"' + b"x" * n_before + special)
        check(b'{"text":"' + b"x" * n_before + special + b'"}')


def test_white_space_everywhere() -> None:
    spaces = b" \t\r" * 30
    parts = [b"{", b'"text"', b":", b"[", b"1", b",", b"{", b"}", b"]", b",", b'"id"', b":", b"null", b"}"]
    found = check(spaces + spaces.join(parts) + spaces + b"\n")
    assert (found.status[0], found.types[0, 0], found.types[0, 1]) == (0, 9, 1)


def test_read_only_and_writable_buffers_give_the_same() -> None:
    data = b'{"id":1,"text":"abc"}\n' * 10
    writable = np.frombuffer(bytearray(data), np.uint8)
    assert np.array_equal(scan_records(writable, ["text"], LIMIT).val_start, check(data, ["text"]).val_start)


def test_wrong_buffers_and_keys_are_refused() -> None:
    with pytest.raises(ValueError, match="expected a contiguous 1-d uint8 array"):
        scan_records(np.zeros(200, np.int8), [], LIMIT)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="expected a contiguous 1-d uint8 array"):
        scan_records(np.zeros(200, np.uint8)[::2], [], LIMIT)
    with pytest.raises(ValueError, match="keys must differ"):
        scan_records(view(b"{}"), ["a", "a"], LIMIT)


def test_discover_keys_keeps_the_order_and_refuses_too_many() -> None:
    data = b'{"b":1,"a":{"x":1}}\nbad\n{"a":1,"c":[{"y":2}]}\n[1]\n{"\\u0062":1,"d":""}\n'
    found = scan_records(view(data), [], LIMIT)
    assert discover_keys(view(data), found) == ["b", "a", "c", "d"]
    assert discover_keys(view(data), found, limit=5) == ["b", "a", "c", "d"]
    with pytest.raises(FormatError, match="at most 3 different field names"):
        discover_keys(view(data), found, limit=3)


def test_another_buffer_is_refused_or_harmless() -> None:
    data = b'{"text":"abc","id":[1,{"a":"b"}]}\n' * 50
    found = scan_records(view(data), ["text"], LIMIT)
    with pytest.raises(ValueError, match="expected the buffer that was scanned"):
        rescan(view(data[:100]), found, ["id"])
    for byte in b'"\\[{1 ':  # no crash, no endless loop
        other = view(bytes([byte]) * len(data))
        assert rescan(other, found, ["id"])[0].shape == (50, 1)


def test_many_distinct_keys() -> None:
    names = [f"key{i}" for i in range(3000)]
    data = b"".join(b'{"%s":%d}\n' % (name.encode(), i) for i, name in enumerate(names)) * 2
    assert discover_keys(view(data), scan_records(view(data), [], LIMIT)) == names


def test_mutated_lines() -> None:
    for seed in range(12):
        check(json_fuzz.mutated_lines(seed, 1200))


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_million_mutated_lines() -> None:
    for seed in range(1000, 1500):
        check(json_fuzz.mutated_lines(seed, 2000))


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(st.binary(max_size=90), max_size=6).map(b"\n".join))
def test_any_bytes(data: bytes) -> None:
    check(data)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=examples(200), deadline=None)
@given(
    st.lists(st.dictionaries(st.sampled_from(["text", "id", "a", "\u00e9", ""]), _JSON, max_size=4), max_size=4),
    st.booleans(),
    st.sampled_from([None, 0]),
)
def test_any_json_is_accepted(records: list[dict[str, object]], ascii_only: bool, indent: int | None) -> None:
    lines = []
    for record in records:
        text = json.dumps(record, ensure_ascii=ascii_only, indent=indent).replace("\n", "\t")
        lines.append(text.encode("utf-8", "surrogatepass"))
    found = check(b"\n".join(lines))
    if ascii_only:
        assert found.status.tolist() == [0] * len(records)


@pytest.mark.corpus
def test_corpus_against_json() -> None:
    import zstandard

    shared = Path(os.environ.get("TAMIS_SHARED", Path(__file__).resolve().parents[3] / "shared"))
    part = shared / "corpus" / "part-003.jsonl.zst"
    if not part.is_file():
        pytest.skip(f"no corpus at {part.parent}; set TAMIS_SHARED")
    with part.open("rb") as file:
        data = zstandard.ZstdDecompressor().stream_reader(file).read(4_000_000)
    found = scan_records(view(data), ["text"], LIMIT)
    lines = data.split(b"\n")
    assert found.n_records == len(lines)
    assert found.status[:-1].tolist() == [json_scan.OK] * (len(lines) - 1)
    for i, line in enumerate(lines[:-1]):
        begin = int(found.val_start[i, 0])
        raw = data[begin : begin + int(found.val_len[i, 0])]
        assert twin.text_of(int(found.types[i, 0]), raw) == json.loads(line)["text"]
