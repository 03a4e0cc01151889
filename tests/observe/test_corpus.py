"""Groups of a corpus with their kept share, from samples."""

from __future__ import annotations

from tamis.engine.samples import DocumentSample, SampleOutcome, select
from tamis.observe.report.corpus import Corpus, groups_of, hit_by, wilson


def sample(key: int, kept: bool, source: str = "", file: int = 0) -> DocumentSample:
    outcome = SampleOutcome.KEPT if kept else SampleOutcome.DROPPED
    return DocumentSample(key, outcome, file, key, n_bytes=100 * key, groups={"source": source} if source else {})


def test_kept_shares_of_sources() -> None:
    found = [sample(i, i % 10 == 0, "mdn") for i in range(100)] + [sample(i, True, "peps") for i in range(100, 150)]
    (mdn, peps) = groups_of(Corpus(select(found)))["source"]
    assert (mdn.name, mdn.n, mdn.kept_share) == ("mdn", 100, 0.1)
    assert (peps.name, peps.n, peps.kept_share) == ("peps", 50, 1.0)
    low, high = mdn.interval(is_all=False)
    assert 0.04 < low < 0.1 < high < 0.2
    assert mdn.interval(is_all=True) == (0.1, 0.1)


def test_sources_are_folders_where_documents_do_not_name_them() -> None:
    found = [sample(i, True, f"page {i}", i % 2) for i in range(60)]  # a name of its own for each
    groups = groups_of(Corpus(select(found), {0: "/in/web/a.jsonl", 1: "/in/books/a.jsonl"}))
    assert {g.name: g.n for g in groups["source"]} == {"web": 30, "books": 30}
    assert "language" not in groups
    assert groups_of(Corpus()) == {}


def test_an_interval_of_a_share() -> None:
    assert wilson(0, 0) == (0.0, 1.0)
    assert wilson(0, 50)[0] == 0.0
    assert wilson(50, 50)[1] == 1.0


def test_sources_that_a_rule_took_far_more_of() -> None:
    samples = [sample(i, i % 10 > 1, "web" if i % 2 else "books") for i in range(1, 101)]
    dropped = [s._replace(stage="rules", rule="short") if s.outcome is SampleOutcome.DROPPED else s for s in samples]
    corpus = Corpus(select(dropped))
    assert hit_by(corpus, "rules", "short") == (0.2, [])
    taken = [s._replace(outcome=SampleOutcome.DROPPED, stage="rules", rule="short") for s in samples[:60:2]]
    corpus = Corpus(select([*taken, *samples[1:60:2], *samples[60:]]))
    assert hit_by(corpus, "rules", "short") == (0.3, [("web", 0.6)])
    assert hit_by(corpus, "rules", "long") == (0.0, [])
    assert hit_by(Corpus(), "rules", "short") == (0.0, [])
