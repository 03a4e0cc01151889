"""Jaccard similarity of the shingle sets of one document and several others, to verify what equal band keys suggest.

The leader's distinct hashes are entries in the order of the text, with a table of open addressing to find them;
members are streamed against them. Where a member repeats the leader, its next hash is the next entry, and nothing is
searched. A hit marks its entry with the member's number, so that it counts once; what is not the leader's goes into a
second table, which is emptied by that number too. With h hits, n entries and m others the similarity is h / (n + m).
Where only the verdict counts (`lead`), a member is left as soon as n / (n + m) is below the threshold: most share a
band by chance.

Memory: up to 80 bytes for each byte of the leader and 128 of the longest member, both counted up to `max_shingles`
(14 MB by default), and 70 kB. Where a document has more distinct shingles, both sets are thinned by the same rule: only
hashes below 2**64 / 2**k count, for the smallest k that fits. The walk starts anew with each k, which at most doubles
the work, as each attempt before ended halfway.
"""
# Compiled functions carry their types in the signatures of the kernels; numbers there change from int to int64.
# mypy: disable-error-code="no-untyped-def, assignment"

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tamis.errors import UsageError
from tamis.kernels.buffers import StringBuffers
from tamis.kernels.language import types
from tamis.kernels.language.intrinsics import at, pointer, put
from tamis.kernels.language.jit import helper, kernel
from tamis.kernels.language.types import F64_OUT, I64_IN, I64_OUT, U8_IN, U8_OUT, U16_IN, U64_IN, U64_OUT
from tamis.kernels.sketch._documents import Unit, check_number, scratch, shingling
from tamis.kernels.sketch._shingles import CHUNK, DONE, HASHES, SLACK, WORDS, next_shingles, start
from tamis.kernels.text._blocks import ONE, ZERO
from tamis.kernels.text._unicode import FLAGS, PAGE_OF

MAX_SHINGLES = 1 << 26
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
_LOW, _32 = np.uint64(0xFFFFFFFF), np.uint64(32)
_KEPT = 1 << 18  # shingles of one group of documents that are kept: 2 MB


@helper
def _thin(hashes, end, top):
    """Move the hashes up to `top` to the front; how many. Without a branch, for half of them or so are."""
    n_kept = 0
    for k in range(end):
        h = at(hashes, k)
        put(hashes, n_kept, h)
        n_kept += h <= top
    return n_kept


@helper
def _find(entries, slots, mask, h):
    """Return (entry or -1, slot where it is or belongs). A slot is the upper half of a hash, and 1 + its entry."""
    slot = np.int64(h & np.uint64(mask))
    while True:
        word = at(slots, slot)
        if word == ZERO:
            return np.int64(-1), slot
        entry = np.int64(word & _LOW) - 1
        if (word ^ h) >> _32 == ZERO and at(entries, 2 * entry) == h:
            return entry, slot
        slot = (slot + 1) & mask


@helper
def _learn(entries, n_entries, slots, mask, n_most, hashes, end):
    """Make entries of the leader's hashes; their number, n_most + 1 where they do not fit."""
    for k in range(end):
        h = at(hashes, k)
        entry, slot = _find(entries, slots, mask, h)
        if entry >= 0:
            continue
        put(entries, 2 * n_entries, h)
        put(entries, 2 * n_entries + 1, ZERO)
        n_entries += 1
        if n_entries > n_most:
            break
        put(slots, slot, (h & ~_LOW) | np.uint64(n_entries))
    return n_entries


@helper
def _compare(entries, n_entries, slots, mask, number, entry, n_hits, hashes, end):
    """Mark the entries of a member's hashes; (last entry, hits so far, hashes without an entry, now in front)."""
    n_left = 0
    for k in range(end):
        h = at(hashes, k)
        near = entry + 1
        if near >= n_entries or at(entries, 2 * near) != h:
            near, _ = _find(entries, slots, mask, h)
            if near < 0:
                put(hashes, n_left, h)
                n_left += 1
                continue
        entry = near
        n_hits += at(entries, 2 * entry + 1) != number
        put(entries, 2 * entry + 1, number)
    return entry, n_hits, n_left


@helper
def _enter(table, mask, number, n_most, n_others, hashes, end):
    """Add hashes to the set of those tagged `number`; its size, n_most + 1 where it does not fit."""
    k = 0
    while k < end and n_others <= n_most:
        h = at(hashes, k)
        slot = np.int64(h & np.uint64(mask))
        while at(table, 2 * slot + 1) == number and at(table, 2 * slot) != h:
            slot = (slot + 1) & mask
        n_others += at(table, 2 * slot + 1) != number
        put(table, 2 * slot, h)
        put(table, 2 * slot + 1, number)
        k += 1
    return n_others


@helper
def _most_shingles(kind, n_bytes):
    """Return the maximum number of shingles of a document of this many bytes; a word takes two of them."""
    if kind == HASHES:
        return n_bytes // 8
    return n_bytes // 2 + 1 if kind == WORDS else n_bytes + 1


@helper
def _follow(
    source, size, starts, ends, order, n_order, way, n_most, work, hashes, tables, masks, number, threshold, out
):
    """Write the similarity of document order[0] and each of order[1:n_order] to `out`; return the next number.

    The slots must be empty.

    A member is left, with 0, once its others alone keep it below the threshold: at most all n entries can be hits.
    """
    kind, n, power, seed, table, pages, flags = way
    entries, slots, others = tables
    slot_mask, widest_mask = masks
    state = work[3]
    n_entries = np.int64(0)
    leader_top = top = _ALL
    row = np.int64(0)
    while row < n_order:
        document = at(order, row)
        e = at(ends, document)
        entry = np.int64(-1)
        n_hits = n_others = np.int64(0)
        n_enough = n_most  # others
        if row > 0 and threshold > 0.0 and top == leader_top:
            n_enough = min(n_most, np.int64(n_entries * (1.0 / threshold - 1.0) + 1.0))
        # As large as this member needs: a small table stays in the nearest cache. Entries of others have other numbers.
        n_fit = min(_most_shingles(kind, e - at(starts, document)), n_enough + 1)
        other_mask = np.int64(15)
        while other_mask < 4 * n_fit and other_mask < widest_mask:
            other_mask = 2 * other_mask + 1
        start(source, at(starts, document), e, kind, pages, flags, state)
        while at(state, DONE) == ZERO and n_others <= n_enough and n_entries <= n_most:
            end = next_shingles(source, size, e, kind, n, power, seed, table, pages, flags, work, hashes, 0)
            if top != _ALL:
                end = _thin(hashes, end, top)
            if row == 0:
                n_entries = _learn(entries, n_entries, slots, slot_mask, n_most, hashes, end)
            else:
                entry, n_hits, end = _compare(entries, n_entries, slots, slot_mask, number, entry, n_hits, hashes, end)
                n_others = _enter(others, other_mask, number, n_enough, n_others, hashes, end)
        if n_entries > n_most:
            n_entries = np.int64(0)
            for slot in range(slot_mask + 1):
                put(slots, slot, ZERO)
            top >>= ONE
            continue
        number += ONE
        if n_others > n_enough and n_enough < n_most:
            put(out, row - 1, 0.0)
            row += 1
            continue
        if n_others > n_most:
            top >>= ONE
            continue
        if row == 0:
            leader_top = top
        else:
            n_union = n_others + n_entries
            if top != leader_top:
                n_union = n_others
                for k in range(n_entries):
                    n_union += at(entries, 2 * k) <= top
            put(out, row - 1, n_hits / n_union if n_union > 0 else 0.0)
        top = leader_top
        row += 1
    return number


_WAY = (types.int64, types.int64, types.uint64, types.uint64, U64_IN, U8_IN, U16_IN)  # how shingles are made
_ROOM = (U8_OUT, I64_OUT, U64_OUT, U64_OUT, U64_OUT, U64_OUT, U64_OUT, U64_OUT)  # scratch, hashes and tables


@kernel(types.void(U8_IN, I64_IN, I64_IN, I64_IN, *_WAY, types.int64, *_ROOM, F64_OUT))
def _similarities(
    data, starts, ends, order, kind, n, power, seed, table, pages, flags, n_most,
    pad, marks, units, state, hashes, entries, slots, others, out,
):  # fmt: skip
    _follow(
        pointer(data), data.size, starts, ends, order, order.size,
        (kind, n, power, seed, pointer(table), pointer(pages), pointer(flags)), n_most,
        (pointer(pad), pointer(marks), pointer(units), pointer(state)), pointer(hashes),
        (pointer(entries), pointer(slots), pointer(others)), (slots.size - 1, others.size // 2 - 1), ONE, 0.0, out,
    )  # fmt: skip


@helper
def _hash_all(source, size, starts, ends, first, last, way, work, kept, n_kept, kept_starts, kept_ends):
    """Write the shingles of documents [first, last) to `kept`, and their byte ranges; False where they may not fit."""
    kind, n, power, seed, table, pages, flags = way
    state = work[3]
    total = np.int64(CHUNK + SLACK)  # what the last call may write beyond
    for row in range(first, last):
        total += _most_shingles(kind, at(ends, row) - at(starts, row))
    if total > n_kept:
        return False
    k = np.int64(0)
    for row in range(first, last):
        e = at(ends, row)
        put(kept_starts, row, 8 * k)
        start(source, at(starts, row), e, kind, pages, flags, state)
        while at(state, DONE) == ZERO:
            k += next_shingles(source, size, e, kind, n, power, seed, table, pages, flags, work, kept, k)
        put(kept_ends, row, 8 * k)
    return True


@kernel(
    types.void(
        *(U8_IN, I64_IN, I64_IN, I64_IN, *_WAY, types.int64, *_ROOM, F64_OUT),
        *(types.float64, types.int64, I64_OUT, I64_OUT, F64_OUT, I64_OUT),
        *(U64_OUT, U8_IN, I64_OUT, I64_OUT),
    )
)
def _lead(
    data, starts, ends, cuts, kind, n, power, seed, table, pages, flags, n_most,
    pad, marks, units, state, hashes, entries, slots, others, out,
    threshold, max_leaders, left, leader, similarity, totals, kept, kept_bytes, kept_starts, kept_ends,
):  # fmt: skip
    way = (kind, n, power, seed, pointer(table), pointer(pages), pointer(flags))
    kept_way = (np.int64(HASHES), n, power, seed, pointer(table), pointer(pages), pointer(flags))
    work = (pointer(pad), pointer(marks), pointer(units), pointer(state))
    hash_at, tables = pointer(hashes), (pointer(entries), pointer(slots), pointer(others))
    number = ONE
    n_compared = n_capped = np.int64(0)
    for group in range(cuts.size - 1):
        # A document is compared with several others: where the shingles of all fit, they are made once.
        source, size, begins, stops, how = pointer(data), data.size, starts, ends, way
        if _hash_all(
            source, size, starts, ends, at(cuts, group), at(cuts, group + 1), way, work,
            pointer(kept), kept.size, kept_starts, kept_ends,
        ):  # fmt: skip
            source, size, begins, stops, how = pointer(kept_bytes), kept_bytes.size, kept_starts, kept_ends, kept_way
        n_left = np.int64(0)
        for row in range(at(cuts, group), at(cuts, group + 1)):
            put(left, n_left, row)
            n_left += 1
        n_leaders = 0
        while n_left > 0 and n_leaders < max_leaders:
            head = at(left, 0)
            n_leaders += 1
            put(leader, head, head)
            if n_left == 1:
                n_left = np.int64(0)
                break
            # As large as this leader needs: clearing costs as much as it has shingles, not as much as the largest has.
            n_slots = np.int64(16)
            n_fit = min(_most_shingles(how[0], at(stops, head) - at(begins, head)), n_most)
            while n_slots < 2 * n_fit:
                n_slots *= 2
            for slot in range(n_slots):
                put(tables[1], slot, ZERO)
            masks = (n_slots - 1, others.size // 2 - 1)
            number = _follow(
                *(source, size, begins, stops, left, n_left, how, n_most, work, hash_at, tables, masks, number),
                *(threshold, out),
            )
            n_compared += n_left - 1
            n_next = np.int64(0)
            for k in range(1, n_left):
                row = at(left, k)
                if at(out, k - 1) >= threshold:
                    put(leader, row, head)
                    put(similarity, row, at(out, k - 1))
                else:
                    put(left, n_next, row)
                    n_next += 1
            n_left = n_next
        n_capped += n_left
    put(totals, 0, n_compared)
    put(totals, 1, n_capped)


def lead(
    parts: StringBuffers,
    cuts: NDArray[np.int64],
    threshold: float,
    max_leaders: int,
    *,
    n: int,
    unit: Unit,
    seed: int,
    order: NDArray[np.int64] | None = None,
    max_shingles: int = 1 << 17,
) -> tuple[NDArray[np.int64], NDArray[np.float64], int, int]:
    """Decide, in each group of documents cuts[i]:cuts[i + 1], which stay and which leader the others follow.

    `order`: the position of each document, if these are some of `parts` or come in another order.

    The first document leads; those whose similarity with it reaches the threshold follow it; the first of the rest
    leads
    next, up to `max_leaders` times. Returns, by document: the one it follows (itself if it stays), the similarity
    (1.0 if it stays); and the number of comparisons, and of documents that stay because there were too many leaders.
    """
    plan = shingling("lead", n, unit, seed)
    check_number("lead", "max_shingles", max_shingles, 2, MAX_SHINGLES)
    cuts = np.ascontiguousarray(cuts, np.int64)
    n_rows = parts.n_rows if order is None else order.size
    if cuts.size < 1 or cuts[0] != 0 or cuts[-1] != n_rows or bool((np.diff(cuts) < 0).any()):
        raise UsageError(f"lead: cuts must ascend from 0 to {n_rows}")
    if order is not None and not _are_different(order, parts.n_rows):
        raise UsageError(f"lead: order must name each document once, by numbers below {parts.n_rows}")
    starts, ends = parts.spans(order)
    largest = min(int((ends - starts).max(initial=0)), max_shingles)
    widest = int(np.diff(cuts).max(initial=0))
    leader, similarity = np.arange(n_rows, dtype=np.int64), np.ones(n_rows, np.float64)
    totals = np.zeros(2, np.int64)
    kept = np.empty(_KEPT, np.uint64)
    kept_bytes = kept.view(np.uint8)
    kept_bytes.flags.writeable = False
    _lead(
        *(parts.data, starts, ends, cuts, plan.kind, plan.n, plan.power, plan.seed, plan.table, PAGE_OF, FLAGS),
        *(max_shingles, *scratch(plan.n), np.empty(CHUNK + SLACK, np.uint64), np.empty(2 * largest + 2, np.uint64)),
        *(np.empty(_slots(largest), np.uint64), np.zeros(2 * _slots(largest), np.uint64), np.empty(widest, np.float64)),
        *(threshold, max_leaders, np.empty(widest, np.int64), leader, similarity, totals),
        *(kept, kept_bytes, np.empty(n_rows, np.int64), np.empty(n_rows, np.int64)),
    )
    return leader, similarity, int(totals[0]), int(totals[1])


def _are_different(rows: NDArray[np.int64], n: int) -> bool:
    """Return True if these are numbers from 0 to below `n`, each present at most once."""
    if rows.size and not (int(rows.min()) >= 0 and int(rows.max()) < n):
        return False
    named = np.zeros(n, bool)
    named[rows] = True
    return int(np.count_nonzero(named)) == rows.size


def _slots(n: int) -> int:
    """Return the number of slots. At most a quarter of them is taken: a search that fails is short."""
    return max(16, 1 << (4 * n - 1).bit_length())


def similarities(
    parts: StringBuffers,
    leader: int,
    members: NDArray[np.int64],
    *,
    n: int,
    unit: Unit,
    seed: int,
    max_shingles: int = 1 << 17,
) -> NDArray[np.float64]:
    """Jaccard similarity of the sets of shingles of document `leader` and each of `members`; 0 where neither has any.

    Shingles are those of `band_keys` with the same `n`, `unit` and `seed`. Exact while neither document has more than
    `max_shingles` of them; beyond, an estimate without bias from the hashes below 2**64 / 2**k of both documents, about
    half of `max_shingles` or more.
    """
    plan = shingling("similarities", n, unit, seed)
    members = np.ascontiguousarray(members, np.int64)
    check_number("similarities", "max_shingles", max_shingles, 2, MAX_SHINGLES)
    check_number("similarities", "leader", leader, 0, parts.n_rows - 1)
    if members.size and not (int(members.min()) >= 0 and int(members.max()) < parts.n_rows):
        raise UsageError(
            f"similarities: members must be from 0 to {parts.n_rows - 1}, got {members.min()} to {members.max()}"
        )
    starts, ends = parts.spans()
    order = np.concatenate([np.array([leader], np.int64), members])
    out = np.empty(members.size, np.float64)
    # A document has no more shingles than bytes.
    n_leader = min(int(ends[leader] - starts[leader]), max_shingles)
    n_others = min(int((ends - starts)[members].max(initial=0)), max_shingles)
    _similarities(
        *(parts.data, starts, ends, order, plan.kind, plan.n, plan.power, plan.seed, plan.table),
        *(PAGE_OF, FLAGS, max_shingles, *scratch(plan.n), np.empty(CHUNK + SLACK, np.uint64)),
        *(np.empty(2 * n_leader + 2, np.uint64), np.zeros(_slots(n_leader), np.uint64)),
        *(np.zeros(2 * _slots(n_others), np.uint64), out),
    )
    return out
