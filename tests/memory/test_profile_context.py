"""tamis.memory.profile: blocks and functions, nested, in threads, without the kernel's counter, on a fake GPU."""

import asyncio
import logging
import mmap
import os
import subprocess
import sys
import threading
import types
from pathlib import Path

import pytest

import tamis
from tamis.errors import UsageError
from tamis.memory import meter, profile
from tamis.memory.release import PeakMeter

MB = 1_000_000


def block(n_bytes):
    """Touched private memory that goes straight back when dropped; malloc might serve it from pages it kept."""
    made = mmap.mmap(-1, n_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for i in range(0, n_bytes, mmap.PAGESIZE):
        made[i] = 1
    return made


def test_peak_growth_and_what_remained():
    with profile("load") as p:
        gone = block(60 * MB)
        del gone
        kept = block(20 * MB)
    assert 55 * MB < p.growth_bytes < 70 * MB
    assert p.peak_bytes == p.before_bytes + p.growth_bytes
    assert 15 * MB < p.retained_bytes < 25 * MB
    assert p.seconds > 0
    assert p.n_calls == 1
    assert (p.gpu_peak_bytes, p.gpu_growth_bytes, p.gpu_retained_bytes) == (None, None, None)
    assert len(kept) == 20 * MB


def test_it_is_public_and_lazy():
    code = (
        "import sys, tamis; n = [m for m in sys.modules if m.startswith('tamis.')]\n"
        "with tamis.memory.profile('step') as p: x = bytearray(1000)\n"
        "print(n, sorted({'numpy', 'pyarrow', 'torch', 'numba'} & set(sys.modules)), p.name)"
    )
    environ = os.environ | {"PYTHONPATH": str(Path(meter.__file__).parents[2])}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environ)
    assert done.stdout == "[] [] step\n"
    assert tamis.memory.profile is profile


def test_garbage_of_others_is_not_the_blocks():
    junk = [bytes(1_000) for _ in range(40_000)]
    last = junk[-1]
    del junk  # free, but still resident until a release
    with profile("nothing") as p:
        pass
    assert abs(p.retained_bytes) < 3 * MB
    assert len(last) == 1_000


def test_one_readable_line(caplog):
    with caplog.at_level(logging.INFO, "tamis.memory"), profile("load") as p:
        kept = block(20 * MB)
    assert len(kept)
    text = str(p)
    assert text.startswith("load: peak ")
    assert ", grew by 2" in text
    assert text.endswith(" s")
    assert "\n" not in text
    assert "GPU" not in text
    assert caplog.messages == [text]
    assert repr(p) == "profile('load')"


def test_nested_blocks_see_their_own_peaks():
    with profile("outer") as outer:
        gone = block(80 * MB)
        del gone
        with profile("inner") as inner:
            gone = block(30 * MB)
            del gone
    assert 25 * MB < inner.growth_bytes < 40 * MB
    assert 75 * MB < outer.growth_bytes < 95 * MB


def test_an_inner_peak_is_also_the_outers():
    with profile("outer") as outer, profile("inner") as inner:
        gone = block(40 * MB)
        del gone
    assert inner.growth_bytes > 35 * MB
    assert outer.growth_bytes >= inner.growth_bytes - 2 * MB


def test_threads_see_what_all_use_together():
    begun, done = threading.Event(), threading.Event()
    seen = []

    def watch():
        with profile("watcher") as p:
            begun.set()
            assert done.wait(20)
        seen.append(p)

    thread = threading.Thread(target=watch)
    thread.start()
    assert begun.wait(20)
    with profile("worker") as own:
        gone = block(40 * MB)
        del gone
    done.set()
    thread.join()
    assert 35 * MB < own.growth_bytes < 60 * MB
    assert 35 * MB < seen[0].growth_bytes < 60 * MB


def test_entering_an_open_one_again_is_refused_and_harmless():
    p = profile("once")
    with p, pytest.raises(UsageError, match="entered again"), p:
        pass
    with p:
        pass
    assert p.n_calls == 2


def test_an_error_passes_and_is_measured():
    @profile("fails")
    def fails():
        gone = block(30 * MB)
        del gone
        raise ValueError("as asked")

    with pytest.raises(ValueError, match="as asked"):
        fails()
    assert fails.profile.growth_bytes > 25 * MB


def test_a_function():
    @profile("make")
    def make(n_bytes, times=1):
        """Make a block and drop it."""
        gone = block(n_bytes * times)
        return len(gone)

    assert make(10 * MB, times=3) == 30 * MB
    assert 25 * MB < make.profile.growth_bytes < 40 * MB
    assert make.profile.retained_bytes < 5 * MB
    make(MB)
    assert make.profile.growth_bytes < 10 * MB
    assert (make.profile.n_calls, make.__name__, make.__doc__) == (2, "make", "Make a block and drop it.")


def test_a_function_that_calls_itself():
    @profile("down")
    def down(n):
        return 0 if n == 0 else 1 + down(n - 1)

    assert down(3) == 3
    assert down.profile.n_calls == 4


def test_a_coroutine_and_a_generator_are_measured_to_their_end():
    @profile("coroutine")
    async def later():
        await asyncio.sleep(0)
        gone = block(30 * MB)
        await asyncio.sleep(0)
        return len(gone)

    @profile("generator")
    def some():
        yield 1
        gone = block(30 * MB)
        yield len(gone)

    assert asyncio.run(later()) == 30 * MB
    assert later.profile.growth_bytes > 25 * MB
    assert list(some()) == [1, 30 * MB]
    assert some.profile.growth_bytes > 25 * MB

    async def stream():
        yield 1

    with pytest.raises(UsageError, match="asynchronous generators"):
        profile("stream")(stream)


def test_without_the_kernels_counter_peaks_are_sampled(monkeypatch):
    monkeypatch.setattr(meter, "reset_peak", lambda pid="self": False)
    old = block(90 * MB)
    del old  # a peak from before, which cannot be cleared
    with profile("sampled") as p:
        made = block(40 * MB)
        threading.Event().wait(0.1)
        del made
    assert not p.exact
    assert 35 * MB < p.growth_bytes < 60 * MB
    assert "peak at least " in str(p)
    assert not any(t.name == "tamis-profile" for t in threading.enumerate())
    monkeypatch.undo()
    PeakMeter().start().stop()


class Cuda:
    """As much of torch.cuda as is asked, with two devices."""

    def __init__(self):
        self.now, self.peak, self.ready = [0, 0], [0, 0], True

    def is_initialized(self):
        return self.ready

    def device_count(self):
        return 2

    def memory_allocated(self, device):
        return self.now[device]

    def max_memory_allocated(self, device):
        return self.peak[device]

    def reset_peak_memory_stats(self, device):
        self.peak[device] = self.now[device]

    def empty_cache(self):
        pass

    def use(self, device, n_bytes):
        self.now[device] += n_bytes
        self.peak[device] = max(self.peak[device], self.now[device])


@pytest.fixture
def cuda(monkeypatch):
    made = Cuda()
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=made))
    return made


def test_gpu_memory_over_all_devices(cuda):
    cuda.use(0, 10 * MB)
    with profile("step") as p:
        cuda.use(0, 70 * MB)
        cuda.use(1, 20 * MB)
        cuda.use(0, -65 * MB)
    assert (p.gpu_before_bytes, p.gpu_peak_bytes, p.gpu_growth_bytes) == (10 * MB, 100 * MB, 90 * MB)
    assert p.gpu_retained_bytes == 25 * MB
    assert "; GPU peak 100 MB, grew by 90 MB, kept 25 MB; " in str(p)


def test_nested_gpu_peaks(cuda):
    with profile("outer") as outer:
        cuda.use(0, 80 * MB)
        cuda.use(0, -80 * MB)
        with profile("inner") as inner:
            cuda.use(0, 30 * MB)
            cuda.use(0, -30 * MB)
    assert (outer.gpu_peak_bytes, inner.gpu_peak_bytes) == (80 * MB, 30 * MB)


def test_cuda_that_begins_inside_the_block(cuda):
    cuda.ready = False
    with profile("first use") as p:
        cuda.ready = True
        cuda.use(1, 5 * MB)
    assert (p.gpu_peak_bytes, p.gpu_retained_bytes) == (5 * MB, 5 * MB)


def test_torch_without_cuda_has_no_gpu_figures(cuda):
    cuda.ready = False
    with profile("cpu") as p:
        pass
    assert p.gpu_peak_bytes is None
