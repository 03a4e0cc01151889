"""release(), scope() and the worker environment."""

import mmap
import os
import subprocess
import sys
import threading
import types
from pathlib import Path

import pytest

from tamis.errors import UsageError
from tamis.memory import meter, release, sampler, scope
from tamis.memory.release import RESIDENT, PeakMeter, hygiene_env

MB = 1_000_000


def block(n_bytes):
    """Touched private memory that goes straight back when dropped; malloc might serve it from pages it kept."""
    made = mmap.mmap(-1, n_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for i in range(0, n_bytes, mmap.PAGESIZE):
        made[i] = 1
    return made


def run_python(code):
    environ = os.environ | {"PYTHONPATH": str(Path(meter.__file__).parents[2])}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environ).stdout


def test_release_gives_back_free_heap_pages():
    held = [bytes(1_000) for _ in range(60_000)]  # small blocks: freed into the heap, not to the system
    last = held[-1]  # keeps the top of the heap in place
    del held
    done = release()
    assert len(last) == 1_000
    assert done.freed_bytes > 40 * MB
    assert done.seconds > 0
    assert done.freed_bytes == done.before_bytes - done.after_bytes
    assert done.after_bytes == pytest.approx(meter.statm().resident_bytes, abs=5 * MB)


def test_large_blocks_are_reused_inside_the_context_only():
    code = """if True:
        import ctypes
        from tamis.memory.release import reusing_large_blocks

        class Facts(ctypes.Structure):
            names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
            _fields_ = [(name, ctypes.c_size_t) for name in names.split()]

        mallinfo = getattr(ctypes.CDLL(None), "mallinfo2", None)
        if mallinfo is None:
            raise SystemExit("none")
        mallinfo.restype = Facts

        def is_mapped():
            before = mallinfo().hblks
            block = bytes(1 << 20)
            return mallinfo().hblks > before

        print(is_mapped(), end=" ")
        with reusing_large_blocks():
            print(is_mapped(), end=" ")
        print(is_mapped())
    """
    result = subprocess.run(
        [sys.executable, "-c", code], env=hygiene_env(os.environ), capture_output=True, text=True, timeout=60
    )
    if result.stderr.strip() == "none":
        pytest.skip("mallinfo2 is a function of glibc 2.33")
    assert (result.stdout, result.stderr) == ("True False True\n", "")


def test_release_asks_libraries_that_are_imported_and_only_those(monkeypatch):
    asked = []
    pool = types.SimpleNamespace(release_unused=lambda: asked.append("arrow"))
    monkeypatch.setitem(sys.modules, "pyarrow", types.SimpleNamespace(default_memory_pool=lambda: pool))
    cuda = types.SimpleNamespace(is_initialized=lambda: True, empty_cache=lambda: asked.append("cuda"))
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=cuda))
    release()
    assert asked == ["arrow", "cuda"]
    cuda.is_initialized = lambda: False
    monkeypatch.setitem(sys.modules, "pyarrow", types.SimpleNamespace())  # still being imported elsewhere
    release()
    assert asked == ["arrow", "cuda"]


def test_importing_and_releasing_loads_no_heavy_library():
    code = (
        "import sys, tamis.memory; tamis.memory.release();"
        "print(sorted({'numpy', 'pyarrow', 'numba', 'psutil', 'torch', 'pandas'} & set(sys.modules)))"
    )
    assert run_python(code) == "[]\n"


def test_scope_measures_peak_growth_and_rest():
    with scope("load") as measured:
        gone = block(60 * MB)
        del gone
        kept = block(20 * MB)
    assert 55 * MB < measured.grown_bytes < 75 * MB
    assert measured.peak_bytes == measured.before_bytes + measured.grown_bytes
    assert 15 * MB < measured.left_bytes < 25 * MB
    assert len(kept) == 20 * MB
    assert repr(measured).startswith("scope('load': peak ")


def test_inner_scope_does_not_spoil_the_outer_peak():
    with scope("outer") as outer:
        big = block(80 * MB)
        del big
        with scope("inner") as inner:
            small = block(20 * MB)
            del small
        with scope("later"):
            pass
    assert outer.grown_bytes > 75 * MB
    assert 15 * MB < inner.grown_bytes < 40 * MB


def test_inner_peak_counts_for_the_outer_scope():
    with scope("outer") as outer, scope("inner") as inner:
        big = block(80 * MB)
        del big
    assert outer.peak_bytes >= inner.peak_bytes
    assert outer.grown_bytes > 75 * MB


def test_watches_may_overlap_without_nesting():
    first = PeakMeter().start()
    big = block(60 * MB)
    del big
    second = PeakMeter().start()
    assert first.stop() - meter.statm().resident_bytes > 40 * MB
    assert second.stop() - meter.statm().resident_bytes < 20 * MB
    assert RESIDENT.meters == []


def test_scope_measures_and_releases_when_the_block_raises(monkeypatch):
    asked = []
    pool = types.SimpleNamespace(release_unused=lambda: asked.append("arrow"))
    monkeypatch.setitem(sys.modules, "pyarrow", types.SimpleNamespace(default_memory_pool=lambda: pool))
    measured = scope("bad")
    with pytest.raises(KeyError, match="inside"), measured:
        {block(40 * MB): 1}["inside"]
    assert measured.grown_bytes > 35 * MB
    assert asked == ["arrow"]
    assert RESIDENT.meters == []


def test_scope_as_decorator_measures_each_call_and_allows_recursion():
    measured = scope("work")

    @measured
    def work(depth, n_bytes):
        held = block(n_bytes)
        return len(held) + (work(depth - 1, n_bytes) if depth else 0)

    assert work(0, 50 * MB) == 50 * MB
    assert measured.grown_bytes > 45 * MB
    assert work(1, 10 * MB) == 20 * MB
    assert 15 * MB < measured.grown_bytes < 40 * MB
    assert work.__name__ == "work"


def test_one_scope_cannot_be_entered_twice_at_once():
    measured = scope("twice")
    with measured, pytest.raises(UsageError, match="entered again"):
        measured.__enter__()
    with measured:
        pass
    assert RESIDENT.meters == []


def test_peak_where_the_kernel_counter_cannot_be_reset(monkeypatch):
    monkeypatch.setattr(meter, "reset_peak", lambda: False)
    now = meter.statm().resident_bytes
    monkeypatch.setattr(meter, "peak_rss", lambda: now + 500 * MB)
    watch = PeakMeter().start()
    assert watch.stop() < now + 100 * MB  # the old peak is not ours
    watch = PeakMeter().start()
    monkeypatch.setattr(meter, "peak_rss", lambda: now + 600 * MB)
    assert watch.stop() == now + 600 * MB


def test_hygiene_env_adds_settings_and_keeps_the_users_own():
    made = hygiene_env({"PATH": "/bin", "OMP_NUM_THREADS": "4", "ARROW_DEFAULT_MEMORY_POOL": "mimalloc"})
    del made[sampler.MARK_VARIABLE]  # test_sampler.py
    assert made == {
        "PATH": "/bin",
        "OMP_NUM_THREADS": "4",
        "ARROW_DEFAULT_MEMORY_POOL": "system",
        "MALLOC_ARENA_MAX": "2",
        "MALLOC_TRIM_THRESHOLD_": "131072",
        "MALLOC_MMAP_THRESHOLD_": "131072",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "RAYON_NUM_THREADS": "1",
        "POLARS_MAX_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
        "JE_ARROW_MALLOC_CONF": "background_thread:false",
    }


def test_small_thread_stacks_cost_little_of_the_data_limit():
    code = """
import threading
from tamis.memory import sampler, meter
from tamis.memory.release import thread_stack
thread_stack(1 << 20)
before, wait = meter.status()["VmData"], threading.Event()
threads = [threading.Thread(target=wait.wait) for _ in range(8)]
[thread.start() for thread in threads]
print((meter.status()["VmData"] - before) // 8)
wait.set()
"""
    assert 1 << 20 <= int(run_python(code)) < 2 << 20


def test_scope_in_threads_leaves_nothing_open():
    def work():
        for _ in range(5):
            with scope("thread"):
                bytes(1_000_000)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert RESIDENT.meters == []


def test_a_forked_child_starts_without_its_parents_watches():
    code = """
import os
from tamis.memory import scope
from tamis.memory.release import RESIDENT
with scope("parent"), RESIDENT.lock:
    if os.fork() == 0:
        with scope("child"):
            print(len(RESIDENT.meters), flush=True)
        os._exit(0)
    os.wait()
    print(len(RESIDENT.meters))
"""
    assert run_python(code) == "1\n1\n"
