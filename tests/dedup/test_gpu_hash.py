"""XXH3-128 for GPUs: the source of the kernel, compiled for the CPU, gives what the library gives.

And where texts are hashed is measured.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import xxhash

from tamis.backends.local import InProcessExecutor
from tamis.dedup.exact.gpu_hash import SOURCE, choose
from tamis.dedup.exact.stages import DocumentHashes
from tamis.dedup.exact.workflow import RemoveExactDuplicates
from tamis.dedup.keys import text_hashes
from tamis.errors import UsageError

COMPILER = shutil.which("g++") or shutil.which("c++") or ""


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Compile the kernel as a function of the CPU, called like GpuHasher."""
    if not COMPILER:
        pytest.skip("no C++ compiler")
    made = tmp_path_factory.mktemp("twin") / "xxh3.so"
    command = [COMPILER, "-O1", "-shared", "-fPIC", "-x", "c++", str(SOURCE), "-o", str(made)]
    subprocess.run(command, check=True, timeout=60, capture_output=True)
    hash_spans = ctypes.CDLL(str(made)).hash_spans

    def call(data: Any, offsets: Any) -> tuple[Any, Any]:
        data, offsets = np.ascontiguousarray(data), np.ascontiguousarray(offsets, np.int64)
        hi, lo = np.zeros(len(offsets) - 1, np.uint64), np.zeros(len(offsets) - 1, np.uint64)
        at = [ctypes.c_void_p(a.ctypes.data) for a in (data, offsets, hi, lo)]
        hash_spans(at[0], at[1], ctypes.c_longlong(len(hi)), at[2], at[3])
        return hi, lo

    return call


def test_every_length_hashes_as_the_library_hashes_it(twin: Any) -> None:
    lengths = [*range(600), 1023, 1024, 1025, 1087, 1088, 1089, 2048, 2049, 65_536, 100_001]
    data = np.random.default_rng(0).integers(0, 256, sum(lengths), np.uint8)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    hi, lo = twin(data, offsets)
    wanted = [xxhash.xxh3_128_intdigest(data[a:b].tobytes()) for a, b in itertools.pairwise(offsets)]
    assert [int(h) << 64 | int(low) for h, low in zip(hi, lo, strict=True)] == wanted


def test_keys_of_texts_are_the_same_wherever_they_are_made(twin: Any) -> None:
    texts = pa.array(["", None, "a", "größer", "x" * 5000, "中文" * 70], pa.large_string())
    for array in (texts, texts.slice(2, 3)):
        for a, b in zip(text_hashes(array), text_hashes(array, twin), strict=True):
            assert a.tolist() == b.tolist()


def test_where_texts_are_hashed_is_measured_and_reported() -> None:
    def told(cpu: float, gpu: float) -> Any:
        return choose("auto", 16, 1, lambda: {"cpu": cpu * 1e9, "gpu": gpu * 1e9})

    assert (told(11, 20).backend, told(1, 20).backend) == ("cpu", "gpu")
    assert told(11, 20).why == "measured: 16 cores hash 176 GB/s, the GPU 20 GB/s with the copies to it"
    assert choose("auto", 16, 0).why == "there is no GPU"
    assert choose("auto", 16, 1, lambda: {"cpu": 1e9, "error": "no driver"}).why == "the GPU cannot be used: no driver"
    assert choose("gpu", 16, 1).backend == "gpu"
    with pytest.raises(UsageError, match="this machine has no GPU"):
        choose("gpu", 16, 0)


def test_a_run_says_where_and_a_stage_on_gpus_is_the_same_stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in ("a", "b", "a")))
    workflow = RemoveExactDuplicates(str(tmp_path / "out"), str(tmp_path / "in.jsonl"), backend="auto")
    result = workflow.run(InProcessExecutor(), memory="512MB")
    assert (result.summary["n_duplicates"], result.summary["hashed_on"]) == (1, "cpu (there is no GPU)")
    with pytest.raises(UsageError, match="backend: expected one of"):
        RemoveExactDuplicates("o", "i", backend="tpu")
    there, here = DocumentHashes().on_gpu(8), DocumentHashes()
    assert there.resources.gpus == 0.125
    assert there.get_config() | {"resources": None} == here.get_config() | {"resources": None}
