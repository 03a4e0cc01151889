"""The decisions of fuzzy deduplication: link, list candidates, verify, choose.

Two calls with a pass over the documents between them: `find_candidates` after the sketches are there, `decide` after the texts of
the candidates are. Without verification the first call decides. Both can be repeated at any time.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tamis.dedup.bands import Linked, clusters, component_facts, link_bands
from tamis.dedup.decisions import Decisions, write_places
from tamis.dedup.groups import exact_duplicates
from tamis.dedup.records import Array, Records

Say = Any


def link_pass(folder: str, records: Records, bands: list[int], room_bytes: int, say: Say) -> None:
    """Link the bands of one pass into folder/linked.npz; with the first pass equal documents are found, too."""
    path, equal_path = os.path.join(folder, "linked.npz"), os.path.join(folder, "equal.npz")
    if not os.path.exists(path):
        equal = exact_duplicates(records, room_bytes, say("equal texts"))
        _save(equal_path, equal)
        linked = Linked(np.arange(len(records), dtype=np.uint32))
    else:
        equal, linked = _load(equal_path), Linked.load(path)
    link_bands(linked, records, bands, equal, room_bytes, say("shared bands"))
    linked.save(path)


def find_candidates(folder: str, records: Records) -> dict[str, Any]:
    """Components, and the table of places whose texts are needed to verify them."""
    linked = Linked.load(os.path.join(folder, "linked.npz"))
    number, root = clusters(linked)
    np.savez(os.path.join(folder, "clusters.npz"), number=number, root=root)
    write_places(np.sort(number), records, os.path.join(folder, "candidates"))
    facts = {"n_edges": linked.n_edges, "n_heavy_buckets": linked.n_heavy, "largest_bucket": linked.heaviest}
    return {"n_candidates": len(number), **facts, **component_facts(root)}


def decide(
    folder: str, records: Records, task: dict[str, Any], room_bytes: int, say: Say
) -> tuple[Decisions, dict[str, Any]]:
    """All duplicates: equal texts, and what resembles a document that stays."""
    equal = _load(os.path.join(folder, "equal.npz"))
    with np.load(os.path.join(folder, "clusters.npz"), allow_pickle=False) as stored:
        number, root = stored["number"], stored["root"]
    order = np.argsort(number, kind="stable")
    facts = records.gather(["rank", "hi", "lo", "length"], number[order])
    back = np.empty(len(order), np.int64)
    back[order] = np.arange(len(order))
    rank, hi, lo, length = (facts[n][back] for n in ("rank", "hi", "lo", "length"))
    # Best first: by rank; then by content, which is the same in whatever order the files come; then by place.
    by = np.lexsort((number, lo, hi, rank, root))
    number, root, length = number[by], root[by], length[by]
    told: dict[str, Any] = {}
    if task.get("threshold") is None:
        gone, kept, similarity = _all_but_the_first(number, root)
    else:
        from tamis.dedup.texts import Texts
        from tamis.dedup.verify import Verifier, verify_components

        texts = Texts(task["texts"], np.sort(number))
        verifier = Verifier(texts, float(task["threshold"]), task["n"], task["unit"], task["seed"], room_bytes // 4)
        gone, kept, similarity = verify_components(verifier, number, root, length, say("comparing"))
        texts.close()
        told = {"n_compared": verifier.n_compared, "n_beyond_leaders": verifier.n_capped}
    return _joined(equal, gone, kept, similarity), {**told, "n_equal": len(equal), "n_similar": len(gone)}


def _all_but_the_first(number: Array, root: Array) -> tuple[Array, Array, Array]:
    first = np.ones(len(number), bool)
    first[1:] = root[1:] != root[:-1]
    head = np.flatnonzero(first)
    sizes = np.diff(np.append(head, len(number)))
    kept = np.repeat(number[head], sizes)
    return number[~first], kept[~first], np.full(int((~first).sum()), np.nan, np.float32)


def _joined(equal: Decisions, gone: Array, kept: Array, similarity: Array) -> Decisions:
    """Equal documents go where the one they equal goes."""
    order = np.argsort(gone, kind="stable")
    gone, kept, similarity = gone[order], kept[order], similarity[order]
    at = np.minimum(np.searchsorted(gone, equal.kept), max(len(gone) - 1, 0))
    moved = gone[at] == equal.kept if len(gone) else np.zeros(len(equal), bool)
    equal_kept = np.where(moved, kept[at], equal.kept) if len(gone) else equal.kept
    equal_similarity = np.where(moved, similarity[at], np.float32(1)) if len(gone) else equal.similarity
    number = np.concatenate([equal.number, gone])
    all_kept = np.concatenate([equal_kept, kept])
    _, inverse, counts = np.unique(all_kept, return_inverse=True, return_counts=True)
    size = counts[inverse] + 1 if len(all_kept) else np.empty(0, np.int64)
    return Decisions.of(number, all_kept, np.concatenate([equal_similarity, similarity]), size)


def _save(path: str, decisions: Decisions) -> None:
    with open(path + ".tmp", "wb") as file:
        np.savez(file, number=decisions.number, kept=decisions.kept, size=decisions.size)
    os.replace(path + ".tmp", path)


def _load(path: str) -> Decisions:
    with np.load(path, allow_pickle=False) as stored:
        ones: NDArray[np.float32] = np.ones(len(stored["number"]), np.float32)
        return Decisions(stored["number"], stored["kept"], ones, stored["size"])
