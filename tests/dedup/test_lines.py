"""Line and paragraph deduplication against a slow reference: splitting, keys, cutting, and all passes end to end."""

from __future__ import annotations

import gzip
import json
import os
import random
import signal
import subprocess
import sys
import time
import unicodedata
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tamis
from tamis.backends.local import InProcessExecutor, LocalExecutor
from tamis.dedup.lines import solver as solver
from tamis.dedup.lines import units as units_module
from tamis.dedup.lines.keys import UnitKeys
from tamis.dedup.lines.stages import MODES
from tamis.dedup.lines.table import cut_out, cuts_of
from tamis.dedup.lines.units import split_units
from tamis.dedup.solver import SolverRun
from tamis.dedup.solver_task import CutLines, SolverTask
from tamis.errors import Incomplete, RunConflict, UsageError
from tamis.kernels.buffers import string_buffers
from tamis.kernels.records.hash128 import hash_arrow_strings
from tamis.stages.deduplication.lines.workflow import LineDeduplicationWorkflow
from tests.support.limits import examples
from tests.support.run_dirs import run_dir_path

# -- the reference ----------------------------------------------------------------------------------------------------


def split(text: str, unit: str) -> list[tuple[int, list[str]]]:
    """Return (number of the unit, line) groups: units, each with all its lines and the blank ones after it."""
    lines = text.split("\n")
    if unit == "line":
        return [(i, [line]) for i, line in enumerate(lines)]
    found: list[tuple[int, list[str]]] = []
    number, blank_before = -1, True
    for line in lines:
        blank = line.strip() == ""
        if not blank and blank_before:
            number += 1
            found.append((number, []))
        elif not found:
            found.append((-1, []))
        found[-1][1].append(line)
        blank_before = blank
    return found


def content(group: list[str], unit: str) -> str:
    if unit == "paragraph":
        group = [line for line in group if line.strip()]
    return "\n".join(group)


def cut(text: str, gone: set[int], unit: str) -> str:
    groups = split(text, unit)
    kept = [line for number, lines in groups for line in lines if number not in gone]
    if unit == "paragraph" and groups[-1][0] in gone:
        while kept and not kept[-1].strip():
            kept.pop()
    return "\n".join(kept)


def normalize(text: str, mode: str) -> str:
    folded = unicodedata.normalize("NFKC", text).casefold()
    plain = unicodedata.normalize("NFKD", text).casefold()
    return {
        "none": text,
        "strip": text.strip(),
        "nfc": unicodedata.normalize("NFC", text),
        "casefold": " ".join(folded.split()),
        "alphanumeric": "".join(c for c in folded if c.isalnum()),
        "ccnet": "".join("0" if c.isdecimal() else c for c in plain if c.isalnum()),
    }[mode]


def expected(
    docs: list[dict[str, Any]],
    unit: str = "line",
    normalize_text: str = "casefold",
    min_chars: int = 20,
    min_count: int = 2,
    keep_first: bool = True,
    min_left_chars: int = 1,
) -> list[dict[str, Any]]:
    """Return what is left of the documents, in order."""
    places: dict[str, list[tuple[int, int]]] = {}
    for d, doc in enumerate(docs):
        if isinstance(doc.get("text"), str):
            for number, group in split(doc["text"], unit):
                key = normalize(content(group, unit), normalize_text)
                if len(key) >= min_chars:
                    places.setdefault(key, []).append((d, number))
    gone: dict[int, set[int]] = {}
    for found in places.values():
        for d, number in found[1 if keep_first else 0 :] if len(found) >= min_count else []:
            gone.setdefault(d, set()).add(number)
    left = []
    for d, doc in enumerate(docs):
        if d not in gone:
            left.append(doc)
            continue
        text = cut(doc["text"], gone[d], unit)
        if len(text.strip()) >= min_left_chars:
            left.append({**doc, "text": text})
    return left


# -- splitting, keys, cutting -----------------------------------------------------------------------------------------

PIECES = [
    "\n",
    "\n\n",
    "\n \n",
    "\r\n",
    " ",
    "\t",
    "a",
    "Some words",
    "7",
    "\u00a0",
    "\u3000",
    "\u2028",
    "é",
    "漢字",
    "𝄞",
    "ﬁ",
]
texts_strategy = st.lists(st.lists(st.sampled_from(PIECES), max_size=12).map("".join), max_size=8)
windows_strategy = st.sampled_from([1, 5, 17, 1 << 19])


@given(texts_strategy, st.sampled_from(["line", "paragraph"]), windows_strategy)
@settings(max_examples=examples(300), deadline=None)
def test_units_are_those_of_the_reference(texts: list[str], unit: str, window: int) -> None:
    parts = string_buffers(pa.array(["skipped", *texts], pa.large_string())[1:])
    found: list[tuple[int, int, str, str, bool]] = []
    with mock.patch.object(units_module, "WINDOW_BYTES", window):
        for u in split_units(parts, unit):
            for row, number, start, end, stop, last in zip(
                *(x.tolist() for x in (u.row, u.number, u.start, u.end, u.stop, u.last)), strict=True
            ):
                inner, whole = parts.data[start:end].tobytes().decode(), parts.data[start:stop].tobytes().decode()
                found.append((row, number, inner, whole, last))
    wanted = []
    for row, text in enumerate(texts):
        groups = split(text, unit)
        for k, (number, group) in enumerate(groups):
            last = k == len(groups) - 1
            inner = "" if number < 0 else content(group, unit)
            wanted.append((row, number, inner, "\n".join(group) + ("" if last else "\n"), last))
    assert found == wanted


@given(
    st.lists(st.text(st.sampled_from("aZ 9_-\t\x1c\x85\u00a0é\u0301ßﷺ漢İ½\x00"), max_size=14), min_size=1, max_size=10),
    st.sampled_from(sorted(MODES)),
    st.integers(1, 6),
)
@settings(max_examples=examples(400), deadline=None)
def test_keys_are_hashes_of_normalised_units(texts: list[str], mode: str, min_chars: int) -> None:
    parts = string_buffers(pa.array(["\n".join(texts)], pa.large_string()))
    (units,) = split_units(parts, "line")
    which, keys = UnitKeys(mode, min_chars).of(parts.data, units)
    wanted = [(i, n) for i, t in enumerate(texts) if len(n := normalize(t, mode)) >= min_chars]
    assert which.tolist() == [i for i, _ in wanted]
    same = string_buffers(pa.array([n for _, n in wanted], pa.large_string()))
    assert keys.tolist() == hash_arrow_strings(same.offsets, same.data, None)[0].tolist()


@given(st.lists(st.text(max_size=8), min_size=1, max_size=6), st.sampled_from(["casefold", "ccnet"]))
@settings(max_examples=examples(200), deadline=None)
def test_keys_of_any_characters(texts: list[str], mode: str) -> None:
    texts = [t.replace("\n", " ") for t in texts]
    assert keys_of(texts, mode) == reference_keys([normalize(t, mode) for t in texts])


def test_every_character_of_the_first_plane_between_others() -> None:
    """The table for what is normalised together agrees with Python, also where characters meet."""
    codes = [c for c in range(0x80, 0x10000) if not 0xD800 <= c < 0xE000]
    texts = [f"A{chr(c)}b{chr(c)}{chr(c)} é{chr(c)}\u1100{chr(c)}" for c in codes]
    texts += [f"A{chr(c)}b{chr(c)}{chr(c)}  É {chr(c)}" for c in codes]
    assert keys_of(texts, "casefold") == reference_keys([normalize(t, "casefold") for t in texts])


def keys_of(texts: list[str], mode: str) -> list[int]:
    """Of all texts that are not empty after normalisation."""
    parts = string_buffers(pa.array(["\n".join(texts)], pa.large_string()))
    keys = UnitKeys(mode, 1)
    return [int(k) for units in split_units(parts, "line") for k in keys.of(parts.data, units)[1]]


def reference_keys(normal: list[str]) -> list[int]:
    same = string_buffers(pa.array([n for n in normal if n], pa.large_string()))
    return [int(k) for k in hash_arrow_strings(same.offsets, same.data, None)[0]]


def test_whitespace_of_any_length_is_stripped() -> None:
    texts = [" " * n + "word" + "\t" * n for n in (0, 1, 63, 64, 65, 200)]
    parts = string_buffers(pa.array(["\n".join(texts)], pa.large_string()))
    (units,) = split_units(parts, "line")
    which, keys = UnitKeys("strip", 4).of(parts.data, units)
    assert which.tolist() == [0, 1, 2, 3, 4, 5]
    assert len(set(keys.tolist())) == 1


@given(texts_strategy, st.sampled_from(["line", "paragraph"]), windows_strategy, st.randoms(use_true_random=False))
@settings(max_examples=examples(300), deadline=None)
def test_cutting_is_that_of_the_reference(texts: list[str], unit: str, window: int, rng: random.Random) -> None:
    gone = [{n for n, _ in split(t, unit) if n >= 0 and rng.random() < 0.5} for t in texts]
    with mock.patch.object(units_module, "WINDOW_BYTES", window):
        after, n_units = cut_out(
            pa.array(texts, pa.large_string()), [np.array(sorted(g), np.int64) for g in gone], unit
        )
    assert after.to_pylist() == [cut(t, g, unit) for t, g in zip(texts, gone, strict=True)]
    assert n_units.tolist() == [split(t, unit)[-1][0] + 1 for t in texts]


def test_a_paragraph_includes_the_blank_lines_after_it() -> None:
    (after,), _ = cut_out(pa.array(["\n\none\ntwo\n\n\nthree\n\nfour\n"]), [np.array([1])], "paragraph")
    assert after.as_py() == "\n\none\ntwo\n\n\nfour\n"
    (after,), _ = cut_out(pa.array(["\n\none\ntwo\n\n\nthree\n\nfour\n"]), [np.array([1, 2])], "paragraph")
    assert after.as_py() == "\n\none\ntwo"


# -- the decision -----------------------------------------------------------------------------------------------------


def write_records(path: Path, keys: list[list[list[int]]], n_files: int) -> None:
    """Write a record file: batches of documents of keys; unit numbers count by two."""
    with pa.OSFile(str(path), "wb") as out:
        writer = None
        for b, batch in enumerate(keys):
            table = pa.table(
                {
                    "file": pa.array([b * n_files // len(keys)] * len(batch), pa.int32()),
                    "offset": pa.array([b * 1000 + i for i in range(len(batch))], pa.int64()),
                    "length": pa.array([100] * len(batch), pa.int64()),
                    "n_units": pa.array([2 * len(d) for d in batch], pa.uint32()),
                    "keys": pa.array([np.array(d, np.uint64).tobytes() for d in batch], pa.large_binary()),
                    "numbers": pa.array(
                        [np.arange(0, 2 * len(d), 2, np.uint32).tobytes() for d in batch], pa.large_binary()
                    ),
                }
            )
            writer = writer or pa.ipc.new_file(out, table.schema)
            writer.write_table(table)
        assert writer is not None
        writer.close()


@pytest.mark.parametrize("room_bytes", [10**9, 80 * 3000, 80 * 100])
@pytest.mark.parametrize(("min_count", "keep_first"), [(2, True), (3, True), (2, False), (5, False)])
def test_decisions_are_the_same_whatever_fits_in_memory(
    tmp_path: Path, room_bytes: int, min_count: int, keep_first: bool
) -> None:
    """Keys of which one is everywhere, so that its part of the key space does not fit at all."""
    rng = random.Random(5)
    known = [rng.getrandbits(64) for _ in range(800)]
    heavy = known[0]

    def key() -> int:
        return heavy if rng.random() < 0.4 else rng.choice(known) if rng.random() < 0.5 else rng.getrandbits(64)

    batches = [[[key() for _ in range(rng.randint(0, 9))] for _ in range(rng.randint(1, 40))] for _ in range(40)]
    write_records(tmp_path / "r.arrow", batches, 3)
    (tmp_path / "paths.json").write_text(json.dumps(["a", "b", "c"]))
    task = SolverTask([], [str(tmp_path / "r.arrow")], str(tmp_path / "most"), room_bytes)
    told = solver.cut_lines(CutLines(min_count, keep_first), SolverRun(str(tmp_path), task))
    places: dict[int, list[tuple[int, int, int]]] = {}
    for b, batch in enumerate(batches):
        for i, d in enumerate(batch):
            for n, k in enumerate(d):
                places.setdefault(k, []).append((b * 3 // 40, b * 1000 + i, 2 * n))
    often = {k: p for k, p in places.items() if len(p) >= min_count}
    wanted = sorted(x for p in often.values() for x in p[1 if keep_first else 0 :])
    files = np.array([b * 3 // 40 for b, batch in enumerate(batches) for _ in batch])
    offsets = np.array([b * 1000 + i for b, batch in enumerate(batches) for i in range(len(batch))])
    rows, numbers = cuts_of(str(tmp_path / "removal"), files, offsets)
    found = [(int(files[r]), int(offsets[r]), n) for r, ns in zip(rows, numbers, strict=True) for n in ns.tolist()]
    assert found == wanted
    assert told["n_duplicates"] == len(wanted)
    assert told["n_edited"] == len({w[:2] for w in wanted})
    assert (told["n_groups"], told["largest_group"]) == (len(often), max(len(p) for p in often.values()))
    assert sum(told["duplicates_by_file"]) == len(wanted)
    assert sum(told["documents_by_file"]) == told["n_long_enough"] == sum(len(p) for p in places.values())
    assert sum(told["group_sizes"].values()) == len(often)
    most = pq.read_table(tmp_path / "most").to_pylist()
    order = sorted(often.values(), key=lambda p: (-len(p), p[0]))[: solver.N_MOST]
    assert [(m["n_occurrences"], m["id"], m["unit"]) for m in most] == [
        (len(p), f"{p[0][0]:06d}_{p[0][1]}", p[0][2]) for p in order
    ]
    assert not (tmp_path / "lines").exists()


# -- end to end -------------------------------------------------------------------------------------------------------

LINES = [
    "Subscribe to our newsletter for more of this",
    "subscribe to our NEWSLETTER  for more of this",
    "  Subscribe to our newsletter, for more of this!",
    "Copyright 2019 by the authors of this page",
    "Copyright 2024 by the authors of this page",
    "Café crème et croissants à la terrasse",
    "Cafe creme et croissants a la terrasse",
    "これは二十文字よりも長い日本語の行です、たぶん。",
    "short",
    "",
    "   ",
]


def documents(n: int, seed: int = 1) -> list[dict[str, Any]]:
    rng = random.Random(seed)

    def line() -> str:
        return rng.choice(LINES) if rng.random() < 0.6 else f"A line of its own, number {rng.randint(0, 3 * n)}"

    docs: list[dict[str, Any]] = []
    for i in range(n):
        docs.append({"id": i, "text": "\n".join(line() for _ in range(rng.randint(0, 8))), "n": rng.random()})
    for i in range(0, n, 17):
        docs[i]["text"] = [None, 7, ""][i % 3]
    return docs


def write(folder: Path, docs: list[dict[str, Any]], n_files: int = 3) -> Path:
    """In the order of the documents."""
    folder.mkdir(parents=True, exist_ok=True)
    size = -(-len(docs) // n_files)
    for k in range(n_files):
        some = docs[k * size : (k + 1) * size]
        (folder / f"{k}.jsonl").write_text("".join(json.dumps(d, ensure_ascii=False) + "\n" for d in some))
    return folder


def read(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for p in sorted(folder.glob("*.jsonl")) for line in p.read_text().split("\n")[:-1]]


def run(source: Path, target: Path, executor: Any = None, memory: str = "512MB", **parameters: Any) -> Any:
    parameters.setdefault("max_source_loss", 1)
    workflow = LineDeduplicationWorkflow(str(target), str(source), **parameters)
    return workflow.run(executor if executor is not None else InProcessExecutor(), memory=memory)


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"unit": "paragraph"},
        {"normalize_text": "none", "min_chars": 1},
        {"normalize_text": "strip", "keep_first": False},
        {"normalize_text": "alphanumeric", "min_count": 9, "min_left_chars": 60},
        {"normalize_text": "ccnet", "unit": "paragraph", "min_chars": 4, "keep_first": False},
        {"normalize_text": "nfc", "min_chars": 5},
    ],
)
def test_what_stays_is_what_the_reference_keeps(tmp_path: Path, parameters: dict[str, Any]) -> None:
    docs = documents(300)
    result = run(write(tmp_path / "in", docs), tmp_path / "out", **parameters)
    assert read(tmp_path / "out") == expected(docs, **parameters)
    assert result.n_documents == 300
    assert result.summary["n_without_text"] == sum(not isinstance(d["text"], str) for d in docs)
    assert not (run_dir_path(tmp_path / "out") / "dedup").exists()


def test_only_what_is_cut_changes(tmp_path: Path) -> None:
    """Numbers, escapes and spaces of a record stay as they were written.

    So does the text of documents without a cut.
    """
    raw = [
        '{ "n" : 1.50e1, "text":"A line that is long enough\\u0021\\nshort\\n", "x": [ 1,2 ] }',
        '{ "n" : 1.50e1, "text":"A line that is long enough\\u0021\\nsecond \\u00e9", "x": [ 1,2 ] }',
        '{"text": "", "n": 1e3}',
    ]
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text("\n".join(raw) + "\n")
    result = run(tmp_path / "in", tmp_path / "out")
    lines = next((tmp_path / "out").glob("*.jsonl")).read_text().splitlines()
    assert lines[0] == raw[0]
    assert lines[1].replace('"second é"', "TEXT") == '{ "n" : 1.50e1, "text":TEXT, "x": [ 1,2 ] }'
    assert lines[2] == raw[2]
    metrics = next(s.metrics for s in result.run.ledger.stages if s.name == "cut_units")
    assert metrics == {"lines_cut": 1, "bytes_cut": 28, "documents_cut": 1}


def test_the_numbers_of_what_was_cut(tmp_path: Path) -> None:
    line = "the same line, long enough to count"
    docs = [
        {"id": 0, "text": f"{line}\nb\n{line}\nc\n{line.upper()}"},
        {"id": 1, "text": "x"},
        {"id": 2, "text": f"a\n{line}"},
    ]
    run(write(tmp_path / "in", docs, 1), tmp_path / "out", cut_field="_tamis_cut")
    assert read(tmp_path / "out") == [
        {"id": 0, "text": f"{line}\nb\nc", "_tamis_cut": [2, 4]},
        {"id": 1, "text": "x"},
        {"id": 2, "text": "a", "_tamis_cut": [1]},
    ]


def test_documents_with_too_little_left_say_why_they_went(tmp_path: Path) -> None:
    line = "the same line, long enough to count"
    docs = [
        {"id": i, "text": t} for i, t in enumerate([line, f"{line}\n  ", f"{line}\nmore", f"{line}\nmuch more of it"])
    ]
    run(write(tmp_path / "in", docs, 1), tmp_path / "out", min_left_chars=5)
    assert [d["id"] for d in read(tmp_path / "out")] == [0, 3]
    verdicts = pq.read_table(run_dir_path(tmp_path / "out") / "verdicts").to_pylist()
    assert [(v["id"], v["rule"], json.loads(v["value"]), v["threshold"]) for v in verdicts] == [
        ("1", "repeated_lines", {"lines_cut": 1, "lines": 2, "chars_left": 0}, '{"min_left_chars": 5}'),
        ("2", "repeated_lines", {"lines_cut": 1, "lines": 2, "chars_left": 4}, '{"min_left_chars": 5}'),
    ]


def test_workers_budgets_blocks_and_formats_change_nothing(tmp_path: Path) -> None:
    docs = [{**d, "text": d["text"] if isinstance(d["text"], str) else None} for d in documents(3000, seed=2)]
    source = write(tmp_path / "in", docs, 4)
    wanted = expected(docs)
    for k, (workers, memory, blocksize) in enumerate([(1, "320MB", None), (2, "1GB", "16KB"), (2, "400MB", "100KB")]):
        run_ = LineDeduplicationWorkflow(
            str(tmp_path / str(k)), str(source), input_blocksize=blocksize, max_source_loss=1
        )
        run_.run(LocalExecutor(), memory=memory, workers=workers)
        assert sorted(read(tmp_path / str(k)), key=lambda d: d["id"]) == wanted
    (tmp_path / "gz").mkdir()
    with gzip.open(tmp_path / "gz" / "a.jsonl.gz", "wt") as out:
        out.writelines(json.dumps(d) + "\n" for d in docs)
    run(tmp_path / "gz", tmp_path / "gz-out", input_blocksize="50KB")
    packed = [gzip.decompress(p.read_bytes()).splitlines() for p in sorted((tmp_path / "gz-out").glob("*.jsonl.gz"))]
    assert [json.loads(line) for part in packed for line in part] == wanted
    (tmp_path / "pq").mkdir()
    pq.write_table(pa.Table.from_pylist(docs), tmp_path / "pq" / "a.parquet", row_group_size=700)
    run(tmp_path / "pq", tmp_path / "pq-out", cut_field="cut")
    rows = pq.read_table(tmp_path / "pq-out", columns=["id", "text", "n"]).to_pylist()
    assert sorted(rows, key=lambda d: d["id"]) == wanted


def test_dictionary_columns_of_parquet(tmp_path: Path) -> None:
    line = "the same line, long enough to count"
    texts = pa.array([line, f"{line}\nx", None, f"{line}\nx"]).dictionary_encode()
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"text": texts, "id": [0, 1, 2, 3]}), tmp_path / "in" / "a.parquet")
    run(tmp_path / "in", tmp_path / "out")
    assert pq.read_table(next((tmp_path / "out").glob("*.parquet")))["text"].to_pylist() == [line, "x", None, "x"]


def test_finding_alone_reports_what_is_repeated(tmp_path: Path) -> None:
    docs = documents(40)
    result = run(write(tmp_path / "in", docs), tmp_path / "out", perform_removal=False)
    assert result.n_duplicates > 0
    assert list((tmp_path / "out").glob("*.jsonl")) == []
    most = pq.read_table(result.duplicates).to_pylist()
    first = most[0]
    with open(first["path"], "rb") as file:
        file.seek(int(first["id"].split("_")[1]))
        line = json.loads(file.readline())["text"].split("\n")[first["unit"]]
    key = normalize(line, "casefold")
    everywhere = [normalize(u, "casefold") for d in docs if isinstance(d["text"], str) for u in d["text"].split("\n")]
    assert first["n_occurrences"] == everywhere.count(key) == result.summary["largest_group"]


def test_a_source_that_would_lose_nearly_all_stops_the_run(tmp_path: Path) -> None:
    docs = [{"id": i, "text": f"a line that is long enough, {i}\nshort"} for i in range(150)]
    write(tmp_path / "in" / "a", docs, 1)
    write(tmp_path / "in" / "b", docs, 1)
    with pytest.raises(Incomplete, match=r"nothing was removed: 1 of 2 sources .* of their lines .*b: 100\.0% of 150"):
        run(tmp_path / "in", tmp_path / "out", max_source_loss=0.95)
    run(tmp_path / "in", tmp_path / "out", max_source_loss="100%")
    assert [d["text"] for d in read(tmp_path / "out")] == [d["text"] for d in docs] + ["short"] * 150


def test_nothing_to_read_and_nothing_to_cut(tmp_path: Path) -> None:
    assert run(write(tmp_path / "in", [{"id": 1}, {"text": None}], 1), tmp_path / "out").n_duplicates == 0
    assert read(tmp_path / "out") == [{"id": 1}, {"text": None}]
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "a.jsonl").write_text("")
    assert run(tmp_path / "none", tmp_path / "none-out").n_documents == 0


def test_the_same_again_does_nothing_and_another_is_refused(tmp_path: Path) -> None:
    source = write(tmp_path / "in", documents(40))
    n = run(source, tmp_path / "out").n_duplicates
    again = run(source, tmp_path / "out")
    assert (again.status, again.n_duplicates) == ("already", n)
    with pytest.raises(RunConflict, match="min_chars was 20 and is 21 now"):
        run(source, tmp_path / "out", min_chars=21)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"unit": "sentence"}, "unit must be one of line, paragraph"),
        ({"normalize_text": "lower"}, "normalize_text must be one of none"),
        ({"min_chars": 0}, "min_chars: expected a whole number of at least 1, got 0"),
        ({"min_count": 1}, "min_count: expected a whole number of at least 2, got 1"),
        ({"min_left_chars": True}, "min_left_chars: expected a whole number of at least 1, got True"),
        ({"cut_field": "text"}, "cut_field must be another field"),
        ({"max_source_loss": 2}, "max_source_loss"),
    ],
)
def test_mistakes(tmp_path: Path, parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        LineDeduplicationWorkflow(str(tmp_path / "out"), str(tmp_path), **parameters)


# -- kills ------------------------------------------------------------------------------------------------------------

# Writes a marker when a pass has begun, and again whenever there is progress in it.
TARGET = """
import sys

from tamis.stages.deduplication.lines.workflow import LineDeduplicationWorkflow

source, output, marker, workers, blocksize = sys.argv[1:]


def progress(state):
    with open(marker, "a") as file:
        file.write(state["pass_label"] + "\\n")


workflow = LineDeduplicationWorkflow(output, source, input_blocksize=blocksize, max_source_loss=1)
workflow.run(progress=progress, memory="512MB", workers=int(workers))
"""


def start(source: Path, output: Path, marker: Path, workers: int, blocksize: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", TARGET, str(source), str(output), str(marker), str(workers), blocksize]
    paths = [str(Path(tamis.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in paths if p)}
    return subprocess.Popen(command, env=env, start_new_session=True)


def wait_for(process: subprocess.Popen[bytes], marker: Path, label: str, n: int) -> bool:
    """Until a pass told progress so often; False when the process ended before."""
    while process.poll() is None:
        if marker.exists() and marker.read_text().split("\n").count(label) >= n:
            return True
        time.sleep(0.002)
    return False


def test_killed_in_every_pass_and_started_again(tmp_path: Path) -> None:
    docs = documents(12_000, seed=3)
    source = write(tmp_path / "in", docs, 5)
    marker = tmp_path / "marker"
    rng = random.Random(7)
    killed = []
    for label, n in [("keys-0", 1), ("keys-0", 3), ("decision", 1), ("removal", 1), ("removal", 3)]:
        marker.unlink(missing_ok=True)
        process = start(source, tmp_path / "out", marker, rng.choice([1, 2]), rng.choice(["40KB", "64KB", "100KB"]))
        try:
            if wait_for(process, marker, label, n):
                time.sleep(rng.uniform(0, 0.05))
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    killed.append(label)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(timeout=60)
    assert {"keys-0", "decision", "removal"} <= set(killed), killed
    final = start(source, tmp_path / "out", marker, 2, "80KB")
    assert final.wait(timeout=120) == 0
    assert sorted(read(tmp_path / "out"), key=lambda d: d["id"]) == expected(docs)
    assert not (run_dir_path(tmp_path / "out") / "dedup").exists()
