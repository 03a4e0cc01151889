"""The slow twin of kernels/records/hash128.py in Python integers: the specification of HASH_VERSION 1."""

from __future__ import annotations

M64 = (1 << 64) - 1
P1, P2, P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
P4, P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5


def rotl(x: int, n: int) -> int:
    return ((x << n) | (x >> (64 - n))) & M64


def fmix(x: int) -> int:
    x = ((x ^ (x >> 33)) * 0xFF51AFD7ED558CCD) & M64
    x = ((x ^ (x >> 33)) * 0xC4CEB9FE1A85EC53) & M64
    return x ^ (x >> 33)


def finish(a: int, b: int) -> tuple[int, int]:
    a = (a + b) & M64
    b = (b + a) & M64
    a, b = fmix(a), fmix(b)
    a = (a + b) & M64
    return a, (b + a) & M64


def step_a(a: int, word: int) -> int:
    return (rotl((a + word * P2) & M64, 31) * P1) & M64


def step_b(b: int, word: int) -> int:
    return (rotl(b ^ ((word * P2) & M64), 27) * P3) & M64


def hash_bytes(data: bytes, seed: int = 0) -> tuple[int, int]:
    a = [(seed + P1 + P2) & M64, (seed + P2) & M64, seed, (seed - P1) & M64]
    b = [seed ^ P3, seed ^ P4, seed ^ P5, seed ^ ((P3 + P4) & M64)]
    for i in range(0, len(data), 8):
        piece = data[i : i + 8]
        lane = 3 if len(piece) < 8 else (i // 8) % 4
        word = int.from_bytes(piece, "little")
        a[lane], b[lane] = step_a(a[lane], word), step_b(b[lane], word)
    merged_a = sum(rotl(x, n) for x, n in zip(a, (1, 7, 12, 18), strict=True)) & M64
    merged_b = sum(rotl(x, n) for x, n in zip(b, (5, 17, 29, 43), strict=True)) & M64
    return finish(merged_a ^ ((len(data) * P5) & M64), (merged_b + len(data)) & M64)


def combine(hi: int, lo: int, hi2: int, lo2: int, salt: int) -> tuple[int, int]:
    a = step_a((hi + salt * P4) & M64, hi2)
    b = step_b(lo ^ ((salt + P5) & M64), lo2)
    return finish(step_a(a, lo2), step_b(b, hi2))


def hash_word(value: int, seed: int = 0) -> tuple[int, int]:
    return combine((seed + P1) & M64, seed ^ P3, value, 8, 0)
