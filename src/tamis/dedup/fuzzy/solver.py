"""The decisions of fuzzy deduplication: link, list candidates, verify, choose.

Two calls with a pass over the documents between them: `find_candidates` after the sketches are there, `decide` after
the texts of the candidates are. Without verification the first call decides. Both can be repeated at any time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tamis.dedup.decisions import DecisionFiles, Decisions, write_positions
from tamis.dedup.exact.solver import exact_duplicates
from tamis.dedup.fuzzy.bands import Linked, component_facts
from tamis.dedup.index.joint_records import JoinedRecords, decision_files, n_old, similar_to_indexed, with_new
from tamis.dedup.records import Array, Records
from tamis.formats.scratch.stored_arrays import StoredArray, open_npy

if TYPE_CHECKING:
    from tamis.dedup.solver import SolverRun
    from tamis.dedup.solver_task import CompareCandidates, FindCandidates, LinkBands, RangeResults
    from tamis.dedup.state import Summary

BYTES_PER_CANDIDATE = 200  # while a slice of the components is looked up and ordered
Say = Callable[[str], Callable[[float], None]]


def link_bands(step: LinkBands, run: SolverRun) -> None:
    """Link documents that share a band of one pass."""
    records, threads = run.open_records(step.records), run.task.n_threads
    link_pass(run.folder, records, step.bands, run.room_bytes, run.progress, threads, step.ranges)


def list_candidates(step: FindCandidates, run: SolverRun) -> None:
    """List the documents whose texts are compared."""
    run.state.candidates.write(find_candidates(run.folder, run.open_records(), run.room_bytes))


def compare_candidates(step: CompareCandidates, run: SolverRun) -> None:
    """Decide which documents are removed, and write it down."""
    records = run.open_records()
    decisions, facts = decide(records, step, run)
    if step.equal_tables is not None:
        run.write_equal(records, equal_decisions(run.folder, records, run.room_bytes), step.equal_tables)
    candidates = run.state.candidates.read() or {}
    run.conclude(records, decisions, {**candidates, **facts}, step.keep_by, step.facts)


def link_pass(
    folder: str,
    records: Records,
    bands: list[int],
    room_bytes: int,
    say: Say,
    threads: int = 1,
    ranges: RangeResults | None = None,
) -> None:
    """Link the bands of one pass; with the first pass equal documents are found, too.

    `ranges`: folders of what workers found already.
    """
    marker = os.path.join(folder, "equal.done")
    first = not os.path.exists(marker)
    equal = equal_decisions(folder, records, room_bytes, first)
    if first:
        if ranges is not None:
            from tamis.dedup.range_passes.results import add_equal

            add_equal(ranges.equal, equal)
        else:
            exact_duplicates(records, equal, room_bytes, say("equal texts"))
        open(marker, "wb").close()
    linked = Linked(folder, len(records), room_bytes)
    linked.begin()
    if ranges is not None and ranges.bands is not None:
        from tamis.dedup.range_passes.results import add_edges

        add_edges(ranges.bands, linked)
    else:
        linked.add_bands(records, bands, equal.numbers(), say("shared bands"), threads)
    linked.save()


def equal_decisions(folder: str, records: Records, room_bytes: int, fresh: bool = False) -> DecisionFiles:
    """Return the equal documents that `link_pass` found: those to be removed, and the one of each group that stays."""
    return decision_files(os.path.join(folder, "equal"), records, room_bytes, fresh)


def find_candidates(folder: str, records: Records, room_bytes: int) -> Summary:
    """Find the components, and the table of places whose texts are needed to verify them."""
    linked = Linked(folder, len(records), room_bytes)
    linked.begin()
    pairs = linked.clusters()
    numbers = None
    if isinstance(records, JoinedRecords):
        pairs, numbers = with_new(pairs, records.n_old)
    np.save(os.path.join(folder, "clusters.npy"), pairs)
    facts: Summary = {
        "n_edges": linked.n_edges,
        "n_heavy_buckets": linked.n_heavy,
        "largest_bucket": linked.heaviest,
        "n_candidates": len(pairs),
        **component_facts(pairs),
    }
    if numbers is None:
        numbers = (pairs & np.uint64(0xFFFFFFFF)).astype(np.uint32)
        numbers.sort()
    del pairs, linked
    np.save(os.path.join(folder, "candidates.npy"), numbers)
    step = max(1, room_bytes // BYTES_PER_CANDIDATE)
    slices = (numbers[a : a + step] for a in range(0, len(numbers), step))
    write_positions(slices, records, os.path.join(folder, "candidates"))
    return facts


def decide(records: Records, step: CompareCandidates, run: SolverRun) -> tuple[DecisionFiles, Summary]:
    """Find all duplicates: equal texts, and documents that resemble one that stays."""
    folder, room_bytes = run.folder, run.room_bytes
    pairs = open_npy(os.path.join(folder, "clusters.npy"))
    counts: Summary = {}
    progress = run.progress("comparing")
    joined = records if isinstance(records, JoinedRecords) else None
    slices = _slices(pairs, max(1, room_bytes // BYTES_PER_CANDIDATE))
    parts = []
    if step.threshold is None:
        for part, done in slices:
            parts.append(_all_but_the_first(*_ordered(part, records, step.keep == "first")))
            progress(done)
    else:
        from tamis.dedup.fuzzy.candidate_texts import InputTexts, StoredTexts, Texts
        from tamis.dedup.fuzzy.verify import Verifier, verify_components

        numbers = np.load(os.path.join(folder, "candidates.npy"))
        texts: StoredTexts
        if step.texts is None:
            positions = os.path.join(folder, "candidates")
            texts = InputTexts(run.paths(), positions, numbers, step.text_field, step.normalize_text)
        else:
            texts = Texts(step.texts, numbers)
        verifier = Verifier(texts, step.threshold, step.shingle_length, step.shingle_unit, step.seed, room_bytes // 4)
        verifiers = verifier.several(max(1, run.task.n_threads))
        for whole, done in slices:
            part = whole
            if joined is not None:
                part, indexed, n_capped = similar_to_indexed(whole, joined, verifier.threshold, room_bytes // 4)
                parts.append(indexed)
                verifier.n_capped += n_capped
            parts.append(verify_components(verifiers, *_ordered(part, records, step.keep == "first")))
            progress(done)
        for one in verifiers:
            one.texts.close()
        counts = {
            "n_compared": sum(v.n_compared for v in verifiers),
            "n_beyond_leaders": sum(v.n_capped for v in verifiers),
        }
    gone, partners, similarity = (
        np.concatenate([p[k] for p in parts]) if parts else np.empty(0, np.uint32) for k in range(3)
    )
    new = gone >= n_old(records)  # without a threshold indexed documents go for others, too
    gone, partners, similarity = gone[new], partners[new], similarity[new]
    # Where an exact deduplication before this one takes equal documents away, similar ones are left.
    equal: DecisionFiles | list[Decisions] = (
        [] if step.equal_tables is not None else equal_decisions(folder, records, room_bytes)
    )
    decisions = _joined(folder, records, equal, gone, partners, similarity, room_bytes)
    return decisions, {**counts, "n_equal": len(equal), "n_similar": len(gone)}


def _slices(pairs: StoredArray, step: int) -> Iterator[tuple[NDArray[np.uint64], float]]:
    """Yield whole components, about `step` documents at a time."""
    first = 0
    while first < len(pairs):
        last = min(first + step, len(pairs))
        while last < len(pairs) and pairs[last] >> np.uint64(32) == pairs[last - 1] >> np.uint64(32):
            last += 1
        yield pairs.read(first, last), last / len(pairs)
        first = last


def _ordered(pairs: NDArray[np.uint64], records: Records, by_place: bool) -> tuple[Array, Array, Array]:
    """Return (number, root, length): components one after the other, each best first.

    By rank; then, unless the first in the input is to stay, by content, which is the same in whatever order the files
    come; then by place.
    """
    number, root = (pairs & np.uint64(0xFFFFFFFF)).astype(np.uint32), (pairs >> np.uint64(32)).astype(np.uint32)
    order = np.argsort(number, kind="stable")
    facts = records.gather(["rank", "hi", "lo", "length"], number[order])
    number, root = number[order], root[order]
    by = np.lexsort((number, root) if by_place else (number, facts["lo"], facts["hi"], facts["rank"], root))
    return number[by], root[by], facts["length"][by]


def _all_but_the_first(number: Array, root: Array, length: Array) -> tuple[Array, Array, Array]:
    first = np.ones(len(number), bool)
    first[1:] = root[1:] != root[:-1]
    head = np.flatnonzero(first)
    sizes = np.diff(np.append(head, len(number)))
    partner = np.repeat(number[head], sizes)
    return number[~first], partner[~first], np.full(int((~first).sum()), np.nan, np.float32)


def _joined(
    folder: str,
    records: Records,
    equal: Iterable[Decisions],
    gone: Array,
    partners: Array,
    similarity: Array,
    room_bytes: int,
) -> DecisionFiles:
    """Assign equal documents to the one they equal; sizes count all that is removed in favour of a document."""
    order = np.argsort(gone, kind="stable")
    gone, partners, similarity = gone[order], partners[order], similarity[order]
    sizes = np.ones(len(records), np.uint32)
    np.add.at(sizes, partners, np.uint32(1))

    def moved(part_kept: Array) -> tuple[Array, Array]:
        if not len(gone):
            return part_kept, np.ones(len(part_kept), np.float32)
        positions = np.minimum(np.searchsorted(gone, part_kept), len(gone) - 1)
        also = gone[positions] == part_kept
        return np.where(also, partners[positions], part_kept), np.where(also, similarity[positions], np.float32(1))

    for part in equal:
        np.add.at(sizes, moved(part.kept)[0], np.uint32(1))
    decisions = decision_files(os.path.join(folder, "found"), records, room_bytes)
    decisions.add(gone, partners, similarity, sizes[partners])
    for part in equal:
        stays, alike = moved(part.kept)
        decisions.add(part.number, stays, alike, sizes[stays])
    return decisions
