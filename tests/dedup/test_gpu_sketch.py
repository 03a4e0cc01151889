"""Sketches for GPUs: the source of the kernel, compiled for the CPU, gives the keys of the CPU's kernel.

And where they are made is measured.
"""

from __future__ import annotations

import ctypes
import json
import pickle
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tamis.backends.local import InProcessExecutor
from tamis.dedup.fuzzy import gpu_sketch
from tamis.dedup.fuzzy.gpu_sketch import SOURCE, Differs, Sketcher, check, choose, definitions, on_cpu
from tamis.dedup.fuzzy.stages import DocumentSketches, Sketch
from tamis.dedup.fuzzy.workflow import RemoveFuzzyDuplicates
from tamis.errors import MissingExtra, UsageError
from tamis.kernels.buffers import string_buffers

COMPILER = shutil.which("g++") or shutil.which("c++") or ""
SKETCHES = [Sketch(), Sketch(n=5, bands=7, rows=3, seed=9, wide=True), Sketch(n=1, bands=64, rows=16)]


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return a function that makes a Sketcher whose kernel runs on the CPU, thread after thread."""
    if not COMPILER:
        pytest.skip("no C++ compiler")

    def make(sketch: Sketch) -> Sketcher:
        made = tmp_path_factory.mktemp("twin") / "sketch.so"
        command = [COMPILER, "-O1", "-std=c++17", "-shared", "-fPIC", "-x", "c++", str(SOURCE), *definitions(sketch)]
        subprocess.run([*command, "-o", str(made)], check=True, timeout=60, capture_output=True)
        kernel = ctypes.CDLL(str(made)).sketches

        def launch(data: Any, starts: Any, ends: Any, n: int, power: Any, seed: Any, bands: int) -> tuple[Any, Any]:
            keys, counts = np.empty((len(starts), bands), np.uint64), np.empty(len(starts), np.int64)
            data, starts, ends = np.append(data, np.uint8(0)), np.ascontiguousarray(starts), np.ascontiguousarray(ends)
            at = [ctypes.c_void_p(a.ctypes.data) for a in (data, starts, ends, keys, counts)]
            kernel(
                *at[:3],
                ctypes.c_longlong(len(starts)),
                ctypes.c_int(n),
                ctypes.c_ulonglong(int(power)),
                ctypes.c_ulonglong(int(seed)),
                *at[3:],
            )
            return keys, counts

        return Sketcher(sketch, launch)

    return make


def documents() -> list[str | None]:
    rng = random.Random(0)
    alphabets = ["ab ", "the quick brown fox ", "éß中文😀 x\u3000", "".join(map(chr, range(1, 900)))]
    sizes = [1, 2, 4, 5, 6, 23, 24, 25, 26, 60, 127, 128, 129, 300, 1000, 2047, 2048, 2049, 3071, 3072, 3073, 6000]
    found: list[str | None] = ["".join(rng.choices(a, k=k)) for a in alphabets for k in sizes]
    spaces = "".join(chr(c) for c in range(0x110000) if chr(c).isspace())
    found += ["", None, " ", "\n\t ", spaces, spaces + "x", "x" + spaces, "x" * 4000, "中" * 2000, "ab" * 3000]
    return [*found, "\u200b", "\u180e", "\ufeff", "\x1b", "\x1c", "\u2007", "a\x00b", "\ud7ff\ue000\U0010ffff"]


@pytest.mark.parametrize("sketch", SKETCHES, ids=["default", "wide", "many"])
def test_keys_are_those_of_the_cpu(twin: Any, sketch: Sketch) -> None:
    sketcher = twin(sketch)
    check(sketcher)
    texts = pa.array(documents(), pa.large_string())
    for array in (texts, texts.slice(30, 20)):
        parts = string_buffers(array)
        for found, wanted in zip(sketcher(parts), on_cpu(sketch, parts), strict=True):
            np.testing.assert_array_equal(found, wanted)


def test_what_is_long_or_not_well_formed_is_left_to_the_cpu(twin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sketcher = twin(SKETCHES[0])
    raw = [b"\x80abc" * 20, b"abc\xe4\xb8" * 9, b"\xff" * 40, b"a\xc3", b"\xe4\xb8\xad\xad" + b"x" * 50, b"fine " * 30]
    parts = string_buffers(pa.array(raw, pa.large_binary()))
    for found, wanted in zip(sketcher(parts), on_cpu(SKETCHES[0], parts), strict=True):
        np.testing.assert_array_equal(found, wanted)
    monkeypatch.setattr(gpu_sketch, "LONGEST_BYTES", 100)
    given = []
    monkeypatch.setattr(sketcher, "_launch", lambda *a, launch=sketcher._launch: given.append(len(a[1])) or launch(*a))
    keys, _ = sketcher(parts)
    assert given == [5]
    np.testing.assert_array_equal(keys, on_cpu(SKETCHES[0], parts)[0])


def test_a_device_that_gives_other_keys_is_found_out(twin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sketcher = twin(SKETCHES[0])
    honest = sketcher._launch

    def wrong(*arguments: Any) -> tuple[Any, Any]:
        keys, counts = honest(*arguments)
        keys[-1, 3] ^= np.uint64(1)
        return keys, counts

    monkeypatch.setattr(sketcher, "_launch", wrong)
    with pytest.raises(Differs, match="keys of 1 documents differ"):
        check(sketcher)


def test_where_sketches_are_made_is_measured_and_reported() -> None:
    def told(backend: str, cpu: float, gpu: float) -> Any:
        return choose(backend, Sketch(), 16, 1, lambda _: {"cpu": cpu * 1e9, "gpu": gpu * 1e9})

    assert (told("auto", 0.9, 10).backend, told("auto", 0.9, 20).backend, told("gpu", 0.9, 1).backend) == (
        "cpu",
        "gpu",
        "gpu",
    )
    assert told("auto", 0.9, 10).why == "measured: 16 cores sketch 14.4 GB/s, the GPU 10.0 GB/s with the copies to it"
    failed = choose("gpu", Sketch(), 16, 1, lambda _: {"cpu": 1e9, "error": "Differs: keys of 3 documents"})
    assert (failed.backend, failed.why) == ("cpu", "the GPU cannot be used: Differs: keys of 3 documents")
    for error, kind, why in (
        ("MissingExtra: needs more", MissingExtra, r"--backend gpu .* pip install 'tamis\[gpu\]'"),
        (
            "CompileException: no nvrtc",
            UsageError,
            "cannot be used: CompileException: no nvrtc; fix that, or use --backend cpu, or auto",
        ),
        ("", UsageError, "cannot be used: it reported nothing"),
    ):
        told_so = {"error": error} if error else {}
        with pytest.raises(kind, match=why):
            choose("gpu", Sketch(), 16, 1, lambda _, told_so=told_so: told_so)
        assert choose("auto", Sketch(), 16, 1, lambda _, told_so=told_so: told_so).backend == "cpu"
    assert choose("auto", Sketch(unit="word"), 16, 1).why == "shingles of words are made on the CPU"
    assert choose("auto", Sketch(), 16, 0).why == "there is no GPU"
    for sketch, n_gpus, why in (
        (Sketch(), 0, "no GPU"),
        (Sketch(unit="word"), 1, "words"),
        (Sketch(bands=100), 1, "1024"),
    ):
        with pytest.raises(UsageError, match=why):
            choose("gpu", sketch, 16, n_gpus)


@pytest.mark.parametrize(
    "error", [MissingExtra("sketches", "gpu"), RuntimeError("nvrtc: no such file"), Differs("keys")]
)
def test_a_worker_that_cannot_use_its_gpu_falls_back_unless_the_gpu_is_required(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(sketch: Sketch) -> Any:
        raise error

    monkeypatch.setattr(gpu_sketch, "GpuSketcher", fails)
    texts = pa.array(["one two three four five six seven"], pa.large_string())
    stage = DocumentSketches().on_gpu(2, "auto")
    stage.setup()
    assert f"document_sketches: sketches are computed on the CPU: {error}" in capsys.readouterr().err
    assert (stage._keys(texts)[0] == DocumentSketches()._keys(texts)[0]).all()
    asked = pickle.loads(pickle.dumps(DocumentSketches().on_gpu(2, "gpu")))
    if isinstance(error, Differs):
        asked.setup()
        return
    with pytest.raises(type(error), match=str(error)[:8]):
        asked.setup()


def test_a_required_gpu_is_required_on_workers_too() -> None:
    for backend in ("gpu", "auto"):
        (stage, _bands), *_ = RemoveFuzzyDuplicates(None, "o", "i", backend=backend)._keys_of(20, True)
        assert stage._backend == backend


def test_a_run_says_where_and_a_stage_on_gpus_is_the_same_stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    (tmp_path / "in.jsonl").write_text(
        "".join(json.dumps({"text": t * 30}) + "\n" for t in ("some words", "others", "some words"))
    )
    workflow = RemoveFuzzyDuplicates(None, str(tmp_path / "out"), str(tmp_path / "in.jsonl"), backend="auto")
    result = workflow.run(InProcessExecutor(), memory="512MB")
    assert (result.summary["n_duplicates"], result.summary["sketched_on"]) == (1, "cpu (there is no GPU)")
    with pytest.raises(UsageError, match="backend: expected one of"):
        RemoveFuzzyDuplicates(None, "o", "i", backend="tpu")
    there, here = DocumentSketches().on_gpu(8), DocumentSketches()
    assert there.resources.gpus == 0.125
    assert there.get_config() | {"resources": None} == here.get_config() | {"resources": None}
