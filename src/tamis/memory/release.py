"""Giving memory back: `release()`, pages of libraries, and the settings that keep allocators honest.

Covers the public call tamis.memory.release, PeakMeter (several peak measurements over the kernel's one counter), the
environment that every worker starts with, and `drop_clean_pages`. Never imports a heavy library: what the process has
not imported has nothing to release.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, Self

from tamis.memory import meter
from tamis.memory.sampler import marked

# Arrow's default pool (mimalloc) reserves 1 GiB at first use and defeats the cap: 680 MB were used under a 50 MB one.
_MANDATORY_ENV = {"ARROW_DEFAULT_MEMORY_POOL": "system"}
_DEFAULT_ENV = {
    "MALLOC_ARENA_MAX": "2",
    "MALLOC_TRIM_THRESHOLD_": "131072",
    "MALLOC_MMAP_THRESHOLD_": "131072",  # a fixed value also stops glibc from raising it after the first big free
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "RAYON_NUM_THREADS": "1",
    "POLARS_MAX_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    # Asking whether there is a GPU must not start CUDA where workers are forked from.
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",  # the forking server must have one thread
}
_THRESHOLDS = {-1: "MALLOC_TRIM_THRESHOLD_", -3: "MALLOC_MMAP_THRESHOLD_"}  # numbers of malloc.h
_MALLOPT = {-8: "MALLOC_ARENA_MAX", **_THRESHOLDS}
_REUSED_BYTES = 32 << 20  # the most that glibc accepts as a threshold


class Released(NamedTuple):
    """The effect of one release(): resident bytes before and after, and its duration."""

    before_bytes: int
    after_bytes: int
    seconds: float

    @property
    def freed_bytes(self) -> int:
        return self.before_bytes - self.after_bytes


def release(device: bool = True) -> Released:
    """Give unused memory back to the system: Python garbage, Arrow's and CUDA's caches, free heap pages.

    `device=False` leaves CUDA's cache: what a process may take of a device is limited anyway, and filling it again
    would keep the device waiting.
    """
    start_s = time.perf_counter()
    before_bytes = resident_bytes()
    gc.collect()
    # A module may be in sys.modules while another thread is still importing it, hence the getattr.
    pool = getattr(sys.modules.get("pyarrow"), "default_memory_pool", None)
    if pool is not None:
        pool().release_unused()
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if device and cuda is not None and cuda.is_initialized():
        cuda.empty_cache()
    trim = _malloc_trim()
    if trim is not None:
        trim(0)
    return Released(before_bytes, resident_bytes(), time.perf_counter() - start_s)


@contextlib.contextmanager
def without_collector() -> Iterator[None]:
    """Keep Python's cycle collector from running: work that creates many objects and keeps them has nothing to find."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def resident_bytes() -> int:
    seen = meter.statm()
    return 0 if seen is None else seen.resident_bytes


@functools.cache
def _malloc_trim() -> Callable[[int], int] | None:
    import ctypes

    function = getattr(ctypes.CDLL(None), "malloc_trim", None)  # absent in musl
    if function is None:
        return None
    function.argtypes, function.restype = [ctypes.c_size_t], ctypes.c_int
    trim: Callable[[int], int] = function
    return trim


class PeakCounter:
    """A counter of the highest use since its last reset, of which a process has one, shared by all watches of it.

    Resetting it first passes the old value to every open watch, so an inner measurement never hides the peak of an
    outer one. `reset` returns False where the counter cannot be cleared.
    """

    def __init__(self, reset: Callable[[], bool], peak_bytes: Callable[[], int], used_bytes: Callable[[], int]) -> None:
        self._reset, self._peak_bytes, self.used_bytes = reset, peak_bytes, used_bytes
        self.unreset_bytes = 0  # what it already showed when it could not be reset
        self.detach()
        os.register_at_fork(after_in_child=self.detach)

    def detach(self) -> None:
        """Forget the watches, which measure the parent, and the lock, which another thread may have held at a fork."""
        self.lock = threading.Lock()
        self.meters: list[PeakMeter] = []

    def open(self, peak_meter: PeakMeter) -> None:
        """Reset the counter and add a watch."""
        with self.lock:
            self._fold()
            self.unreset_bytes = 0 if self._reset() else self._peak_bytes()
            peak_meter.peak_bytes = self.used_bytes()
            self.meters.append(peak_meter)

    def close(self, peak_meter: PeakMeter) -> None:
        """Bring a watch up to date and remove it."""
        with self.lock:
            self._fold()
            if peak_meter in self.meters:
                self.meters.remove(peak_meter)

    def _fold(self) -> None:
        if not self.meters:
            return
        peak = self._peak_bytes()
        if peak <= self.unreset_bytes:  # an old peak that could not be cleared: only the present use is known
            peak = self.used_bytes()
        for peak_meter in self.meters:
            peak_meter.peak_bytes = max(peak_meter.peak_bytes, peak)


class PeakMeter:
    """The highest use between start() and stop(), nested and across threads; by default resident bytes.

    Every peak measured inside a process must go through this class, as the kernel keeps one peak per process.
    """

    def __init__(self, counter: PeakCounter | None = None) -> None:
        self._counter = counter or RESIDENT
        self.peak_bytes = 0

    def start(self) -> Self:
        self._counter.open(self)
        return self

    def stop(self) -> int:
        self._counter.close(self)
        return self.peak_bytes


RESIDENT = PeakCounter(lambda: meter.reset_peak(), lambda: meter.peak_rss() or 0, lambda: resident_bytes())


def hygiene_env(base: Mapping[str, str]) -> dict[str, str]:
    """Return `base` plus the settings under which memory can be capped and measured; to be set before exec.

    A value the user has set stays, except for Arrow's pool, without which the cap does not hold. The process and its
    descendants are recognized by it, too (sampler.py).
    """
    return marked({**_DEFAULT_ENV, **base, **_MANDATORY_ENV})


def tune_malloc(environ: Mapping[str, str]) -> None:
    """Have glibc follow the settings of an environment that came after it was loaded.

    Other C libraries have none of them.
    """
    import ctypes

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    for parameter, name in _MALLOPT.items():
        value = environ.get(name, "")
        if mallopt is not None and value.isdigit():
            mallopt(parameter, int(value))


@contextlib.contextmanager
def reusing_large_blocks() -> Iterator[None]:
    """Let malloc reuse freed blocks of up to 32 MiB inside the context, and give them back at its end.

    Under `hygiene_env` every block above 128 KiB is mapped and unmapped, so that its memory can be measured. A parser
    that grows one text step by step then spends its time on page faults: 34 s for a page of 8 MB that takes 1.8 s.
    """
    import ctypes

    mallopt, trim = getattr(ctypes.CDLL(None), "mallopt", None), _malloc_trim()
    fixed = {parameter: os.environ.get(name, "") for parameter, name in _THRESHOLDS.items()}
    if mallopt is None or trim is None or not all(value.isdigit() for value in fixed.values()):
        yield  # malloc adapts its thresholds by itself
        return
    for parameter in fixed:
        mallopt(parameter, _REUSED_BYTES)
    try:
        yield
    finally:
        for parameter, value in fixed.items():
            mallopt(parameter, int(value))
        trim(0)


def thread_stack(n_bytes: int = 1 << 20) -> bool:
    """Give new threads stacks of `n_bytes`: the default of 8 MiB each counts in full against RLIMIT_DATA.

    Covers Python threads and, with glibc, the threads of native libraries; False where only Python threads are covered.
    The main thread keeps its own stack, unlike with a lower RLIMIT_STACK.
    """
    threading.stack_size(n_bytes)
    import ctypes

    libc = ctypes.CDLL(None)
    if not hasattr(libc, "pthread_setattr_default_np"):
        return False
    attributes = ctypes.create_string_buffer(256)  # pthread_attr_t is 56 to 64 bytes
    if libc.pthread_attr_init(attributes) != 0:
        return False
    try:
        if libc.pthread_attr_setstacksize(attributes, ctypes.c_size_t(n_bytes)) != 0:
            return False
        return bool(libc.pthread_setattr_default_np(attributes) == 0)
    finally:
        libc.pthread_attr_destroy(attributes)


# -- pages of libraries ------------------------------------------------------------------------------------------------
_MADV_DONTNEED = 4


# In /proc/PID/smaps: a private mapping of a file that is not writable, and what the kernel counts of its pages.
_READ_ONLY_FILE = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) .-.p \S+ \S+ [1-9][0-9]* .*\n((?:[A-Z].*\n)+)", re.MULTILINE)
_PAGES = re.compile(r"^(Rss|Private_Dirty|Shared_Dirty|Anonymous): +([0-9]+)", re.MULTILINE)


def drop_clean_pages() -> int:
    """Drop this process's clean pages of read-only file mappings; returns how many bytes were resident.

    Loading compiled kernels touches some 70 MB of LLVM's code and another 60 MB of other libraries, of which workers
    use a fraction afterwards. Clean, read-only pages of files can be dropped at any time: the kernel reads them again
    (from its cache) when they are touched. Measured: a forking server goes from 235 to 100 MB (PSS), and takes back 20
    MB at work.
    """
    import ctypes

    try:
        madvise = ctypes.CDLL(None, use_errno=True).madvise
        clean = list(_clean_mappings())
    except (OSError, AttributeError):
        return 0
    dropped = 0
    for start, end, resident_bytes in clean:
        if not madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), _MADV_DONTNEED):
            dropped += resident_bytes
    return dropped


def _clean_mappings() -> Iterator[tuple[int, int, int]]:
    """Yield the clean read-only mappings of files: start, end and resident bytes.

    Pages that were written to (relocations) would come back as they are in the file: such mappings are left out.
    """
    with open("/proc/self/smaps", encoding="ascii", errors="replace") as file:
        mappings = file.read()
    for start, end, counts in _READ_ONLY_FILE.findall(mappings):
        kilobytes = {name: int(n) for name, n in _PAGES.findall(counts)}
        resident = kilobytes.pop("Rss", 0)
        if resident and not any(kilobytes.values()):
            yield int(start, 16), int(end, 16), resident * 1024
