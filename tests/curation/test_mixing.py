"""Several inputs with weights: how often a document is written follows from its source and its text alone."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tamis.backends.local import InProcessExecutor
from tamis.cli.plan.mix import plan_mix, plan_sources
from tamis.curation import Curation, ExactDuplicates, Source
from tamis.curation.steps import Mix
from tamis.errors import RecipeError, RunConflict, UsageError
from tamis.recipe.load import load_recipe
from tamis.stages.text.filters.has_text import HasText
from tests.curation.small_corpus import MEMORY, PLANNED
from tests.support.made_documents import text
from tests.support.run_dirs import run_dir_path


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mixing")
    for k, name in enumerate(("half", "thrice", "plain")):
        (folder / name).mkdir()
        for part in range(2):
            words = [text(1000 * k + 100 * part + i, 20) for i in range(100)]
            docs = [{"id": f"{name}-{part}-{i}", "kind": name, "text": words[i]} for i in range(100)]
            (folder / name / f"{part}.jsonl").write_text("".join(json.dumps(d) + "\n" for d in docs))
    return folder


def mixed(
    place: Path, out: Path, weights: dict[str, float], blocksize: str, most: dict[str, int] | None = None
) -> tuple[Counter[str], Any]:
    sources = [Source(str(place / name), weight, (most or {}).get(name)) for name, weight in weights.items()]
    result = Curation([HasText()], output_path=str(out), sources=sources).run(
        InProcessExecutor(), memory=MEMORY, blocksize=blocksize
    )
    lines = [line for p in sorted(out.glob("part-*")) for line in p.read_text().splitlines()]
    return Counter(json.loads(line)["id"] for line in lines), result


def test_weights_below_and_above_one(place: Path, tmp_path: Path) -> None:
    weights = {"half": 0.5, "thrice": 3, "plain": 1}
    times, result = mixed(place, tmp_path / "a", weights, "3kB")
    again, _ = mixed(place, tmp_path / "b", dict(reversed(weights.items())), "1MB")
    assert times == again
    by_source = Counter({name: sum(n for i, n in times.items() if i.startswith(name)) for name in weights})
    assert (by_source["thrice"], by_source["plain"]) == (600, 200)
    assert 70 < by_source["half"] < 130
    assert {n for i, n in times.items() if i.startswith("thrice")} == {3}
    assert result.run.ledger.problems() == []
    more, _ = mixed(place, tmp_path / "c", {"half": 0.7, "plain": 1.25}, "1MB")
    assert {i for i in times if i.startswith("half")} < set(more)
    assert 20 < sum(n == 2 for n in more.values()) < 80


def test_what_is_chosen_of_a_source_is_written_several_times(place: Path, tmp_path: Path) -> None:
    sources: list[Any] = [
        {"path": str(place / "half"), "weight": 0.5, "upsample": 2},
        {"path": str(place / "thrice"), "max_documents": 30, "upsample": 3},
        {"path": str(place / "plain"), "upsample": 4},
    ]
    for k, blocksize in enumerate(("3kB", "1MB")):
        out = tmp_path / str(k)
        curation = Curation([HasText()], output_path=str(out), sources=sources)
        result = curation.run(InProcessExecutor(), memory=MEMORY, blocksize=blocksize)
        assert result.run.ledger.problems() == []
        lines = [line for p in sorted(out.glob("part-*")) for line in p.read_text().splitlines()]
        times = Counter(json.loads(line)["id"] for line in lines)
        found = {(i.partition("-")[0], n) for i, n in times.items()}
        assert found == {("half", 2), ("thrice", 3), ("plain", 4)}
        counts = Counter(i.partition("-")[0] for i in times)
        assert (counts["thrice"], counts["plain"]) == (30, 200)
        assert 70 < counts["half"] < 130
    other = Curation([HasText()], output_path=str(out), sources=[*sources[:2], {**sources[2], "upsample": 5}])
    with pytest.raises(RunConflict, match=r"'upsample': \[2, 3, 4\]"):  # all was written, and otherwise than asked for
        other.run(InProcessExecutor(), memory=MEMORY)
    plain: Any = Curation([HasText()], output_path=str(out), sources=[{"path": str(place / "half"), "weight": 0.5}])
    assert plain.mix().each == []  # as a version says that does not know it


def test_a_source_whose_files_are_of_those_before_it_is_named(place: Path, tmp_path: Path) -> None:
    sources = [Source(str(place / "half")), Source(str(place / "half/0.jsonl"), 9.0), Source(str(place / "plain"), 2.0)]
    curation = Curation([HasText()], output_path=str(tmp_path / "out"), sources=sources, card=False)
    result = curation.run(InProcessExecutor(), memory=MEMORY)
    (sentence,) = result.left_out
    assert f"all files of {place}/half/0.jsonl belong to sources before it; its weight is not used" in sentence
    assert sentence in (run_dir_path(tmp_path / "out") / "report.html").read_text()
    narrow_first = Curation([HasText()], output_path=str(tmp_path / "other"), sources=[sources[1], sources[0]])
    assert narrow_first.ignored_sources() == []


def test_from_a_recipe_and_what_is_wrong_with_one(place: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "mix.yaml"
    body = "name: mix\noutput: {out}\nsources: {sources}\nsteps: [exact_duplicates]\n"
    paths = [{"path": str(place / "half"), "weight": 0.5}, {"path": str(place / "plain")}]
    recipe.write_text(body.format(out=tmp_path / "out", sources=json.dumps(paths)))
    curation: Any = load_recipe(recipe).workflow
    assert curation.sources == [Source(str(place / "half"), 0.5), Source(str(place / "plain"))]
    assert curation.mix().first_files == [0, 2]
    for sources, message in (
        ([], "expected a list"),
        ([{"path": "x", "wieght": 2}], "expected path and weight"),
        ([{"path": "x", "weight": 0}], "above 0"),
        ([{"path": "x", "max_documents": 0}], "above 0"),
        ([{"path": "x", "weight": 2, "max_documents": 5}], "give one of them"),
        ([{"path": "x", "upsample": 1.5}], "whole number from 1 to 100"),
    ):
        recipe.write_text(body.format(out=tmp_path / "out", sources=json.dumps(sources)))
        with pytest.raises(RecipeError, match=message):
            load_recipe(recipe)
    with pytest.raises(UsageError, match="input_path or sources"):
        Curation([ExactDuplicates()], str(place), str(tmp_path / "o"), sources=[Source(str(place))])
    assert Curation([ExactDuplicates()], output_path=str(tmp_path / "o"), sources=[Source(str(place))]).mix() is None


def test_a_number_of_documents_is_exact_and_does_not_depend_on_the_cut(place: Path, tmp_path: Path) -> None:
    weights = {"half": 1.0, "thrice": 1.0, "plain": 1.0}
    most = {"half": 37, "plain": 500}
    times, result = mixed(place, tmp_path / "a", weights, "3kB", most)
    again, _ = mixed(place, tmp_path / "b", dict(reversed(weights.items())), "1MB", most)
    assert times == again
    assert set(times.values()) == {1}
    by_source = Counter(i.partition("-")[0] for i in times)
    assert by_source == {"half": 37, "thrice": 200, "plain": 200}  # all, where there are fewer
    book = next(b for b in result.run.ledger.stages if b.name == "mix")
    assert {k: t.n for k, t in book.dropped.items()} == {"not_in_the_mix": 163}
    assert result.run.ledger.problems() == []
    assert [p.label for p in result.record.passes] == ["numbers", "decision-sources", "write"]
    fewer, _ = mixed(place, tmp_path / "c", weights, "1MB", {"half": 12})
    assert {i for i in fewer if i.startswith("half")} < set(times)


def test_documents_with_equal_texts_are_counted_one_by_one(tmp_path: Path) -> None:
    (tmp_path / "same").mkdir()
    for part in range(3):
        (tmp_path / "same" / f"{part}.jsonl").write_text(
            "".join(json.dumps({"id": f"same-{part}-{i}", "text": "all alike"}) + "\n" for i in range(50))
        )
    for n in (1, 50, 75, 149, 150):
        times, _ = mixed(tmp_path, tmp_path / f"out-{n}", {"same": 1.0}, "1kB", {"same": n})
        order = [f"same-{part}-{i}" for part in range(3) for i in range(50)]
        assert sorted(times, key=order.index) == order[:n]


def test_what_is_chosen_is_chosen_of_what_all_steps_leave(place: Path, tmp_path: Path) -> None:
    sources = [Source(str(place / "half"), max_documents=20), Source(str(place / "plain"))]
    curation = Curation([HasText(), ExactDuplicates()], output_path=str(tmp_path / "out"), sources=sources)
    assert [p.name for p in curation.plan().passes][-2:] == ["numbers for sources", "write"]
    result = curation.run(InProcessExecutor(), memory=MEMORY)
    assert result.run.ledger.written.n == 220
    again = curation.run(InProcessExecutor(), memory=MEMORY)
    assert again.status == "already"


@pytest.mark.parametrize("with_mix", [False, True])
def test_the_plan_says_what_is_written_of_each_source(place: Path, tmp_path: Path, with_mix: bool) -> None:
    sources: list[Any] = [
        {"path": str(place / "half"), "weight": 0.5, "upsample": 2},
        {"path": str(place / "thrice"), "max_documents": 30, "upsample": 3},
        {"path": str(place / "plain"), "weight": 1.25},
    ]
    steps: list[Any] = [HasText()]
    if with_mix:
        steps.append(Mix("kind", epochs={"*": 2}))
    curation = Curation(steps, output_path=str(tmp_path / "out"), sources=sources, card=False)
    planned = plan_sources(curation, {"memory": PLANNED})
    assert not (tmp_path / "out").exists()
    if with_mix:
        before = plan_mix(curation, {"memory": PLANNED})
        assert before is not None
        assert [(g.name, g.tokens_written) for g in before.groups] == [
            (name, 2 * _tokens(place / name)) for name in ("half", "plain", "thrice")
        ]
    curation.run(InProcessExecutor(), memory=MEMORY, blocksize="3kB", progress=False)
    written: Counter[str] = Counter()
    for part in sorted((tmp_path / "out").glob("part-*")):
        for line in part.read_text().splitlines():
            document = json.loads(line)
            written[document["id"].partition("-")[0]] += (len(document["text"].encode()) + 3) // 4
    assert planned is not None
    assert (planned.read_share, planned.reason) == (1.0, "")
    assert {Path(g.name).name: g.tokens_written for g in planned.groups} == written
    n_before = 2 if with_mix else 1
    in_place = {name: n_before * _tokens(place / name) for name in ("half", "thrice", "plain")}
    assert {Path(g.name).name: g.tokens for g in planned.groups} == in_place


def test_the_plan_of_large_sources_samples_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("books", "web"):
        (tmp_path / name).mkdir()
        for part in range(2):
            lines = [json.dumps({"text": text(i, 400)}) + "\n" for i in range(100)]
            (tmp_path / name / f"{part}.jsonl").write_text("".join(lines))
    n_tokens = _tokens(tmp_path / "web")
    monkeypatch.setattr("tamis.cli.plan.mix._SAMPLE_BYTES", 200_000)
    sources: list[Any] = [
        {"path": str(tmp_path / "books"), "upsample": 2},
        {"path": str(tmp_path / "books/0.jsonl"), "weight": 9},  # a file of the source before it
        {"path": str(tmp_path / "web"), "max_documents": 100},
    ]
    curation = Curation([HasText()], output_path=str(tmp_path / "out"), sources=sources)
    planned = plan_sources(curation, {"memory": PLANNED})
    assert planned is not None
    assert planned.reason == ""
    assert 0.1 < planned.read_share < 0.9
    books, nothing, web = planned.groups
    assert (books.tokens, books.epochs) == (pytest.approx(n_tokens, rel=0.1), 2)
    assert (nothing.tokens, nothing.tokens_written) == (0, 0)
    assert web.tokens_written == pytest.approx(n_tokens / 2, rel=0.1)


def _tokens(folder: Path) -> int:
    lines = [line for part in folder.glob("*.jsonl") for line in part.read_text().splitlines()]
    return sum((len(json.loads(line)["text"].encode()) + 3) // 4 for line in lines)
