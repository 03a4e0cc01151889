"""Batches by tokens, and a full device: a fake one with a limit, and one that another process fills."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tamis.errors import UsageError
from tamis.memory.device_limits import DeviceMemory, is_device_full
from tamis.stages.text.models.batching import Shape, TokenBatch, plan
from tamis.stages.text.models.device import Allowance, PreparedInputs, TorchDevice, run_batches


class Full(Exception):
    pass


class FakeDevice:
    """Has room for so many tokens of a batch, and counts how often it had not."""

    name = "a fake device"

    def __init__(self, limit: int) -> None:
        self.limit, self.n_full, self.n_released = limit, 0, 0
        self.tokens: list[int] = []

    def run(self, batch: TokenBatch) -> list[int]:
        if batch.n_tokens > self.limit:
            self.n_full += 1
            raise Full
        self.tokens.append(batch.n_tokens)
        return list(batch.at)

    def is_full(self, exc: BaseException) -> bool:
        return isinstance(exc, Full)

    def release(self, thorough: bool = False) -> None:
        self.n_released += 1

    def room(self) -> float | None:
        return None


def lengths(n: int = 2000) -> list[int]:
    rng = random.Random(0)
    return [min(512, int(rng.lognormvariate(4.5, 1.0)) + 2) for _ in range(n)]


SHAPES = [
    Shape(4096, 64),
    Shape(4096, 64, packed=True),
    Shape(4096, 64, 32, fixed=True),
    Shape(4096, 64, fixed=True, packed=True),
]


IN_ORDER = Shape(4096, 64, in_order=True)


@pytest.mark.parametrize("shape", [*SHAPES, IN_ORDER])
def test_every_text_is_in_one_batch_that_holds_it(shape: Shape) -> None:
    own = lengths()
    batches = list(plan(own, shape))
    assert sorted(i for b in batches for i in b.at) == list(range(len(own)))
    for b in batches:
        assert len(b.at) <= b.n_rows
        assert max(own[i] for i in b.at) <= b.length
        assert b.n_tokens <= max(shape.max_tokens, b.least_tokens)
        if shape.packed:
            assert sum(shape.padded(own[i]) for i in b.at) <= b.n_tokens


def test_hardly_anything_is_padded() -> None:
    own = lengths()
    assert sum(b.n_tokens for b in plan(own, Shape(4096, 10**6))) < 1.12 * sum(own)
    assert sum(b.n_tokens for b in plan(own, Shape(4096, 10**6, packed=True))) < 1.06 * sum(own)


@pytest.mark.parametrize("shape", [s for s in SHAPES if s.fixed])
def test_fixed_shapes_follow_from_a_text_alone(shape: Shape) -> None:
    own = lengths()
    seen: dict[int, set[tuple[int, ...]]] = {}
    for some in (range(len(own)), range(0, len(own), 3), range(700, 720)):
        for b in plan(own, shape, list(some)):
            for i in b.at:
                seen.setdefault(i, set()).add((b.n_tokens,) if shape.packed else (b.n_rows, b.length))
    assert all(len(shapes) == 1 for shapes in seen.values())


@pytest.mark.parametrize("shape", [*SHAPES, IN_ORDER])
def test_a_batch_that_does_not_fit_is_halved_and_nothing_is_lost(shape: Shape) -> None:
    own, device = lengths(), FakeDevice(1500)
    allowance = Allowance(shape)
    found = list(run_batches(own, device.run, allowance, device))
    assert sorted(i for at, _ in found for i in at) == list(range(len(own)))
    assert all(at == result for at, result in found)
    assert device.n_released == device.n_full == allowance.n_failures > 0
    kinds = 1 if shape.packed or shape.in_order else len({shape.padded(n) for n in own})
    assert device.n_full <= 3 * kinds  # at most three for each kind of batch


def test_it_grows_back_with_care_to_just_below_where_it_failed() -> None:
    own, device = [64] * 60_000, FakeDevice(3000)
    allowance = Allowance(Shape(4096, 10**6, 64))
    list(run_batches(own, device.run, allowance, device))
    assert device.n_full == 2  # at 4096, and once more while it grew
    assert device.tokens[0] == 2048
    assert min(device.tokens[:-1]) == 2048
    assert 2700 < max(device.tokens) <= 3000
    assert sum(device.tokens) / len(device.tokens) > 0.8 * 3000


def test_a_neighbour_that_takes_memory_in_the_middle_is_survived() -> None:
    own, device = [128] * 3000, FakeDevice(8192)
    done: list[int] = []
    allowance = Allowance(Shape(8192, 10**6))
    for at, _ in run_batches(own, device.run, allowance, device):
        done += at
        if len(done) == 640:
            device.limit = 1100
    assert sorted(done) == list(range(3000))
    assert device.n_full <= 4  # at 8192, 4096, 2048, and while it grew


def test_one_text_that_never_fits_is_an_error_that_says_so() -> None:
    device = FakeDevice(100)
    with pytest.raises(
        DeviceMemory, match="a text of 512 tokens does not fit the memory of a fake device, alone in its batch"
    ):
        list(run_batches([10, 512, 20], device.run, Allowance(Shape(4096, 64)), device))


def test_a_text_that_never_fits_is_cut_where_that_was_requested() -> None:
    own, device = [10, 512, 20], FakeDevice(200)

    def cut(i: int) -> int:
        return own[i] // 2

    done = [
        (at, [own[i] for i in at]) for at, _ in run_batches(own, device.run, Allowance(Shape(4096, 64)), device, cut)
    ]
    assert sorted(i for at, _ in done for i in at) == [0, 1, 2]
    assert own == [10, 128, 20]
    with pytest.raises(DeviceMemory):  # not any further
        list(run_batches([512], FakeDevice(200).run, Allowance(Shape(4096, 64)), FakeDevice(200), lambda _: 512))


def test_other_errors_pass() -> None:
    def run(_: TokenBatch) -> Any:
        raise UsageError("another kind")

    with pytest.raises(UsageError, match="another kind"):
        list(run_batches([1], run, Allowance(Shape(64, 8)), FakeDevice(10)))


class Card:
    """A device with a clock: a batch takes a start and a time per token, one that does not fit a quarter of a second.

    `tells`: it knows what batches took. `gaps`: the share of its memory that batches can have, of which it knows
    nothing.
    """

    name = "a card"
    start_s, token_s = 0.002, 1e-6

    def __init__(self, limit: float, per_length: float, tells: bool = False, gaps: float = 1.0) -> None:
        self.limit, self.per_length, self.tells, self.gaps = limit, per_length, tells, gaps
        self.seconds, self.most = 0.0, 0.0
        self.full: dict[int, int] = {}

    def needs(self, n_tokens: int, length: int) -> float:
        return n_tokens * (1 + self.per_length * length)

    def run(self, batch: TokenBatch) -> list[int]:
        needs = self.needs(batch.n_tokens, batch.length)
        if needs > self.limit * self.gaps:
            self.seconds += 0.25
            self.full[batch.length] = self.full.get(batch.length, 0) + 1
            raise Full
        self.most = max(self.most, needs)
        self.seconds += self.start_s + batch.n_tokens * self.token_s
        return list(batch.at)

    def is_full(self, exc: BaseException) -> bool:
        return isinstance(exc, Full)

    def release(self, thorough: bool = False) -> None:
        self.most = 0.0

    def room(self) -> float | None:
        return self.limit / self.most if self.tells else None


@pytest.mark.parametrize(
    "per_length", [0.0, 1 / 512]
)  # attention that takes memory by the token, and by the pair of them
def test_starting_twice_too_large_costs_few_events_and_little_time(per_length: float) -> None:
    own, n_partitions = lengths(4000), 40
    started = Shape(32_768, 10**6, 32, fixed=True)
    card = Card(started.max_tokens / 2 * (1 + per_length * 512), per_length)
    allowance = Allowance(started)
    for _ in range(n_partitions):
        done = [i for at, _ in run_batches(list(own), card.run, allowance, card) for i in at]
        assert sorted(done) == list(range(len(own)))
    best = Card(card.limit, per_length)
    by_length: dict[int, list[int]] = {}
    for n in own:
        by_length.setdefault(started.padded(n), []).append(n)
    for length, some in by_length.items():  # the largest size of each that fits, known beforehand
        fits = int(card.limit / (1 + per_length * length))
        shape = started.within(min(fits, started.max_tokens))
        for _ in range(n_partitions):
            for batch in plan(some, shape):
                best.run(batch)
    assert not best.full
    assert max(card.full.values(), default=0) <= 3
    assert best.seconds / card.seconds >= 0.95


class BusyHost(Card):
    """A batch takes as long as the host needs to give it: half a batch is half the rate."""

    start_s, token_s = 0.0045, 0.0


@pytest.mark.parametrize("gaps", [1.0, 0.85])
@pytest.mark.parametrize("fits", [0.3, 0.42, 0.5, 0.62, 0.8, 0.97])  # of the first batch
def test_a_card_that_reports_what_a_batch_took_is_soon_as_full_as_it_can_be(fits: float, gaps: float) -> None:
    own, shape = [512] * 30_000 + [300] * 10_000, Shape(32_768, 256, 32, fixed=True)
    card = BusyHost(32_768 * fits, 0.0, True, gaps)
    assert len(list(run_batches(list(own), card.run, Allowance(shape), card))) > 500
    best = BusyHost(card.limit * gaps, 0.0)
    for batch in plan(own, shape.within(int(best.limit))):
        best.run(batch)
    assert max(card.full.values()) <= 3
    assert best.seconds / (card.seconds - 0.25 * sum(card.full.values())) >= 0.8


def test_the_free_memory_of_a_device_is_read_once_after_each_failure() -> None:
    asked: list[int] = []

    class Asked(Card):
        def room(self) -> float | None:
            asked.append(len(self.full))
            return None

    card = Asked(3000, 0.0, True)
    list(run_batches([64] * 60_000, card.run, Allowance(Shape(4096, 10**6, 64)), card))
    assert len(asked) == sum(card.full.values()) == 2  # at 4096, and once more while it grew, which it did many times


def test_batches_are_prepared_before_they_are_run_and_again_where_one_fails() -> None:
    own, made, used = [40, 9, 9, 30, 8, 100, 3], [], []

    def prepare(batch: TokenBatch) -> tuple[int, list[int]]:
        made.append(batch.at)
        return batch.n_tokens, batch.at

    class Taking(FakeDevice):
        def run(self, batch: TokenBatch) -> Any:
            used.append(ahead.take(batch))
            return super().run(batch)

    ahead, allowance, device = PreparedInputs(prepare), Allowance(Shape(64, 8)), Taking(10**6)
    ahead.make(own, allowance, 3)
    first = list(made)
    assert len(first) == 3
    found = list(run_batches(own, device.run, allowance, device))
    assert made[:3] == [at for at, _ in found][:3] == first  # in the order in which they are run
    assert made == [at for at, _ in found] == [at for _, at in used]  # each once
    ahead, allowance, device, made = PreparedInputs(prepare), Allowance(Shape(64, 8)), Taking(50), []
    ahead.make([32, 31], allowance, 3)
    assert sorted(i for at, _ in run_batches([32, 31], device.run, allowance, device) for i in at) == [0, 1]
    assert made == [[0, 1], [0], [1]]  # what was prepared for both is of no use for one


def test_a_narrow_model_takes_more_tokens_at_once_on_a_gpu_and_no_more_on_a_core() -> None:
    pytest.importorskip("torch", reason="the extra `models` is not installed")
    device = TorchDevice("cpu")
    assert device.shape(64, True, False, 384).max_tokens == device.shape(64, True, False, 768).max_tokens
    device.kind = "cuda"
    tokens = {width: device.shape(64, True, False, width).max_tokens for width in (64, 384, 768, 4096)}
    assert tokens == {64: 131_072, 384: 65_536, 768: 32_768, 4096: 32_768}


def test_libraries_below_torch_say_in_words_that_a_device_is_full() -> None:
    torch = pytest.importorskip("torch", reason="the extra `models` is not installed")
    full = type("OutOfMemoryError", (MemoryError,), {"__module__": "cupy.cuda.memory"})
    for exc in (
        torch.OutOfMemoryError("CUDA out of memory."),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be reported later"),
        full("Out of memory allocating 512 bytes"),
    ):
        assert is_device_full(exc)
    for exc in (
        MemoryError(),  # of this machine
        RuntimeError("CUDA error: an illegal memory access was encountered"),
        ValueError("CUBLAS_STATUS_ALLOC_FAILED"),
    ):
        assert not is_device_full(exc)


def test_a_text_that_was_cut_is_not_reported_to_be_cut() -> None:
    device = FakeDevice(10)
    with pytest.raises(DeviceMemory, match="max_seq_length, --gpu-overflow cut, or a device"):
        list(run_batches([20], device.run, Allowance(Shape(64, 8)), device))
    with pytest.raises(DeviceMemory, match=r"cut as far as it can be, does not fit .* max_seq_length, or a device"):
        list(run_batches([20], device.run, Allowance(Shape(64, 8)), device, lambda i: 20))
