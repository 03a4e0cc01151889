"""The slow twin of kernels/sketch in Python integers, sets and sorting: the specification of SKETCH_VERSION 1."""

from __future__ import annotations

M64 = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15
BASE, POINT = 0x6A09E667F3BCC90D, 0xBB67AE8584CAA73B
NONE = M64


def mix(x: int) -> int:
    x &= M64
    x = ((x ^ (x >> 32)) * 0xFF51AFD7ED558CCD) & M64
    x = ((x ^ (x >> 29)) * 0xC4CEB9FE1A85EC53) & M64
    return x ^ (x >> 32)


def rotl(x: int, n: int) -> int:
    return ((x << n) | (x >> (64 - n))) & M64


def word_hash(word: str) -> int:
    """kernels/text/_words.py: 8 bytes at a time, little-endian, the last ones zero-padded."""
    data = word.encode()
    pieces = [int.from_bytes(data[i : i + 8], "little") for i in range(0, len(data), 8)]
    pieces += [0] * (2 - len(pieces))
    h = (pieces[0] * GOLDEN) & M64
    h = (((h ^ (h >> 32)) + pieces[1]) * 0xD6E8FEB86659FD93) & M64
    for piece in pieces[2:]:
        h = (((rotl(h, 23) ^ (h >> 29)) + piece) * GOLDEN) & M64
    h = ((h ^ (h >> 29) ^ len(data)) * 0xA0761D6478BD642F) & M64
    return h ^ (h >> 32)


def shingles(text: str | None, n: int, unit: str, seed: int) -> list[int]:
    """Return the hashes of all shingles, in the order of the text."""
    if text is None or not text.split():
        return []
    units = [mix(ord(c) + POINT) for c in text] if unit == "char" else [word_hash(word) for word in text.split()]
    found = []
    for first in range(max(1, len(units) - n + 1)):
        h = 0
        for g in units[first : first + n]:
            h = (h * BASE + g) & M64
        found.append(mix(h ^ mix(seed)))
    return found


def fss(hashes: list[int], t: int, seed: int) -> list[tuple[int, int]]:
    """(round, hash) of t bins."""
    bins: list[tuple[int, int] | None] = [None] * t
    distinct = set(hashes)
    for r in range(2 * t):
        if None not in bins:
            break
        salt = mix(mix(seed) + r * GOLDEN)
        fresh = [mix(h + salt) for h in distinct] if r else [h for h in distinct if h != NONE]
        empty = [value is None for value in bins]
        if r >= t and empty[r - t]:
            bins[r - t] = r, min(fresh)
        for h in fresh if r < t else []:
            b = ((h & 0xFFFFFFFF) * t) >> 32
            if empty[b]:
                bins[b] = min(bins[b] or (r, NONE), (r, h))
    return [value or (0, NONE) for value in bins]


def permutations(hashes: list[int], t: int, seed: int) -> list[tuple[int, int]]:
    factors = [(mix(mix(seed) ^ k) | 1, mix(mix(seed) ^ (t + k))) for k in range(t)]
    return [(0, min((h * a + b) & M64 for h in hashes)) for a, b in factors]


def values(hashes: list[int], t: int, seed: int, wide: bool, method: str) -> list[int]:
    found = fss(hashes, t, seed) if method == "fss" else permutations(hashes, t, seed)
    return [(h + r * GOLDEN) & M64 if wide else (r << 32) | (h >> 32) for r, h in found]


def band_keys(hashes: list[int], bands: int, rows: int, seed: int, wide: bool, method: str) -> list[int]:
    if not hashes:
        return [0] * bands
    found = values(hashes, bands * rows, seed, wide, method)
    keys = []
    for band in range(bands):
        key = mix(band + GOLDEN)
        for value in found[band * rows : (band + 1) * rows]:
            key = (rotl((key + value * 0xC2B2AE3D27D4EB4F) & M64, 31) * 0x9E3779B185EBCA87) & M64
        keys.append(mix(key) or 1)
    return keys


def similarity(a: list[int], b: list[int], max_shingles: int) -> float:
    """Jaccard of two sets; of the hashes below 2**64 / 2**k where either would have more than max_shingles to keep."""
    k = 0
    while True:
        first, second = ({h for h in hashes if h < 1 << (64 - k)} for hashes in (a, b))
        if len(first) <= max_shingles and len(second - first) <= max_shingles:
            return len(first & second) / len(first | second) if first | second else 0.0
        k += 1


def sort_pairs(keys: list[int], ids: list[int]) -> tuple[list[int], list[int]]:
    pairs = sorted(zip(keys, ids, strict=True))
    return [key for key, _ in pairs], [number for _, number in pairs]


def groups(keys: list[int]) -> list[tuple[int, int]]:
    ends = [i + 1 for i in range(len(keys)) if i + 1 == len(keys) or keys[i + 1] != keys[i]]
    return [(start, end) for start, end in zip([0, *ends], ends, strict=False) if end - start > 1]


def star_edges(keys: list[int], ids: list[int]) -> list[tuple[int, int]]:
    edges = []
    for start, end in groups(keys):
        leader, *others = sorted(set(ids[start:end]))
        edges += [(leader, other) for other in others]
    return edges


def components(n: int, edges: list[tuple[int, int]]) -> list[int]:
    """Return the smallest id of each id's component."""
    label = list(range(n))
    changed = True
    while changed:
        changed = False
        for a, b in edges:
            low = min(label[a], label[b])
            changed |= label[a] != low or label[b] != low
            label[a] = label[b] = low
    return label
