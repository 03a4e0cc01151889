"""MinHash sketches of documents, cut into bands: one 64-bit key per band, equal for similar documents.

Fast Similarity Sketching (Dahlgaard, Knudsen, Thorup, arXiv:1704.04370): each shingle goes to one of t = bands * rows
bins, where the smallest hash stays. While bins are empty, all shingles go round again with fresh hashes and fill those
only; after t rounds each bin left takes the smallest hash of a round of its own. A bin's value is its round and hash;
two documents agree in a bin with the probability of their Jaccard similarity J, so in a band with about J**rows. From
t * (ln t + 4) shingles on one hash per shingle suffices; with a permutation per bin it would be t.

Memory: 24 bytes for each of max(2**14, 16 t) shingles, and the keys. A document with more is walked twice where the
first round leaves bins empty: then it has few distinct shingles, and the later rounds use those.
"""
# Compiled functions carry their types in the signatures of the kernels; numbers there change from int to int64.
# mypy: disable-error-code="no-untyped-def, assignment"

from __future__ import annotations

import math
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from tamis.errors import UsageError
from tamis.kernels.buffers import StringBuffers
from tamis.kernels.language import types
from tamis.kernels.language.intrinsics import at, pointer, put
from tamis.kernels.language.jit import kernel
from tamis.kernels.language.types import I32_OUT, I64_IN, I64_OUT, U8_IN, U8_OUT, U16_IN, U64_IN, U64_OUT
from tamis.kernels.sketch._documents import Shingling, Unit, check_number, mixed, scratch, shingling
from tamis.kernels.sketch._fill import (
    EMPTY,
    NONE,
    ZERO,
    band_key,
    collect,
    first_round,
    last_rounds,
    later_round,
    listed,
    permutations,
    salt,
    words,
)
from tamis.kernels.sketch._shingles import CHUNK, DONE, SLACK, next_shingles, start
from tamis.kernels.text._unicode import FLAGS, PAGE_OF

Method = Literal["fss", "permutations"]
SKETCH_VERSION = 1  # keys of different versions must not meet
MAX_BINS = 1 << 16
_FIRST, _COLLECT, _LATER, _LAST, _END = range(5)


@kernel(
    types.void(
        *(U8_IN, I64_IN, I64_IN, types.int64, types.int64, types.uint64, types.uint64, U64_IN, U8_IN, U16_IN),
        *(types.int64, types.int64, types.boolean, types.boolean, types.int64, types.int64, U64_IN),
        *(U8_OUT, I64_OUT, U64_OUT, U64_OUT, U64_OUT, U64_OUT, U64_OUT, I32_OUT, U64_OUT, I64_OUT),
    )
)
def _sketches(
    data,
    starts,
    ends,
    kind,
    n,
    power,
    seed,
    table_in,
    pages_in,
    flags_in,
    bands,
    n_rows,
    wide,
    permute,
    n_cached,
    n_budget,
    factors_in,
    pad_out,
    marks_out,
    units_out,
    state_out,
    hashes_out,
    distinct_out,
    bins_out,
    rounds_out,
    keys,
    n_shingles,
):
    source, table, pages, flags = pointer(data), pointer(table_in), pointer(pages_in), pointer(flags_in)
    pad, marks, units, state = pointer(pad_out), pointer(marks_out), pointer(units_out), pointer(state_out)
    hashes, distinct, bins, rounds = pointer(hashes_out), pointer(distinct_out), pointer(bins_out), pointer(rounds_out)
    factors = pointer(factors_in)
    work = (pad, marks, units, state)
    size = data.size
    t = bands * n_rows
    for row in range(starts.size):
        s = at(starts, row)
        e = at(ends, row)
        for b in range(t):
            put(bins, b, NONE)
            put(rounds, b, np.int32(0))
        total = spent = 0
        n_listed = np.int64(-1)  # hashes[:n_listed] are all shingles of the document; -1: they must be walked
        n_distinct = n_empty = 0
        mask = np.int64(0)
        r = np.int64(1)
        collected = False
        step = _FIRST
        while step != _END:
            fresh = salt(seed, r)
            k = np.int64(0)
            more = True
            if n_listed < 0:
                start(source, s, e, kind, pages, flags, state)
                more = at(state, DONE) == ZERO
            while more:
                end = n_listed
                more = False
                if n_listed < 0:
                    end = k + next_shingles(source, size, e, kind, n, power, seed, table, pages, flags, work, hashes, k)
                    more = at(state, DONE) == ZERO
                if step == _FIRST:
                    if permute:
                        permutations(bins, t, factors, hashes, k, end)
                    else:
                        first_round(bins, t, hashes, k, end)
                    total += end - k
                    k = end if total <= n_cached else np.int64(0)
                elif step == _COLLECT:
                    n_distinct = collect(distinct, mask, n_cached, n_distinct, hashes, k, end)
                    more = more and n_distinct <= n_cached
                elif step == _LATER:
                    n_empty -= later_round(bins, rounds, t, r, fresh, hashes, k, end)
                else:
                    last_rounds(bins, rounds, t, seed, hashes, k, end)
            if step == _FIRST:
                n_listed = total if total <= n_cached else np.int64(-1)
                for b in range(t):
                    if at(bins, b) == NONE and total > 0 and not permute:
                        put(rounds, b, EMPTY)
                        n_empty += 1
            elif step == _COLLECT:
                collected = True
                if n_distinct <= n_cached:
                    n_listed = listed(distinct, mask, hashes)
            elif step == _LATER:
                r += 1
            if step == _LAST or n_empty == 0:
                step = _END
            elif not collected and (n_listed < 0 or spent > n_budget):
                # Still empty bins after so many hashes: most of them are repeated.
                step = _COLLECT
                mask = np.int64(15)
                n_most = n_listed if n_listed >= 0 else n_cached
                while mask + 1 < 2 * n_most:
                    mask = 2 * mask + 1
                for k in range(mask + 1):
                    put(distinct, k, ZERO)
            else:
                step = _LATER if r < t else _LAST
                spent += n_listed
        for b in range(t):
            if at(rounds, b) == EMPTY:
                put(rounds, b, np.int32(t + b))
        words(bins, rounds, t, wide)
        for band in range(bands):
            put(keys, row * bands + band, band_key(bins, band * n_rows, n_rows, band) if total > 0 else ZERO)
        put(n_shingles, row, total)


def band_keys(
    parts: StringBuffers,
    *,
    n: int,
    unit: Unit,
    bands: int,
    rows: int,
    seed: int,
    wide: bool = False,
    method: Method = "fss",
) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Return (keys[document, band], number of shingles of each document, repeated ones counted).

    Shingles are `n` code points or words in a row; a shorter document is one shingle, a blank or null one has none and
    keys of 0, which no other has. Bins compare 32 bits of a hash, 64 if `wide`. `method="permutations"` is plain
    MinHash, for comparison: many times slower.
    """
    plan = shingling("band_keys", n, unit, seed)
    starts, ends = parts.spans()
    return sketched(parts.data, starts, ends, plan, bands, rows, wide, method)


def sketched(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    plan: Shingling,
    bands: int,
    rows: int,
    wide: bool,
    method: Method,
) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Return the `band_keys` of the documents data[starts[i]:ends[i])."""
    check_number("band_keys", "bands", bands, 1, MAX_BINS)
    check_number("band_keys", "rows", rows, 1, MAX_BINS)
    check_number("band_keys", "bands * rows", bands * rows, 1, MAX_BINS)
    if method not in get_args(Method):
        raise UsageError(f"band_keys: method must be 'fss' or 'permutations', got {method!r}")
    t = bands * rows
    n_cached = 1 << max(14, (16 * t - 1).bit_length())
    n_budget = int(t * (math.log(t) + 4))
    permute = method == "permutations"
    keys, n_shingles = np.empty((starts.size, bands), np.uint64), np.empty(starts.size, np.int64)
    _sketches(
        *(data, starts, ends, plan.kind, plan.n, plan.power, plan.seed, plan.table, PAGE_OF, FLAGS),
        *(bands, rows, wide, permute, n_cached, n_budget, _factors(int(plan.seed), t if permute else 0)),
        *(*scratch(plan.n), np.empty(n_cached + CHUNK + SLACK, np.uint64), np.empty(2 * n_cached, np.uint64)),
        *(np.empty(t, np.uint64), np.empty(t, np.int32), keys.reshape(-1), n_shingles),
    )
    return keys, n_shingles


def _factors(seed: int, t: int) -> NDArray[np.uint64]:
    """Return t odd factors, then t summands."""
    return np.array([mixed(seed ^ k) | (k < t) for k in range(2 * t)], np.uint64)
