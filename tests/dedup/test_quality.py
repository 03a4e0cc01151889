"""Fuzzy deduplication against the truth: exact Jaccard similarities of all pairs of real documents, made without Tamis.

`truth` counts, for every pair, the shingles that both have: shingles with the same list of documents are counted
together, so that a passage of many shingles is one entry. Hits of band keys are held against 1 - (1 - J^rows)^bands,
the whole workflow against what it promises. benchmarks/dedup.py prints the same tables.
"""

from __future__ import annotations

import io
import itertools
import json
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tamis.backends.local import InProcessExecutor
from tamis.dedup.fuzzy.workflow import RemoveFuzzyDuplicates
from tamis.kernels.buffers import string_buffers
from tamis.kernels.sketch.band_keys import band_keys

N_CHARS, BANDS, ROWS, MIN_SHINGLES = 24, 20, 13, 10
THRESHOLD = 0.7711  # the curve's midpoint
SEEDS = range(42, 52)
BINS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0)


# -- the truth --------------------------------------------------------------------------------------------------------
def shingles(text: str, n: int = N_CHARS) -> np.ndarray:
    """Return the set of shingles of a text as sorted 64-bit hashes, by another hash than Tamis has."""
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32).astype(np.uint64) + np.uint64(1)
    size = max(1, len(points) - n + 1)
    rolled = np.zeros(size, np.uint64)
    for k in range(min(n, len(points))):
        rolled = rolled * np.uint64(0xD1342543DE82EF95) + points[k : k + size]
    rolled ^= rolled >> np.uint64(31)
    rolled *= np.uint64(0x9FB21C651E98DF25)
    return np.unique(rolled ^ (rolled >> np.uint64(28)))


def truth(texts: list[str], n: int = N_CHARS) -> np.ndarray:
    """J[a, b], the Jaccard similarity of every pair."""
    sets = [shingles(text, n) for text in texts]
    sizes = np.array([len(one) for one in sets])
    hashes = np.concatenate(sets)
    owner = np.repeat(np.arange(len(sets), dtype=np.int32), sizes)
    del sets
    order = np.argsort(hashes, kind="stable")
    hashes, owner = hashes[order], owner[order]
    del order
    first = np.flatnonzero(np.concatenate([[True], hashes[1:] != hashes[:-1]]))
    n_owners = np.diff(np.append(first, len(hashes)))
    shared = np.zeros((len(texts), len(texts)), np.int32)
    tags = np.random.default_rng(1).integers(1, 1 << 63, len(texts), np.uint64)
    lists = np.add.reduceat(tags[owner], first)  # the same for the same documents
    several = n_owners > 1
    _, one, weight = np.unique(lists[several], return_index=True, return_counts=True)
    places, lengths = first[several][one], n_owners[several][one]
    for length in np.unique(lengths).tolist():
        these = lengths == length
        _count(shared, owner[places[these][:, None] + np.arange(length)], weight[these])
    unions = sizes[:, None] + sizes[None, :] - shared
    return np.asarray((shared / unions).astype(np.float32))


def _count(shared: np.ndarray, lists: np.ndarray, weights: np.ndarray) -> None:
    """Add the weight of every list (a row, ascending) to all pairs of its documents."""
    if lists.shape[1] > 12:
        for documents, weight in zip(lists, weights.tolist(), strict=True):
            shared[documents[:, None], documents] += weight
        return
    flat = shared.reshape(-1)
    for i in range(lists.shape[1]):
        for j in range(lists.shape[1]):
            if i != j:
                at = lists[:, i].astype(np.int64) * shared.shape[1] + lists[:, j]
                np.add.at(flat, at, weights.astype(np.int32))


def expected(similarity: Any, bands: int = BANDS, rows: int = ROWS) -> Any:
    return 1 - (1 - np.asarray(similarity, np.float64) ** rows) ** bands


def share_a_band(texts: list[str], seed: int) -> tuple[np.ndarray, np.ndarray]:
    """(hit[a, b], documents long enough to be compared)."""
    parts = string_buffers(pa.array(texts, pa.large_string()))
    keys, n_shingles = band_keys(parts, n=N_CHARS, unit="char", bands=BANDS, rows=ROWS, seed=seed)
    hit = np.zeros((len(texts), len(texts)), bool)
    for band in keys.T:
        order = np.argsort(band, kind="stable")
        cuts = np.flatnonzero(np.diff(band[order])) + 1
        for group in np.split(order, cuts):
            if len(group) > 1:
                hit[group[:, None], group] = True
    np.fill_diagonal(hit, False)
    return hit, n_shingles >= MIN_SHINGLES


# -- documents --------------------------------------------------------------------------------------------------------
def corpus() -> Iterator[str]:
    import zstandard

    folder = Path(os.environ.get("TAMIS_SHARED", Path(__file__).resolve().parents[3] / "shared")) / "corpus"
    files = sorted(folder.glob("*.jsonl.zst"))
    if not files:
        pytest.skip("the shared corpus is absent; set TAMIS_SHARED to the folder that holds it")
    for file in files:
        with file.open("rb") as raw, zstandard.ZstdDecompressor().stream_reader(raw) as stream:
            for line in io.TextIOWrapper(stream, encoding="utf-8", newline="\n"):
                yield json.loads(line)["text"]


def families(n: int) -> list[str]:
    """Return `n` different documents, first those that have a relative.

    Pairs that have most of their long lines in common come first.
    """
    texts = list(dict.fromkeys(corpus()))
    lines = [{line for line in text.split("\n") if len(line) >= 40} for text in texts]
    owners: dict[str, list[int]] = {}
    for i, own in enumerate(lines):
        for line in own:
            owners.setdefault(line, []).append(i)
    common: dict[tuple[int, int], int] = {}
    for some in owners.values():
        for pair in itertools.combinations(some, 2) if len(some) <= 40 else ():
            common[pair] = common.get(pair, 0) + 1
    likeness = {(a, b): count / len(lines[a] | lines[b]) for (a, b), count in common.items() if count > 1}
    related = itertools.chain.from_iterable(sorted(likeness, key=lambda pair: (-likeness[pair], pair)))
    chosen = dict.fromkeys([*related, *range(len(texts))])
    return [texts[i] for i in itertools.islice(chosen, n)]


# -- what is measured -------------------------------------------------------------------------------------------------
@dataclass
class Bin:
    """Pairs whose similarity is in [low, high).

    Hits of the default seed, and the mean over seeds on pairs without a common document.
    """

    low: float
    high: float
    n_pairs: int
    n_hits: int
    expected_hits: float
    n_trials: int
    trial_rate: float
    trial_expected: float
    sigma: float

    @property
    def within(self) -> bool:
        return abs(self.trial_rate - self.trial_expected) <= 4 * self.sigma + 1 / max(self.n_trials, 1)


@dataclass
class Candidates:
    bins: list[Bin]
    precision: float  # share of candidate pairs at or above the threshold
    expected_precision: float


def candidates(texts: list[str], similarity: np.ndarray) -> Candidates:
    """Recall per bin and precision of pairs that share a band."""
    hits = [share_a_band(texts, seed) for seed in SEEDS]
    enough = hits[0][1]
    a, b = np.triu_indices(len(texts), 1)
    both = enough[a] & enough[b]
    a, b = a[both], b[both]
    j = similarity[a, b]
    hit = hits[0][0][a, b]
    found = []
    for low, high in zip(BINS, (*BINS[1:-1], 1.0), strict=False):
        in_bin = np.flatnonzero((j >= low) & (j < high))
        alone = in_bin[_disjoint(a[in_bin], b[in_bin])]
        chances = expected(j[alone])
        n = len(alone) * len(SEEDS)
        rate = float(np.mean([h[a[alone], b[alone]].mean() for h, _ in hits])) if n else 0.0
        sigma = float(np.sqrt((chances * (1 - chances)).sum() * len(SEEDS))) / max(n, 1)
        found.append(
            Bin(
                *(low, high, len(in_bin), int(hit[in_bin].sum()), float(expected(j[in_bin]).sum())),
                *(n, rate, float(chances.mean()) if n else 0.0, sigma),
            )
        )
    chances = expected(j)
    precision = float((j[hit] >= THRESHOLD).mean()) if hit.any() else 1.0
    return Candidates(found, precision, float(chances[j >= THRESHOLD].sum() / chances.sum()))


def _disjoint(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Positions of pairs no two of which have a document in common: their hits are nearly independent."""
    taken: set[int] = set()
    chosen = []
    for i, (x, y) in enumerate(zip(a.tolist(), b.tolist(), strict=True)):
        if x not in taken and y not in taken:
            taken |= {x, y}
            chosen.append(i)
    return np.array(chosen, np.int64)


def read(folder: Path) -> list[int]:
    """Ids of the documents that stay."""
    return [json.loads(line)["id"] for p in sorted(folder.glob("*.jsonl")) for line in p.read_bytes().splitlines()]


@dataclass
class Removal:
    n_documents: int
    n_removed: int
    precision: float  # share of those whose true similarity to the kept one reaches the threshold
    similarity_error: float
    n_leaks: int  # kept documents with a kept neighbour at or above the threshold
    expected_missed: float  # pairs at or above the threshold that share no band, as the curve has it
    n_found_leaks: int  # of the leaks: those that share a band with the neighbour, so that they could have been seen
    n_beyond_leaders: int


def removal(texts: list[str], similarity: np.ndarray, folder: Path) -> Removal:
    """Run the whole workflow on these texts, in one file."""
    source = folder / "in" / "all.jsonl"
    source.parent.mkdir(parents=True)
    places: dict[str, int] = {}
    with open(source, "wb") as out:
        for i, text in enumerate(texts):
            places[f"000000_{out.tell()}"] = i
            out.write(json.dumps({"id": i, "text": text}).encode() + b"\n")
    workflow = RemoveFuzzyDuplicates(None, str(folder / "out"), str(source), max_source_loss=1)
    result = workflow.run(InProcessExecutor(), memory="1GB")
    rows = pq.read_table(result.duplicates).to_pylist()
    gone = np.array([places[row["id"]] for row in rows], np.int64)
    kept = np.array([places[row["kept_id"]] for row in rows], np.int64)
    told = np.array([row["similarity"] for row in rows])
    left = read(folder / "out")
    assert sorted([*left, *gone.tolist()]) == list(range(len(texts)))
    assert set(kept.tolist()) <= set(left)
    near = similarity[np.ix_(left, left)] >= THRESHOLD
    np.fill_diagonal(near, False)
    hit, enough = share_a_band(texts, workflow.seed)
    seen = near & hit[np.ix_(left, left)] & (enough[left][:, None] & enough[left])
    a, b = np.triu_indices(len(texts), 1)
    j = similarity[a, b]
    true = similarity[gone, kept]
    return Removal(
        n_documents=len(texts),
        n_removed=len(gone),
        precision=float((true >= THRESHOLD - 1e-6).mean()),
        similarity_error=float(np.abs(true - told).max()),
        n_leaks=int(near.any(axis=1).sum()),
        expected_missed=float((1 - expected(j[j >= THRESHOLD])).sum()),
        n_found_leaks=int(seen.any(axis=1).sum()),
        n_beyond_leaders=int(result.summary["n_beyond_leaders"]),
    )


def check(texts: list[str], folder: Path, least_pairs: int) -> None:
    similarity = truth(texts)
    assert RemoveFuzzyDuplicates(None, str(folder), "in").threshold == THRESHOLD
    found = candidates(texts, similarity)
    assert sum(one.n_pairs for one in found.bins) >= least_pairs
    assert [one for one in found.bins if not one.within] == []
    assert abs(found.precision - found.expected_precision) < 0.1
    done = removal(texts, similarity, folder)
    assert done.n_removed > least_pairs // 20
    assert done.precision >= 0.99
    assert done.similarity_error < 0.02
    assert done.n_beyond_leaders == 0
    assert done.n_found_leaks == 0
    assert done.n_leaks <= 2 * done.expected_missed + 10


# -- tests ------------------------------------------------------------------------------------------------------------
def test_the_truth_is_that_of_sets() -> None:
    rng = random.Random(3)
    passages = ["".join(rng.choices("ab é漢", k=60)) for _ in range(12)]
    texts = ["".join(rng.sample(passages, rng.randint(1, 6))) for _ in range(40)] + ["short", "short", "", "x" * 200]
    found = truth(texts, 5)
    sets = [{t[i : i + 5] for i in range(max(1, len(t) - 4))} for t in texts]
    for a, one in enumerate(sets):
        for b, other in enumerate(sets):
            if a != b:
                assert found[a, b] == pytest.approx(len(one & other) / len(one | other), abs=1e-6)


@pytest.mark.corpus
def test_a_thousand_real_documents(tmp_path: Path) -> None:
    check(families(1000), tmp_path, least_pairs=200)


@pytest.mark.corpus
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_five_thousand_real_documents(tmp_path: Path) -> None:
    check(families(5000), tmp_path, least_pairs=1000)


def insert_word(text: str, rng: random.Random) -> str:
    words = text.split(" ")
    words.insert(rng.randrange(len(words)), "nevertheless")
    return " ".join(words)


def swap_paragraphs(text: str, rng: random.Random) -> str:
    paragraphs = text.split("\n\n")
    a, b = rng.sample(range(len(paragraphs)), 2)
    paragraphs[a], paragraphs[b] = paragraphs[b], paragraphs[a]
    return "\n\n".join(paragraphs)


def add_boilerplate(text: str, rng: random.Random) -> str:
    head = f"Home | Products | About us | Page {rng.randrange(1000)}\n\n"
    return head + text + "\n\nAll rights reserved. Read our terms of use and our privacy notice before you go on.\n"


EDITS = {
    "one word inserted": insert_word,
    "two paragraphs swapped": swap_paragraphs,
    "boilerplate added": add_boilerplate,
}


def documents_to_edit(n: int) -> list[str]:
    """Return so many documents of their own, 4 to 20 kB and of several paragraphs."""
    fit = [text for text in corpus() if 4000 <= len(text) <= 20_000 and text.count("\n\n") >= 8]
    return random.Random(5).sample(list(dict.fromkeys(fit)), n)


def found_after(edit: str, texts: list[str], folder: Path) -> tuple[int, float]:
    """(pairs of which one document is removed for a similar one, lowest true similarity of a pair)."""
    rng = random.Random(6)
    copies = [EDITS[edit](text, rng) for text in texts]
    (folder / "in").mkdir(parents=True)
    rows = [*enumerate(texts), *enumerate(copies, start=len(texts))]
    (folder / "in" / "all.jsonl").write_text("".join(json.dumps({"id": i, "text": t}) + "\n" for i, t in rows))
    workflow = RemoveFuzzyDuplicates(None, str(folder / "out"), str(folder / "in"), max_source_loss=1)
    workflow.run(InProcessExecutor(), memory="1GB")
    left = set(read(folder / "out"))
    n_found = sum(not {i, i + len(texts)} <= left for i in range(len(texts)))
    lowest = min(float(truth([a, b])[0, 1]) for a, b in zip(texts, copies, strict=True))
    return n_found, lowest


@pytest.fixture(scope="module")
def originals() -> list[str]:
    return documents_to_edit(200)


@pytest.mark.corpus
@pytest.mark.parametrize("edit", sorted(EDITS))
def test_edited_copies_are_still_found(edit: str, originals: list[str], tmp_path: Path) -> None:
    n_found, lowest = found_after(edit, originals, tmp_path)
    assert lowest > 0.9
    assert n_found == 200
