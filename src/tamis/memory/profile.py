"""`tamis.memory.profile` and `tamis.memory.scope`: the memory that a step takes, on the CPU and in torch on GPUs.

For development: `with tamis.memory.profile("load") as p:` around a block, or `@tamis.memory.profile("load")` on a
function. Memory is given back (release()) before and after, so that a block answers for its own memory only; with
`scope` only after it. Figures are the whole process's: blocks may be nested and may overlap in several threads, and
each then sees what all of them use together.

Peaks are exact where the kernel lets a process reset its peak counter (VmHWM), else sampled every 5 ms. Never imports
torch.
"""

from __future__ import annotations

import functools
import inspect
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, TypeVar

from tamis.errors import UsageError
from tamis.memory.release import RESIDENT, PeakCounter, PeakMeter, release, resident_bytes
from tamis.sizes import format_size

_log = logging.getLogger("tamis.memory")
_SAMPLE_S = 0.005
F = TypeVar("F", bound=Callable[..., Any])


class profile:  # noqa: N801 - a context manager, read as a verb
    """Measure a block: what it took at most, and what it left behind. Filled in when the block ends, also by an error.

    before_bytes     resident bytes when the block began
    peak_bytes       highest resident bytes while it ran
    growth_bytes     how far the peak was above where the block began
    retained_bytes   what is still held after a release, above where the block began (negative if it gave back more)
    seconds          how long the block took, without the releases
    exact            whether the peak is the kernel's; if not it was sampled, and shorter peaks were missed
    gpu_...          the same of CUDA memory in tensors, over all devices; None where torch does not use CUDA

    As a decorator (of functions, coroutines and generators) it measures every call: the fields hold the latest finished
    one, `n_calls` how many there were, and the decorated function has it all as `.profile`.
    """

    _releases_first = True
    _level = logging.INFO

    def __init__(self, name: str) -> None:
        self.name = name
        self.before_bytes = self.peak_bytes = self.growth_bytes = self.retained_bytes = 0
        self.gpu_before_bytes: int | None = None
        self.gpu_peak_bytes: int | None = None
        self.gpu_growth_bytes: int | None = None
        self.gpu_retained_bytes: int | None = None
        self.seconds = 0.0
        self.exact = True
        self.n_calls = 0
        self._cpu: PeakMeter | None = None
        self._sampler: _Sampler | None = None
        self._gpu = PeakMeter(_GPU)
        self._gpu_before_bytes = 0
        self._started_s = 0.0

    def __enter__(self) -> profile:
        if self._cpu is not None:
            kind = type(self).__name__
            raise UsageError(
                f"{kind} {self.name!r}: entered again while open; make a new one with {kind}({self.name!r})"
            )
        self.before_bytes = release().after_bytes if self._releases_first else resident_bytes()
        self._gpu_before_bytes = self._gpu.start().peak_bytes
        self._cpu = PeakMeter().start()
        self.exact = RESIDENT.unreset_bytes == 0
        self._sampler = None if self.exact else _Sampler()
        self._started_s = time.perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        peak_meter, self._cpu = self._cpu, None
        if peak_meter is None:
            return
        self.seconds = time.perf_counter() - self._started_s
        self.peak_bytes = max(peak_meter.stop(), self.before_bytes, self._sampler.stop() if self._sampler else 0)
        self.growth_bytes = self.peak_bytes - self.before_bytes
        self._gpu.stop()
        try:
            self.retained_bytes = release().after_bytes - self.before_bytes
        except (OSError, MemoryError):
            if error is None:  # the block's own error says more than a failed measurement
                raise
        if _cuda() is not None:
            before_bytes = self.gpu_before_bytes = self._gpu_before_bytes
            self.gpu_peak_bytes = max(self._gpu.peak_bytes, before_bytes)
            self.gpu_growth_bytes = self.gpu_peak_bytes - before_bytes
            self.gpu_retained_bytes = _gpu_used_bytes() - before_bytes
        self.n_calls += 1
        _log.log(self._level, "%s", self)

    def __call__(self, function: F) -> F:
        """Return the function wrapped so that every call is measured."""
        wrapper = _decorate(function, self)
        wrapper.profile = self
        return wrapper  # type: ignore[no-any-return]

    @contextmanager
    def _one_call(self) -> Iterator[None]:
        """Measure one call of the decorated function with its own profile: calls may recurse or overlap in threads."""
        block = type(self)(self.name)
        try:
            with block:
                yield
        finally:
            figures = {name: value for name, value in vars(block).items() if not name.startswith("_")}
            vars(self).update(figures, n_calls=self.n_calls + 1)

    def __repr__(self) -> str:
        return f"profile({self.name!r})"

    def __str__(self) -> str:
        sizes = [format_size(n) for n in (self.peak_bytes, self.growth_bytes, self.retained_bytes)]
        text = "{}: peak {}{}, grew by {}, kept {}".format(self.name, "" if self.exact else "at least ", *sizes)
        if self.gpu_peak_bytes is not None:
            sizes = [format_size(n or 0) for n in (self.gpu_peak_bytes, self.gpu_growth_bytes, self.gpu_retained_bytes)]
            text += "; GPU peak {}, grew by {}, kept {}".format(*sizes)
        return f"{text}; {self.seconds:.3f} s"


def _decorate(function: Callable[..., Any], block: profile) -> Any:
    """Return a wrapper of the same kind as `function`."""

    @functools.wraps(function)
    def plain(*args: Any, **kwargs: Any) -> Any:
        with block._one_call():
            return function(*args, **kwargs)

    @functools.wraps(function)
    async def coroutine(*args: Any, **kwargs: Any) -> Any:
        with block._one_call():
            return await function(*args, **kwargs)

    @functools.wraps(function)
    def generator(*args: Any, **kwargs: Any) -> Any:
        with block._one_call():
            return (yield from function(*args, **kwargs))

    if inspect.isasyncgenfunction(function):
        raise UsageError(f"profile {block.name!r}: asynchronous generators cannot be measured; put it around a block")
    if inspect.iscoroutinefunction(function):
        return coroutine
    return generator if inspect.isgeneratorfunction(function) else plain


class scope(profile):  # noqa: N801 - the same
    """Measure a block and release memory at its end, also when it raises; a `profile` without a release before it.

    >>> with scope("load") as s:
    ...     data = bytearray(50_000_000)
    >>> s.peak_bytes >= s.grown_bytes >= 0
    True

    grown_bytes  the peak above where the block began
    left_bytes   what is still held after the release, above where the block began (negative if it gave back more)
    """

    _releases_first = False
    _level = logging.DEBUG

    @property
    def grown_bytes(self) -> int:
        return self.growth_bytes

    @property
    def left_bytes(self) -> int:
        return self.retained_bytes

    def __repr__(self) -> str:
        sizes = (format_size(n) for n in (self.peak_bytes, self.grown_bytes, self.left_bytes))
        return "scope({!r}: peak {}, grown {}, left {})".format(self.name, *sizes)


class _Sampler:
    """The highest resident bytes seen by a thread that looks every few milliseconds."""

    def __init__(self) -> None:
        self._peak_bytes = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tamis-profile", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.wait(_SAMPLE_S):
            self._peak_bytes = max(self._peak_bytes, resident_bytes())

    def stop(self) -> int:
        self._ended.set()
        self._thread.join()
        return self._peak_bytes


def _reset_gpu_peak() -> bool:
    for device, cuda in _devices():
        cuda.reset_peak_memory_stats(device)
    return True


def _gpu_peak_bytes() -> int:
    return sum(cuda.max_memory_allocated(device) for device, cuda in _devices())


def _gpu_used_bytes() -> int:
    return sum(cuda.memory_allocated(device) for device, cuda in _devices())


# torch keeps a peak of CUDA memory per device; their sum is an upper bound where they occur at different times.
_GPU = PeakCounter(_reset_gpu_peak, _gpu_peak_bytes, _gpu_used_bytes)


def _devices() -> list[tuple[int, Any]]:
    """Return each device number with torch.cuda; an empty list if torch does not use CUDA."""
    cuda = _cuda()
    return [] if cuda is None else [(device, cuda) for device in range(cuda.device_count())]


def _cuda() -> Any:
    """Return torch.cuda if this process uses it already, else None."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    return cuda if cuda is not None and cuda.is_initialized() else None
