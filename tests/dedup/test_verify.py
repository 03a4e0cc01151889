"""Greedy verification of one component: who stays, chunks that do not fit together, and the bound on comparisons."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

from tamis.dedup.fuzzy import verify
from tamis.dedup.fuzzy.verify import Verifier, verify_components
from tamis.kernels.buffers import string_buffers
from tamis.kernels.sketch.similarity import similarities


class Texts:
    def __init__(self, texts: list[str]) -> None:
        self.texts, self.most_bytes = texts, 0

    def another(self) -> Texts:
        return self

    def lot(self, numbers: Sequence[int]) -> tuple[pa.Array, np.ndarray]:  # type: ignore[type-arg]
        """Backwards, as if the last were read first."""
        return self.array(numbers[::-1]), np.arange(len(numbers))[::-1].copy()

    def array(self, numbers: Sequence[int]) -> pa.Array:
        self.most_bytes = max(self.most_bytes, sum(len(self.texts[n]) for n in numbers))
        return pa.array([self.texts[n] for n in numbers], pa.large_string())


def run(texts: list[str], room_bytes: int = 1 << 20, threshold: float = 0.5) -> tuple[list[tuple[int, int]], Verifier]:
    verifier = Verifier(Texts(texts), threshold, 1, "word", 1, room_bytes)  # type: ignore[arg-type]
    member = np.arange(len(texts), dtype=np.uint32)
    length = np.array([len(t) for t in texts], np.int64)
    gone, kept, _ = verify_components([verifier], member, np.zeros(len(texts), np.uint32), length)
    return list(zip(gone.tolist(), kept.tolist(), strict=True)), verifier


# 0 and 1 share 3 of 5 words, 1 and 2 too, 0 and 2 share 2 of 6: 2 resembles only what goes.
CHAIN = ["a b c d", "b c d e", "c d e f", "a b c x"]


@pytest.mark.parametrize("room_bytes", [1 << 20, 10, 1])
def test_a_document_that_resembles_only_one_that_goes_stays(room_bytes: int) -> None:
    assert run(CHAIN, room_bytes)[0] == [(1, 0), (3, 0)]


def test_what_goes_does_not_depend_on_the_room_where_sets_are_thinned() -> None:
    """400 words of 1,410 are shared, 0.284; of every other shingle, as many as are held at most, more may be."""
    rng = random.Random(8)
    words = ["".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(6)) for _ in range(1410)]
    texts = [" ".join(words[:400]), " ".join(words)]
    buffers = string_buffers(pa.array(texts, pa.large_string()))
    assert similarities(buffers, 0, np.array([1]), n=1, unit="word", seed=1, max_shingles=1000).tolist() == [
        pytest.approx(0.307, abs=1e-3)
    ]
    for room_bytes in (1 << 20, 1):
        verifier = Verifier(Texts(texts), 0.3, 1, "word", 1, room_bytes)  # type: ignore[arg-type]
        verifier.shingling["max_shingles"] = 1000
        length = np.array([len(t) for t in texts], np.int64)
        gone, _, _ = verify_components([verifier], np.arange(2, dtype=np.uint32), np.zeros(2, np.uint32), length)
        assert gone.tolist() == []


def test_similarities_are_reported() -> None:
    verifier = Verifier(Texts(CHAIN), 0.5, 1, "word", 1, 1 << 20)  # type: ignore[arg-type]
    member, root = np.arange(4, dtype=np.uint32), np.array([0, 0, 2, 2], np.uint32)
    gone, kept, alike = verify_components([verifier], member, root, np.full(4, 7, np.int64))
    assert (gone.tolist(), kept.tolist(), alike.tolist()) == ([1], [0], [pytest.approx(0.6)])
    assert verifier.n_compared == 2


def test_only_so_many_that_stay_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "MAX_LEADERS", 2)
    texts = ["a a1", "b b1", "c c1", "c c1 c1", "a a1 a1"]
    found, verifier = run(texts)
    assert found == [(4, 0)]  # 3 equals 2, but 2 came after the bound and is no leader
    assert verifier.n_capped == 2


def test_texts_held_at_once_have_a_bound_whatever_the_leaders() -> None:
    texts = [f"word{i} " * 10 for i in range(40)]  # nothing resembles anything: all but the last become leaders
    found, verifier = run([*texts, texts[30] + "more"], room_bytes=500)
    assert found == [(40, 30)]
    assert verifier.n_compared >= 40 * 39 // 2
    assert verifier.texts.most_bytes <= 2 * 500 + 90  # type: ignore[attr-defined]


@pytest.mark.parametrize("seed", range(5))
def test_small_components_together_give_what_each_gives_alone(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    texts = [" ".join(rng.choices("abcde", k=rng.randint(0, 6))) for _ in range(200)]
    root = np.sort(np.array([rng.randrange(60) for _ in texts], np.uint32))
    member = np.array(rng.sample(range(200), 200), np.uint32)
    length = np.array([len(texts[m]) for m in member], np.int64)
    outcomes = []
    for room_bytes, per_lot, n in (
        (1 << 20, 1 << 16, 1),
        (40, 1 << 16, 1),
        (1 << 20, 7, 1),
        (1, 1, 1),
        (1 << 20, 7, 3),
    ):
        monkeypatch.setattr(verify, "_LOT_DOCUMENTS", per_lot)
        verifiers = Verifier(Texts(texts), 0.5, 1, "word", 1, room_bytes).several(n)  # type: ignore[arg-type]
        found = verify_components(verifiers, member, root, length)
        n_compared = sum(v.n_compared for v in verifiers)
        outcomes.append([sorted(zip(*(column.tolist() for column in found), strict=True)), n_compared])
    assert all(outcome == outcomes[0] for outcome in outcomes)
    assert len(outcomes[0][0]) > 20


def test_components_too_large_for_one_thread_come_one_after_the_other_in_the_room_of_all() -> None:
    texts = [f"{'word ' * 40}{k}" for k in range(8)]
    verifiers = Verifier(Texts(texts), 0.1, 1, "word", 1, 900).several(3)  # type: ignore[arg-type]
    member, root = np.arange(8, dtype=np.uint32), np.repeat(np.arange(4, dtype=np.uint32), 2)
    found = verify_components(verifiers, member, root, np.array([len(t) for t in texts], np.int64))
    assert found[0].tolist() == [1, 3, 5, 7]
    assert [v.n_compared for v in verifiers] == [4, 0, 0]


def test_nothing_to_verify() -> None:
    assert run([])[0] == []
