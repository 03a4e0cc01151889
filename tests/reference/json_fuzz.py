"""Seeded mutations of JSON lines, for differential tests of scanner and twin."""

from __future__ import annotations

import json
import random

SEEDS: list[bytes] = [
    b'{"id": 1, "text": "abc", "meta": {"text": "inner", "list": [1, 2.5, {"id": null}]}}',
    b'{"te\\u0078t":"escaped key","text" : "second", "id":-0.5e+10}',
    '{"text":"caf\u00e9 \u6f22\u5b57 \U0001f600 '
    '\\ud83d\\ude00 \\ud800 \\udc00x \\u00e9\\n\\t\\"\\\\","id":"\u00e9"}'.encode(),
    b'{"text":"' + b"a long run of plain text without any escape in it, " * 5 + b'","id":[[],{},[{"a":[]}]]}',
    b'{"a":true,"b":false,"text":null,"id":NaN,"c":Infinity,"d":-Infinity,"e":12345678901234567890123}',
    b'  {\t"text"\r:\t[ 1 , 2 ]\t, "id" : { "x" : "y" } }  \r',
    b'{"text":1,"text":"two","id":{},"id":[],"":"empty key"}',
    b"{}",
    b"[1,2,3]",
    b'"just a string"',
    b"-0",
    b"3.25e-7",
    b"null",
    b'{"text":"x\\/\\b\\f\\r","id":0}',
    b'{"k":"' + "\u00e9\u6f22".encode() * 40 + b'","id":1,"text":"\\u6f22"}',
]
TOKENS: list[bytes] = [
    *(bytes([c]) for c in b'"\\{}[]:,0-+.eEnutf \t\r\n'),
    *(b"\x00", b"\x1f", b"\x7f", b"\x80", b"\xbf", b"\xc0\x80", b"\xc3\xa9", b"\xe0\x80\x80", b"\xed\xa0\x80"),
    *(b"\xef\xbb\xbf", b"\xf0\x9f\x98\x80", b"\xf4\x90\x80\x80", b"\xf5", b"\xff", b"\\ud800", b"\\u12", b"\\x"),
    *(b"true", b"nul", b"NaN", b"-Infinity", b"Infinit", b'"text":', b'"id":', b'{"text":', b"1e5", b"00", b"1."),
]


def mutate(rng: random.Random, record: bytes) -> bytes:
    """`record` with one to four random changes."""
    data = bytearray(record)
    for _ in range(rng.randint(1, 4)):
        at = rng.randint(0, len(data))
        choice = rng.random()
        if choice < 0.2 and data:
            data[min(at, len(data) - 1)] ^= 1 << rng.randrange(8)
        elif choice < 0.35:
            data[at : at + rng.randint(1, 3)] = b""
        elif choice < 0.45:
            data.insert(at, rng.randrange(256))
        elif choice < 0.8:
            data[at:at] = rng.choice(TOKENS)
        elif choice < 0.9:
            other = rng.choice(SEEDS)
            cut = rng.randint(0, len(other))
            data[at:at] = other[cut : cut + rng.randint(0, 20)]
        else:
            data[at:at] = b" " * rng.randint(1, 70)
    return bytes(data)


def random_value(rng: random.Random, depth: int = 0) -> object:
    choice = rng.random()
    if depth < 3 and choice < 0.2:
        return {random_key(rng): random_value(rng, depth + 1) for _ in range(rng.randint(0, 3))}
    if depth < 3 and choice < 0.35:
        return [random_value(rng, depth + 1) for _ in range(rng.randint(0, 3))]
    if choice < 0.8:
        alphabet = 'abc "\\\n\t\u00e9\u6f22\U0001f600\u0001/'
        return "".join(rng.choice(alphabet) for _ in range(rng.choice((0, 1, 5, 7, 8, 9, 63, 64, 65, 200))))
    return rng.choice([None, True, False, 0, -1, 10**30, 0.5, 1e300, float("nan"), float("-inf")])


def random_key(rng: random.Random) -> str:
    return rng.choice(["text", "id", "tex", "text2", "", "\u00e9", "a" * 70, 'q"uote', "meta"])


def random_record(rng: random.Random) -> bytes:
    record = {random_key(rng): random_value(rng) for _ in range(rng.randint(0, 6))}
    text = json.dumps(record, ensure_ascii=rng.random() < 0.5, separators=rng.choice([(",", ":"), (", ", ": ")]))
    return text.encode()


def mutated_lines(seed: int, n_lines: int) -> bytes:
    """`n_lines` lines: valid, mutated, blank, with and without carriage returns; the last may lack its line feed."""
    rng = random.Random(seed)
    parts: list[bytes] = []
    for _ in range(n_lines):
        record = rng.choice(SEEDS) if rng.random() < 0.5 else random_record(rng)
        if rng.random() < 0.85:
            record = mutate(rng, record)
        parts.append(record + rng.choice((b"\n", b"\n", b"\n", b"\r\n", b"\r\r\n", b"\n \t\n")))
    data = b"".join(parts)
    return data.rstrip(b"\n") if rng.random() < 0.5 else data
