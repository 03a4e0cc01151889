"""Buckets and the best documents: quantiles against numpy's and a plain sort, and both steps end to end."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tamis.backends.local import InProcessExecutor
from tamis.curation import Curation
from tamis.curation.steps import Buckets, DuplicateLines, ExactDuplicates, KeepTop, Scores
from tamis.dedup.quantiles.weighted import NO_KEY, keys_of, numbers_of, smallest_reaching, totals_of
from tamis.errors import UsageError
from tamis.stages.text.filters import Filter, ScoreFilter
from tamis.stages.text.filters.heuristic.string import WordCountFilter
from tests.support import command
from tests.support.limits import examples
from tests.support.run_dirs import run_dir_path

MEMORY = "512MB"
FLOATS = st.floats(width=32, allow_nan=False) | st.sampled_from([0.0, -0.0, 1.0, 2.0, float("inf"), float("-inf")])


# -- quantiles --------------------------------------------------------------------------------------------------------
@settings(max_examples=examples(200), deadline=None)
@given(numbers=st.lists(FLOATS | st.just(float("nan")), max_size=30))
def test_keys_are_in_the_order_of_numbers(numbers: list[float]) -> None:
    some = np.array(numbers, np.float32)
    keys = keys_of(some)
    assert ((keys == NO_KEY) == np.isnan(some)).all()
    real = some[~np.isnan(some)]
    assert (numbers_of(keys[keys != NO_KEY]) == real).all()
    assert (np.argsort(keys_of(real), kind="stable") == np.argsort(real, kind="stable")).all()


def quantiles(groups: Any, numbers: Any, weights: Any, n: int, room_bytes: int, cut: int) -> list[list[float]]:
    keys = keys_of(np.array(numbers, np.float32))
    group, weight = np.array(groups, np.int64), np.array(weights, np.int64)
    n_groups = int(group.max()) + 1

    def chunks() -> Any:
        for first in range(0, len(keys), cut):
            part = slice(first, first + cut)
            yield group[part], keys[part], weight[part]

    _, totals = totals_of(chunks, n_groups)
    targets = np.array([[max(1, -(-k * int(t) // n)) for k in range(1, n)] for t in totals], np.int64)
    return [numbers_of(row).tolist() for row in smallest_reaching(chunks, targets, room_bytes)]


@settings(max_examples=examples(100), deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(0, 2), FLOATS, st.integers(1, 9)), min_size=1, max_size=60),
    n=st.integers(2, 9),
    cut=st.integers(1, 70),
)
def test_quantiles_are_those_of_a_sort(rows: list[tuple[int, float, int]], n: int, cut: int) -> None:
    rows += [(g, 0.5, 1) for g in range(3)]  # no group is empty
    found = quantiles(*zip(*rows, strict=True), n, 1, cut)  # room for one cell at a time
    for g in range(3):
        mine = sorted((float(np.float32(number)), w) for group, number, w in rows if group == g)
        total = sum(w for _, w in mine)
        for k in range(1, n):
            reached = np.cumsum([w for _, w in mine])
            first = int(np.argmax(reached * n >= k * total))
            assert found[g][k - 1] == mine[first][0]


def test_quantiles_equal_numpys() -> None:
    rng = np.random.default_rng(2)
    numbers = rng.normal(size=100_003).astype(np.float32)
    weights = rng.integers(1, 2000, len(numbers))
    (found,) = quantiles(np.zeros(len(numbers), int), numbers, weights, 20, 1 << 30, 7_000)
    shares = np.arange(1, 20) / 20
    assert found == np.quantile(numbers, shares, weights=weights, method="inverted_cdf").tolist()


# -- the steps --------------------------------------------------------------------------------------------------------
def documents(n: int = 600, seed: int = 1) -> list[dict[str, Any]]:
    rng, docs = random.Random(seed), []
    for i in range(n):
        text = f"{i} " + "x" * rng.randrange(400)
        score = rng.choice([None, "0.25", True]) if rng.random() < 0.05 else round(rng.random(), 2)
        lang = rng.choice(["en", "de", None, "a language with a very long name, longer than a record has room for"])
        docs.append({"id": i, "text": text, "score": score, "other": rng.random(), "lang": lang, "n": len(text) // 3})
    return docs


def write(folder: Path, docs: list[dict[str, Any]]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for k in range(3):
        part = docs[k * len(docs) // 3 : (k + 1) * len(docs) // 3]
        (folder / f"{k}.jsonl").write_text("".join(json.dumps(d) + "\n" for d in part))
    return folder


def read(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in sorted(folder.glob("*.jsonl")) for line in path.read_text().splitlines()]


def curate(steps: list[Any], source: Path, output: Path, **settings: Any) -> Any:
    options = {"memory": MEMORY, **settings}
    return Curation(steps, str(source), str(output), card=False).run(InProcessExecutor(), progress=False, **options)


def number(value: Any) -> float | None:
    return None if value is None or value is True else float(np.float32(float(value)))


def expected_buckets(docs: list[dict[str, Any]], score: Any, weight: Any, n: int) -> dict[int, int]:
    """By a sort: the bucket of a document is the number of quantiles below its score."""
    known = sorted((s, weight(d)) for d in docs if (s := score(d)) is not None)
    total, edges = sum(w for _, w in known), []
    for k in range(1, n):
        reached = 0
        for s, w in known:
            reached += w
            if reached * n >= k * total:
                edges.append(s)
                break
    return {d["id"]: sum(e < s for e in edges) for d in docs if (s := score(d)) is not None}


@pytest.mark.parametrize("weight", ["documents", "bytes", "tokens", "field"])
def test_buckets_are_those_of_a_sort(tmp_path: Path, weight: str) -> None:
    docs = documents()
    weigh = {
        "documents": lambda d: 1,
        "bytes": lambda d: len(d["text"]),
        "tokens": lambda d: (len(d["text"]) + 3) // 4,
        "field": lambda d: d["n"],
    }[weight]
    more = {"weight": "tokens", "tokens_field": "n"} if weight == "field" else {"weight": weight}
    result = curate([Buckets("score", 7, **more)], write(tmp_path / "in", docs), tmp_path / "out")
    written = read(tmp_path / "out")
    found = {d["id"]: d["quality_bucket"] for d in written if "quality_bucket" in d}
    assert found == expected_buckets(docs, lambda d: number(d["score"]), weigh, 7)
    assert [{k: v for k, v in d.items() if k != "quality_bucket"} for d in written] == docs
    summary = result.deduplications["buckets"]
    assert summary["n_without_score"] == len(docs) - len(found)
    (one,) = summary["buckets"]
    assert one["n_documents"] == np.bincount(list(found.values()), minlength=7).tolist()


def test_every_value_of_a_field_has_buckets_of_its_own(tmp_path: Path) -> None:
    docs = documents()
    curate([Buckets("score", 4, by="lang", bucket_field="b")], write(tmp_path / "in", docs), tmp_path / "out")
    found = {d["id"]: d["b"] for d in read(tmp_path / "out") if "b" in d}
    expected: dict[int, int] = {}
    for lang in {d["lang"] for d in docs}:
        mine = [d for d in docs if d["lang"] == lang]
        expected |= expected_buckets(mine, lambda d: number(d["score"]), lambda d: 1, 4)
    assert found == expected


@pytest.mark.parametrize("ensemble", ["max", "mean", "rank_max", "rank_mean"])
def test_ensembles(tmp_path: Path, ensemble: str) -> None:
    docs = [d for d in documents(300) if isinstance(d["score"], float)]
    curate([Buckets(["score", "other"], 5, ensemble=ensemble)], write(tmp_path / "in", docs), tmp_path / "out")

    def both(d: dict[str, Any]) -> np.ndarray:
        return np.array([number(d["score"]), number(d["other"])])

    ranks = [expected_buckets(docs, lambda d, k=k: float(both(d)[k]), lambda d: 1, 1000) for k in (0, 1)]

    def score(d: dict[str, Any]) -> float:
        values = np.array([r[d["id"]] / 1000 for r in ranks]) if ensemble.startswith("rank") else both(d)
        return float(np.float32(values.max() if ensemble.endswith("max") else values.mean()))

    found = {d["id"]: d["quality_bucket"] for d in read(tmp_path / "out")}
    assert found == expected_buckets(docs, score, lambda d: 1, 5)


def test_edges_are_used_on_other_data(tmp_path: Path) -> None:
    one, two = documents(400, 1), documents(300, 2)
    curate([Buckets("score", 6, by="lang")], write(tmp_path / "one", one), tmp_path / "out-one")
    edges = run_dir_path(tmp_path / "out-one") / "duplicates/buckets-edges.json"
    (two[0]["lang"], two[0]["score"]) = ("unheard of", 0.5)
    curate([Buckets("score", 6, by="lang", edges=str(edges))], write(tmp_path / "two", two), tmp_path / "out-two")
    groups = {g["name"]: g["edges"] for g in json.loads(edges.read_text())["groups"]}
    for d in read(tmp_path / "out-two"):
        s, lang = number(d["score"]), d["lang"] or ""
        name = lang if len(lang) < 33 else next(n for n in groups if n.startswith(lang[:15]))
        expected = None if s is None or name not in groups else sum(e < s for e in groups[name])
        assert d.get("quality_bucket") == expected
    with pytest.raises(UsageError, match="these edges are of 6"):
        curate([Buckets("score", 5, by="lang", edges=str(edges))], tmp_path / "two", tmp_path / "out-three")
    (tmp_path / "no.json").write_text("not JSON")
    with pytest.raises(UsageError, match=r"no\.json"):
        curate([Buckets("score", 6, edges=str(tmp_path / "no.json"))], tmp_path / "two", tmp_path / "out-four")


def test_scores_are_listed_by_position(tmp_path: Path) -> None:
    docs = documents(90)
    source = write(tmp_path / "in", docs)
    curate([Buckets(["score", "other"], 5)], source, tmp_path / "out")
    table = pq.read_table(run_dir_path(tmp_path / "out") / "duplicates/buckets-scores.parquet").to_pylist()
    assert len(table) == 90
    for row, doc in zip(table, docs, strict=True):
        with open(row["path"], "rb") as file:
            file.seek(row["offset"])
            assert json.loads(file.readline()) == doc
        assert row["score"] == number(doc["score"]) or (row["score"] != row["score"] and number(doc["score"]) is None)


@pytest.mark.parametrize("ensemble", ["mean", "rank_mean"])
def test_scores_of_an_earlier_run_are_used(tmp_path: Path, ensemble: str) -> None:
    """The fields are gone from nothing but the request: a run without them gives the same."""
    docs = documents(500)
    source = write(tmp_path / "in", docs)
    scores = ["score", "other"]
    curate([Buckets(scores, 9, ensemble=ensemble)], source, tmp_path / "first", blocksize="20KB")
    again = {"scores_from": str(tmp_path / "first")}
    curate([Buckets(scores, 9, ensemble=ensemble, by="lang", **again)], source, tmp_path / "second")
    curate([Buckets(scores, 9, ensemble=ensemble, by="lang")], source, tmp_path / "expected")
    assert read(tmp_path / "second") == read(tmp_path / "expected")
    top = KeepTop("other", documents=40, **again)
    curate([top], source, tmp_path / "top")
    best = sorted(docs, key=lambda d: -d["other"])[:40]
    assert {d["id"] for d in read(tmp_path / "top")} == {d["id"] for d in best}
    # Documents that the table does not have have no score.
    (source / "new.jsonl").write_text(json.dumps({**docs[0], "id": "new", "other": 1.0}) + "\n")
    curate([KeepTop("other", fraction=1.0, **again)], source, tmp_path / "all")
    assert {d["id"] for d in read(tmp_path / "all")} == {d["id"] for d in docs}
    with pytest.raises(UsageError, match="has no table of scores"):
        Buckets("score", scores_from=str(tmp_path / "top"))


def test_what_a_stage_made_is_kept_and_given_to_the_stages_of_a_later_run(tmp_path: Path) -> None:
    docs = documents(300)
    source = write(tmp_path / "in", docs)
    model = ScoreFilter(WordCountFilter(min_words=0), score_field="words")
    made = curate([model, Scores(["words", "other"]), Buckets("words", 3)], source, tmp_path / "first")
    listed = made.deduplications["scores"]["scores"]
    assert [(one["name"], one["n"]) for one in listed] == [("words", len(read(tmp_path / "first"))), ("other", 300)]
    words = {d["id"]: d["words"] for d in read(tmp_path / "first")}
    page = (run_dir_path(tmp_path / "first") / "report.html").read_text()
    assert f'<td class="n">{max(words.values())}</td>' in page
    again = Scores("words", scores_from=str(tmp_path / "first"))
    middle = sorted(words.values())[150]
    curate([again, Filter(lambda n: n >= middle, "words"), KeepTop("words", documents=50)], source, tmp_path / "second")
    kept = {d["id"]: d["words"] for d in read(tmp_path / "second")}
    assert len(kept) == 50
    assert kept == {i: words[i] for i in kept}
    assert min(kept.values()) >= sorted(words.values())[-50]
    page = (run_dir_path(tmp_path / "second") / "report.html").read_text()
    assert '<td class="n">50</td><td class="n">50</td>' in page
    with pytest.raises(UsageError, match="has no scores of more"):
        curate([Scores("more", scores_from=str(tmp_path / "first"))], source, tmp_path / "third")


@pytest.mark.parametrize(
    "limit", [{"documents": 100}, {"tokens": 9000}, {"bytes": 20_001}, {"fraction": "10%"}, {"documents": 10**6}]
)
def test_the_best_documents_are_kept(tmp_path: Path, limit: dict[str, Any]) -> None:
    docs = documents()
    result = curate([KeepTop("score", **limit)], write(tmp_path / "in", docs), tmp_path / "out")
    weigh = {
        "tokens": lambda d: (len(d["text"]) + 3) // 4,
        "bytes": lambda d: len(d["text"]),
    }.get(next(iter(limit)), lambda d: 1)
    scored = [(s, d) for d in docs if (s := number(d["score"])) is not None]
    total = sum(weigh(d) for _, d in scored)
    most = min(total, int(0.1 * total) if "fraction" in limit else next(iter(limit.values())))
    expected, used = set(), 0
    for _, d in sorted(scored, key=lambda pair: -pair[0]):  # stable: equal scores in the order of the input
        if used + weigh(d) > most:
            break
        used += weigh(d)
        expected.add(d["id"])
    assert {d["id"] for d in read(tmp_path / "out")} == expected
    summary = result.deduplications["keep_top"]
    assert (summary["weight_kept"], summary["weight_of_all"]) == (used, total)
    assert summary["n_duplicates"] == len(docs) - len(expected)


def test_steps_work_together_and_do_not_depend_on_the_budget(tmp_path: Path) -> None:
    docs = documents()
    docs += [{**d, "id": d["id"] + 1000} for d in docs[:50]]
    source = write(tmp_path / "in", docs)
    steps = [ExactDuplicates(), Buckets("score", 5, "tokens"), DuplicateLines(), KeepTop("score", tokens=9000)]
    curate(steps, source, tmp_path / "one")
    curate(steps, source, tmp_path / "two", memory="300MB", blocksize="20KB")
    one = read(tmp_path / "one")
    assert one == read(tmp_path / "two")
    assert 0 < len(one) < 600
    assert {d["quality_bucket"] for d in one} <= set(range(5))


def test_a_recipe_and_why(tmp_path: Path) -> None:
    docs = [{**d, "id": f"d{d['id']}"} for d in documents(120) if isinstance(d["score"], float)]
    source = write(tmp_path / "in", docs)
    (tmp_path / "recipe.yaml").write_text(
        f"input: {source}\noutput: {tmp_path}/out\nsteps:\n  - buckets: {{score: [score, other], n: 4, "
        f"ensemble: rank_mean}}\n  - keep_top: {{score: score, documents: 30}}\nsettings: {{memory: {MEMORY}}}\n"
    )
    done = command.tamis("run", str(tmp_path / "recipe.yaml"), "--json")
    assert done.exit_code == 0, done.output
    kept = {d["id"] for d in read(tmp_path / "out")}
    assert len(kept) == 30
    gone = next(d for d in docs if d["id"] not in kept)
    (verdict,) = json.loads(command.tamis("why", str(tmp_path / "out"), gone["id"], "--json").stdout)["verdicts"]
    assert (verdict["rule"], verdict["value"], verdict["threshold"]["amount"]) == ("below_the_top", gone["score"], 30)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Buckets(),
        lambda: Buckets("s", n=1),
        lambda: Buckets("s", weight="pages"),
        lambda: Buckets(["s", "s"]),
        lambda: Buckets("s", ensemble="least"),
        lambda: Buckets("s", bucket_field="s"),
        lambda: Buckets("s", edges="nowhere.json"),
        lambda: KeepTop("s"),
        lambda: KeepTop("s", fraction=2),
        lambda: KeepTop("s", documents=0),
        lambda: KeepTop("s", documents=3, tokens=3),
        lambda: KeepTop("s", documents=3, weight="tokens"),
    ],
)
def test_mistakes(make: Any) -> None:
    with pytest.raises(UsageError):
        make()
