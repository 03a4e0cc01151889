"""Several inputs with weights: how often a document is written follows from the weight of its source and its text alone."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from made_documents import text
from small_corpus import MEMORY

from tamis.backends.local import InProcessExecutor
from tamis.curation import Curation, ExactDuplicates, Source
from tamis.errors import RecipeError, UsageError
from tamis.recipe.load import load_recipe
from tamis.stages.text.filters.has_text import HasText


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mixing")
    for k, name in enumerate(("half", "thrice", "plain")):
        (folder / name).mkdir()
        for part in range(2):
            docs = [{"id": f"{name}-{part}-{i}", "text": text(1000 * k + 100 * part + i, 20)} for i in range(100)]
            (folder / name / f"{part}.jsonl").write_text("".join(json.dumps(d) + "\n" for d in docs))
    return folder


def mixed(place: Path, out: Path, weights: dict[str, float], blocksize: str) -> tuple[Counter[str], Any]:
    sources = [Source(str(place / name), weight) for name, weight in weights.items()]
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


def test_from_a_recipe_and_what_is_wrong_with_one(place: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "mix.yaml"
    body = "name: mix\noutput: {out}\nsources: {sources}\nsteps: [exact_duplicates]\n"
    paths = [{"path": str(place / "half"), "weight": 0.5}, {"path": str(place / "plain")}]
    recipe.write_text(body.format(out=tmp_path / "out", sources=json.dumps(paths)))
    curation: Any = load_recipe(recipe).workflow
    assert curation.sources == [Source(str(place / "half"), 0.5), Source(str(place / "plain"))]
    assert curation.mix().first_files == [0, 2]
    for sources, message in (
        ([], "expected a list"), ([{"path": "x", "wieght": 2}], "expected path and weight"), ([{"path": "x", "weight": 0}], "above 0"),
    ):  # fmt: skip
        recipe.write_text(body.format(out=tmp_path / "out", sources=json.dumps(sources)))
        with pytest.raises(RecipeError, match=message):
            load_recipe(recipe)
    with pytest.raises(UsageError, match="input_path or sources"):
        Curation([ExactDuplicates()], str(place), str(tmp_path / "o"), sources=[Source(str(place))])
    assert Curation([ExactDuplicates()], output_path=str(tmp_path / "o"), sources=[Source(str(place))]).mix() is None
