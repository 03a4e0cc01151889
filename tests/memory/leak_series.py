"""Memory floors of imagined workers, seeded: what allocators and caches do without any leak, and the same with one.

Sizes and time constants are those seen in real runs (or a few times worse): a floor after release() moves by some
hundred kilobytes, remembers where it was, jumps when an arena or a cache is added, and warms up during the first
partitions.
"""

from __future__ import annotations

import math
import random

KB, MB = 1_000, 1_000_000


def ar_noise(rng: random.Random, n: int, sd_bytes: float, phi: float) -> list[float]:
    """Noise of this standard deviation in which each value keeps `phi` of the one before."""
    made, x = [], rng.gauss(0, sd_bytes)
    for _ in range(n):
        made.append(x)
        x = phi * x + rng.gauss(0, sd_bytes * math.sqrt(1 - phi * phi))
    return made


def jumps(rng: random.Random, n: int, n_jumps: int, low_bytes: float, high_bytes: float) -> list[float]:
    """Return a level that changes for good at a few moments, mostly upwards: caches, arenas, lazy tables."""
    steps = [0.0] * n
    for _ in range(n_jumps):
        size = math.exp(rng.uniform(math.log(low_bytes), math.log(high_bytes)))
        steps[rng.randrange(n)] += size if rng.random() < 0.8 else -size
    return running_sum(steps)


def running_sum(steps: list[float]) -> list[float]:
    made, level = [], 0.0
    for step in steps:
        level += step
        made.append(level)
    return made


def sawtooth(rng: random.Random, n: int, period: int, height_bytes: float) -> list[float]:
    """Return the level of a cache that fills and is emptied, again and again."""
    phase = rng.randrange(period)
    return [height_bytes * ((i + phase) % period) / period for i in range(n)]


def warm_up(n: int, height_bytes: float, tau: float) -> list[float]:
    """Growth that ends by itself."""
    return [height_bytes * (1 - math.exp(-i / tau)) for i in range(n)]


def filling(rng: random.Random, n: int, n_filling: int, height_bytes: float) -> list[float]:
    """Return the level of a bounded cache that grows evenly until it is full: like a leak until then."""
    first = rng.randrange(10)
    return [height_bytes * min(1.0, max(0, i - first) / n_filling) for i in range(n)]


def spikes(rng: random.Random, n: int, share: float, height_bytes: float) -> list[float]:
    """Single partitions after which more stays, for one partition."""
    return [rng.uniform(0.2, 1) * height_bytes if rng.random() < share else 0.0 for _ in range(n)]


def arena_flips(rng: random.Random, n: int) -> list[float]:
    """Return an arena that Python's allocator keeps after some partitions for a while, as most real floors show."""
    made, there = [], False
    for _ in range(n):
        there = (rng.random() < 0.6) if there else (rng.random() < 0.2)
        made.append(1.05 * MB if there else 0.0)
    return made


PARTS = ("flips", "jumps", "saw", "warm-up", "spikes", "wander", "step", "filling")


def clean(seed: int, n: int = 400, only: str = "", parts_of: tuple[str, ...] = PARTS) -> list[int]:
    """Return the floors of a worker without a leak: allocator noise and up to three other disturbances."""
    rng = random.Random(seed)
    sd_bytes = math.exp(rng.uniform(math.log(0.03), math.log(1.0))) * MB
    parts = [ar_noise(rng, n, sd_bytes, rng.uniform(0.0, 0.8))]
    chosen = {only} if only else set(rng.sample(parts_of, rng.choice([0, 1, 1, 2, 2, 3])))
    if "flips" in chosen:
        parts.append(arena_flips(rng, n))
    if "jumps" in chosen:
        parts.append(jumps(rng, n, rng.randrange(1, 5), 0.2 * MB, 8 * MB))
    if "saw" in chosen:
        parts.append(sawtooth(rng, n, rng.randrange(4, 60), rng.uniform(0.5, 6) * MB))
    if "warm-up" in chosen:
        parts.append(warm_up(n, rng.uniform(1, 24) * MB, rng.uniform(3, 45)))
    if "spikes" in chosen:
        parts.append(spikes(rng, n, 0.05, 10 * MB))
    if "wander" in chosen:
        parts.append(running_sum([rng.gauss(0, 40 * KB) for _ in range(n)]))  # fragmentation
    if "filling" in chosen:
        parts.append(filling(rng, n, rng.randrange(20, 111), math.exp(rng.uniform(math.log(2), math.log(200))) * MB))
    if "step" in chosen:  # imports and buffers of the first partitions
        at, height = rng.randrange(1, 12), rng.uniform(5, 60) * MB
        parts.append([0.0 if i < at else height for i in range(n)])
    base = rng.uniform(60, 400) * MB
    return [max(0, int(base + sum(values))) for values in zip(*parts, strict=True)]


def leaking(seed: int, leak_bytes: float = 64_000, n: int = 200, only: str = "") -> list[int]:
    """Return the floors of the same kind of worker with a leak: even, uneven, or only in some partitions.

    The mean per partition is `leak_bytes`.

    Without a cache that fills beside it: which is which shows only when the cache is full, and 200 partitions may be
    over by then.
    """
    rng = random.Random(1_000_000 + seed)
    shape = rng.choice(["even", "exponential", "one in four"])
    steps = [leak_bytes] * n
    if shape == "exponential":
        steps = [rng.expovariate(1 / leak_bytes) for _ in range(n)]
    elif shape == "one in four":
        steps = [4 * leak_bytes if rng.random() < 0.25 else 0.0 for _ in range(n)]
    scale = n * leak_bytes / sum(steps)
    rise = running_sum([s * scale for s in steps])
    return [int(a + b) for a, b in zip(clean(seed + 5_000_000, n, only, PARTS[:-1]), rise, strict=True)]
