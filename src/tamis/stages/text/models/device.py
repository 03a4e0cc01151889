"""Running batches on a device that may have no room for them: halve, try the same texts again, grow back with care.

`Allowance` decides, and is pure; `Device` is the protocol of a CPU, a GPU, or a fake one in tests. A failed
batch changes nothing but the time: its texts go through again in smaller batches. What does not fit alone is an error
of that document.
"""

from __future__ import annotations

import gc
import math
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from tamis._lazy import torch
from tamis.memory.device_limits import DeviceLimit, DeviceMemory, GpuLock, is_device_full, limit_torch
from tamis.stages.text.models.batching import Shape, TokenBatch, next_batch, ordered

CPU_TOKENS = 2048  # more tokens in a batch are no faster on a core, and take more memory
GPU_TOKENS, GPU_WIDTH = 32_768, 768  # tokens of a batch of a model of this width
GPU_STEP = 32
# Batches that are prepared before a turn: a narrow model is done with one sooner than a core prepares the next.
AHEAD = 16
# Batches without a failure, and it may be more; the second for lengths that never failed.
_CLEAN, _CLEAN_AT_FIRST = (50, 20)
_GROWTH, _GROWTH_AT_FIRST = 1.05, 1.25
_MOST_PATIENT = 7  # so often that doubles
_BELOW_FAILURE = 0.95
_OF_ROOM = 0.85  # of what would fit if memory had no gaps
_MOST_FAILURES = 3  # of a length: after so many it stays as it is for long


class Device(Protocol):
    """A device that a model runs on."""

    name: str

    def is_full(self, exc: BaseException) -> bool:
        """Return True if an exception means that the device is out of memory."""

    def release(self, thorough: bool = False) -> None:
        """Release unused memory; `thorough`: collect garbage everywhere, however long that takes."""

    def room(self) -> float | None:
        """Return how many times larger a batch could be than those since the last `release`; None if unknown."""


@dataclass
class Allowance:
    """Token limits of batches for each padded length, learned from batches that failed and batches that fitted.

    Lengths learn from each other: a token takes no less memory in a longer text, so that what a batch of long texts was
    allowed is where shorter ones begin, once anything has failed. From there each length grows by itself, boldly until
    it has failed, with care after that. A failure costs a quarter of a second on a GPU, as much as ten batches: sixteen
    lengths that each halve by themselves would cost more than they gain. Where the device reports what the first batch
    after a failure took, its length goes at once to what that has room for.
    """

    shape: Shape
    n_failures: int = 0  # since they were last reported
    _n_ever: int = 0
    _tokens: dict[int, float] = field(default_factory=dict)
    _failed_at: dict[int, int] = field(default_factory=dict)
    _fitted_at: dict[int, int] = field(default_factory=dict)
    _clean: dict[int, int] = field(default_factory=dict)
    _n_failed: Counter[int] = field(default_factory=Counter)
    _just_failed: set[int] = field(default_factory=set)  # and nothing of that length was done since

    def of(self, batch: TokenBatch) -> Shape:
        """Return the shape for texts like those of this batch."""
        key = self.shape.key(batch)
        if key not in self._tokens and self._failed_at:
            self._tokens[key], self._clean[key] = self._first(key), 0
        return self.shape.within(int(self._tokens.get(key, self.shape.max_tokens)))

    def _first(self, key: int) -> float:
        """Return the initial number of tokens for a length about which nothing is known.

        That of the next longer length, else of the next shorter one, or what has already fitted.
        """
        nearest = min(
            (k for k in self._tokens if k > key), default=max((k for k in self._tokens if k < key), default=None)
        )
        limit = self.shape.max_tokens if nearest is None else self._tokens[nearest]
        return max(limit, float(self._fitted_at.get(key, 0)))

    def failed(self, batch: TokenBatch) -> bool:
        """Record that a batch did not fit; return False if no smaller batch is possible.

        The next batch of its kind is as large as one that did fit, or half as large.
        """
        key = self.shape.key(batch)
        self.n_failures += 1
        self._n_ever += 1
        self._n_failed[key] += 1
        self._just_failed.add(key)
        good = self._fitted_at.pop(key, 0)  # once: if that fails, too, another process took memory
        self._failed_at[key], self._clean[key] = batch.n_tokens, 0
        self._tokens[key] = max(good if 0 < good < batch.n_tokens else batch.n_tokens // 2, batch.least_tokens)
        for longer in [k for k, n in self._tokens.items() if k > key and n >= batch.n_tokens]:
            self._tokens[longer] = self._tokens[key]  # a token of theirs takes at least as much
        return batch.n_tokens > batch.least_tokens

    def fitted(self, batch: TokenBatch, room: Callable[[], float | None] = lambda: None) -> None:
        """Record that a batch fitted.

        After enough of them batches may be larger, up to just below the size that failed last. `room`: see
        `Device.room`.
        """
        key = self.shape.key(batch)
        is_first = key in self._just_failed
        self._just_failed.discard(key)
        self._fitted_at[key] = max(self._fitted_at.get(key, 0), batch.n_tokens)
        if key not in self._tokens:
            return
        self._clean[key] += 1
        has_failed = key in self._failed_at
        most = self._most(key)
        if is_first and self._n_failed[key] < _MOST_FAILURES and (times := room()) is not None:
            leap = batch.n_tokens * times * _OF_ROOM
            # The failed batch had room, too: memory is fragmented, and only trying shows how much.
            self._tokens[key] = max(self._tokens[key], leap if leap < most else (batch.n_tokens + most) / 2)
            return
        # The more often anything failed, the less is to be gained.
        patience = 2 ** (_MOST_PATIENT if self._n_failed[key] >= _MOST_FAILURES else min(self._n_ever, _MOST_PATIENT))
        if self._clean[key] >= (_CLEAN if has_failed else _CLEAN_AT_FIRST) * patience:
            grown = self._tokens[key] * (_GROWTH if has_failed else _GROWTH_AT_FIRST)
            self._tokens[key] = max(self._tokens[key], min(grown, most))
            self._clean[key] = 0

    def _most(self, key: int) -> float:
        """Return a size just below where this length, or a shorter one, failed."""
        failed = [n for k, n in self._failed_at.items() if k <= key]
        return min(self.shape.max_tokens, min(failed, default=math.inf) * _BELOW_FAILURE)


def _allowed(lengths: list[int], order: list[int], begin: int, allowance: Allowance) -> TokenBatch:
    """Return the batch that begins at this position of the order, as large as is allowed now."""
    batch = next_batch(lengths, order, begin, allowance.shape)
    allowed = allowance.of(batch)
    return batch if allowed == allowance.shape else next_batch(lengths, order, begin, allowed)


class PreparedInputs:
    """Inputs of the next batches, prepared on the host (`prepare`) while the device is busy."""

    def __init__(self, prepare: Callable[[TokenBatch], Any]) -> None:
        self._prepare, self._prepared = prepare, dict[int, tuple[TokenBatch, Any]]()

    def make(self, lengths: list[int], allowance: Allowance, n: int) -> None:
        """Make `n` batches, those with which `run_batches` begins unless one of them fails."""
        order, begin = ordered(lengths, allowance.shape), 0
        while begin < len(order) and len(self._prepared) < n:
            batch = _allowed(lengths, order, begin, allowance)
            self._prepared[batch.at[0]] = batch, self._prepare(batch)
            begin += len(batch.at)

    def take(self, batch: TokenBatch) -> Any:
        """Return the result of `prepare` for a batch; it is returned only once."""
        prepared_batch, prepared = self._prepared.pop(batch.at[0], (None, None))
        return prepared if prepared_batch == batch else self._prepare(batch)


def run_batches(
    lengths: list[int],
    run: Callable[[TokenBatch], Any],
    allowance: Allowance,
    device: Device,
    cut: Callable[[int], int] | None = None,
) -> Iterator[tuple[list[int], Any]]:
    """Yield (positions, result of `run`) over all texts, in batches that fit; every position once.

    `cut` makes the text at a position shorter, where that text does not fit alone, and returns its new length (the old
    one: it cannot be cut any further); without it that is an error. `lengths` is changed accordingly.
    """
    order, begin, failed_last = ordered(lengths, allowance.shape), 0, False
    while begin < len(order):
        batch = _allowed(lengths, order, begin, allowance)
        result = _try(run, batch, device)
        if result is not None:
            allowance.fitted(batch, device.room)
            begin, failed_last = begin + len(batch.at), False
            yield batch.at, result[0]
            continue
        device.release(failed_last)
        failed_last = True
        if allowance.failed(batch):
            continue
        shorter = cut(order[begin]) if cut is not None else lengths[order[begin]]
        if shorter >= lengths[order[begin]]:
            advice = "--gpu-overflow cut, or" if cut is None else "or"
            raise DeviceMemory(
                f"a text of {batch.length} tokens{'' if cut is None else ', cut as far as it can be,'} does not fit "
                f"the memory of {device.name}, alone in "
                f"its batch; use a smaller max_seq_length, {advice} a device with more memory"
            )
        lengths[order[begin]] = shorter


def _try(run: Callable[[TokenBatch], Any], batch: TokenBatch, device: Device) -> tuple[Any] | None:
    """Return the result of `run` in a tuple; None if the device is full.

    The exception ends here, because its traceback would keep the tensors alive.
    """
    try:
        return (run(batch),)
    except Exception as exc:
        if not device.is_full(exc):
            raise
        return None


class Work:
    """Batches that were given to a device, which works on them while the next are prepared.

    `n_left`: how many of them a turn may leave to be done.
    """

    def __init__(self, kind: str, n_left: int = 1) -> None:
        self._kind, self._n_left = kind, n_left
        self._marks: list[Any] = []

    def given(self) -> None:
        """Record an event for the batch that was just submitted to the device."""
        if self._kind == "cpu":
            return
        mark = torch.cuda.Event()
        mark.record()
        self._marks = [*self._marks[-self._n_left :], mark]

    def wait_for_the_others(self) -> None:
        if len(self._marks) > self._n_left:
            self._marks[0].synchronize()


class TorchDevice:
    """A core (`cpu`) or the first GPU that this process may see (`cuda`), through torch."""

    def __init__(self, kind: str, limit: DeviceLimit | None = None) -> None:
        """Create the device. `limit`: what this process may take of a GPU's memory; more fails here."""
        self.kind, self._n_left = kind, 1
        shares = kind == "cuda" and limit is not None and limit.share < 1
        device = os.environ.get("CUDA_VISIBLE_DEVICES", "0")
        self._lock = GpuLock(limit.lock_folder if shares and limit else "", device)
        if kind == "cuda" and limit is not None:
            limit_torch(torch, limit)
        self.name = "the CPU" if kind == "cpu" else f"GPU {device} ({torch.cuda.get_device_name(0)})"

    def shape(self, max_rows: int, packed: bool, in_order: bool, width: int = GPU_WIDTH) -> Shape:
        """Return the shape of batches that are as fast as any on such a device.

        `width`: values of a hidden state; a narrow model is done with a token sooner, and takes more of them at once,
        so that the host has as long for the next batch.
        """
        if self.kind == "cpu":
            return Shape(CPU_TOKENS, max_rows, packed=packed, in_order=in_order)
        self._n_left = max(1, min(4, GPU_WIDTH // max(1, width)))
        n_tokens = GPU_TOKENS * self._n_left
        return Shape(
            n_tokens, max_rows, 8 if packed else GPU_STEP, fixed=not in_order, packed=packed, in_order=in_order
        )

    def is_full(self, exc: BaseException) -> bool:
        return self.kind != "cpu" and is_device_full(exc)

    @contextmanager
    def turn(self) -> Iterator[Work]:
        """Hold the device for all batches of a partition; who shares it waits meanwhile.

        It is passed on when the last batch (of a narrow model: the last ones) is still at work, so that the next one
        has its first batch ready in time; results are fetched after this block.
        """
        with self._lock.acquire():
            work = Work(self.kind, self._n_left)
            yield work
            work.wait_for_the_others()

    def release(self, thorough: bool = False) -> None:
        # What the last batches left; all that a process with torch holds takes a fifth of a second.
        gc.collect(2 if thorough else 1)
        if self.kind != "cpu":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()

    def room(self) -> float | None:
        if self.kind == "cpu":
            return None
        # What was taken from the device, with the gaps between what is in use: a larger batch has them, too.
        resting, most = torch.cuda.memory_allocated(), torch.cuda.max_memory_reserved()
        free, total = torch.cuda.mem_get_info()
        mine = free + torch.cuda.memory_reserved()  # others may hold the rest
        limit = min(mine, total * torch.cuda.get_per_process_memory_fraction())
        return max(0.0, limit - resting) / (most - resting) if most > resting else None


def choose_device(wants_gpu: bool) -> str:
    """Return `cuda` for a stage that requests a GPU and sees one, else `cpu`. Imports torch: for workers only."""
    if not wants_gpu:
        return "cpu"
    return "cuda" if torch.cuda.is_available() else "cpu"
