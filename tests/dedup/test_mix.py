"""Mixing by fields: what each rule gives, infeasible targets, and the step end to end."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tamis.backends.local import InProcessExecutor
from tamis.curation import Curation
from tamis.curation.steps import Buckets, ExactDuplicates, Mix
from tamis.dedup.quantiles.mixing import MixRule, epochs_of
from tamis.dedup.quantiles.workflow import parse_tokens
from tamis.errors import PipelineError, UsageError
from tests.support import command
from tests.support.run_dirs import run_dir_path

MEMORY = "512MB"


# -- rules ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (MixRule(epochs={"a": 2, "b": 0.5, "c": 0}), [2, 0.5, 0]),
        (MixRule(epochs={"a": 2, "*": 1}, target=1_400), [2, 1, 1]),
        (MixRule(epochs={"a": 2, "*": 1}, target=700), [1, 0.5, 0.5]),
        (MixRule(shares={"a": 1, "b": 3}, target=400), None),
        (MixRule(shares={"a": 1, "b": 3, "c": 0}, target=400), [1, 1, 0]),
        (MixRule(temperature=1, target=650), [0.5, 0.5, 0.5]),
        (MixRule(temperature=0, target=300), [1, 1 / 3, 1 / 9]),
        (MixRule(unimax=True, target=300), [1, 1 / 3, 1 / 9]),
        (MixRule(unimax=True, target=1_300, max_epochs=2), [2, 550 / 300, 550 / 900]),
    ],
)
def test_rules(rule: MixRule, expected: list[float] | None) -> None:
    tokens = [100, 300, 900]
    if expected is None:
        with pytest.raises(UsageError, match="shares says nothing of 'c'"):
            epochs_of(rule, ["a", "b", "c"], tokens)
        return
    assert epochs_of(rule, ["a", "b", "c"], tokens) == pytest.approx(expected)


def test_a_curve_over_buckets() -> None:
    names = ["", "0", "10", "5"]
    assert epochs_of(MixRule(curve=[0, 6]), names, [1] * 4) == [0, 0, 6, 3]
    assert epochs_of(MixRule(curve=[1, 5], power=2), names, [1] * 4) == [0, 1, 5, 2]
    with pytest.raises(UsageError, match="curve needs numbers"):
        epochs_of(MixRule(curve=[0, 1]), ["a"], [1])


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (MixRule(unimax=True, target=9_101), "the target is 9,101 tokens, and 7 epochs .* are 9,100"),
        (MixRule(shares={"a": 1, "b": 1, "c": 1}, target=3_000), r"at most 7 epochs: a \(10 epochs of 100 tokens\)"),
        (MixRule(epochs={"a": 8, "*": 1}), r"a \(8 epochs"),
        (MixRule(epochs={"a": 0, "b": 0, "c": 0}, target=5), "an epoch of 0"),
        (MixRule(shares={"a": 1, "x": 1, "*": 0}, target=5), "names 'x'"),
    ],
)
def test_infeasible_mixes_are_refused_with_the_reason(rule: MixRule, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        epochs_of(rule, ["a", "b", "c"], [100, 300, 900])


def test_numbers_of_tokens() -> None:
    assert [parse_tokens(v, "t") for v in (7, "7", "1_000", "2.5M", "9b", "1T")] == [
        7,
        7,
        1000,
        2_500_000,
        9 * 10**9,
        10**12,
    ]
    for wrong in ("", "many", 0, "-5", 1.5, "5X", "nanM"):
        with pytest.raises(UsageError, match="t:"):
            parse_tokens(wrong, "t")


# -- the step ---------------------------------------------------------------------------------------------------------
def write(folder: Path) -> list[dict[str, Any]]:
    rng = random.Random(7)
    docs = []
    for i in range(3000):
        topic = rng.choices(["web", "code", "books"], [80, 15, 5])[0]
        text = f"{i} " + "".join(rng.choices("abc ", k=rng.randrange(10, 700)))
        docs.append({"id": i, "text": text, "topic": topic, "score": rng.random(), "n": len(text)})
    folder.mkdir()
    for k in range(3):
        (folder / f"{k}.jsonl").write_text("".join(json.dumps(d) + "\n" for d in docs[k::3]))
    return docs


def read(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in sorted(folder.glob("*.jsonl")) for line in path.read_text().splitlines()]


def mixed(source: Path, output: Path, *steps: Any, memory: str = MEMORY) -> Any:
    curation = Curation(list(steps), str(source), str(output), card=False)
    return curation.run(InProcessExecutor(), progress=False, memory=memory)


def tokens(doc: dict[str, Any]) -> int:
    return (len(doc["text"]) + 3) // 4


def test_the_target_is_met_and_the_ledger_balances(tmp_path: Path) -> None:
    docs = write(tmp_path / "in")
    shares = {"web": 0.5, "code": 0.3, "books": 0.2}
    step = Mix("topic", target=200_000, shares=shares, copy_field="copy")
    result = mixed(tmp_path / "in", tmp_path / "out", step)
    out = read(tmp_path / "out")
    total = sum(map(tokens, out))
    assert abs(total - 200_000) < 0.001 * 200_000
    for topic, share in shares.items():
        mine = sum(tokens(d) for d in out if d["topic"] == topic)
        assert abs(mine - share * 200_000) <= max(tokens(d) for d in docs if d["topic"] == topic)
    assert result.deduplications["mix_by_field"]["tokens_written"] == total
    listed = json.loads((run_dir_path(tmp_path / "out") / "duplicates/mix_by_field-mix.json").read_text())
    assert {row["group"]: row["tokens_written"] for row in listed} == {
        topic: sum(tokens(d) for d in out if d["topic"] == topic) for topic in shares
    }
    ledger = result.run.ledger
    assert ledger.written.n == len(out)
    # Every document has copies 0, 1, ... and is itself unchanged.
    copies = Counter(d["id"] for d in out)
    by_id = {d["id"]: d for d in docs}
    assert {(d["id"], d["copy"]) for d in out} == {(i, k) for i, n in copies.items() for k in range(n)}
    assert all({k: v for k, v in d.items() if k != "copy"} == by_id[d["id"]] for d in out)
    for topic in shares:
        assert max(copies[d["id"]] for d in docs if d["topic"] == topic) <= 1 + min(
            copies[d["id"]] for d in docs if d["topic"] == topic
        )


def test_large_documents_do_not_keep_a_mix_from_its_target(tmp_path: Path) -> None:
    rng = random.Random(3)
    sizes = [rng.choice([400, 4_000, 120_000]) for _ in range(400)]
    docs = [{"id": i, "text": f"{i} ".ljust(n, "x"), "topic": "ab"[i % 2]} for i, n in enumerate(sizes)]
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.jsonl").write_text("".join(json.dumps(d) + "\n" for d in docs))
    target = sum(map(tokens, docs)) // 3
    mixed(tmp_path / "in", tmp_path / "out", Mix("topic", target=target, temperature=0.7))
    assert abs(sum(map(tokens, read(tmp_path / "out"))) - target) <= 0.001 * target


def test_the_mix_does_not_depend_on_the_budget(tmp_path: Path) -> None:
    write(tmp_path / "in")
    steps = [ExactDuplicates(), Buckets("score", 5), Mix("quality_bucket", curve=[0, 3], target="300k")]
    mixed(tmp_path / "in", tmp_path / "one", *steps)
    mixed(tmp_path / "in", tmp_path / "two", *steps, memory="300MB")
    one = read(tmp_path / "one")
    assert one == read(tmp_path / "two")
    assert abs(sum(map(tokens, one)) - 300_000) < 1000
    assert {d["quality_bucket"] for d in one} == {1, 2, 3, 4}


def test_groups_of_several_fields_and_counted_tokens(tmp_path: Path) -> None:
    docs = write(tmp_path / "in")
    steps = [Buckets("score", 2), Mix(["topic", "quality_bucket"], epochs={"books/1": 2, "*": 0}, tokens_field="n")]
    result = mixed(tmp_path / "in", tmp_path / "out", *steps)
    out = read(tmp_path / "out")
    assert {d["topic"] for d in out} == {"books"}
    assert set(Counter(d["id"] for d in out).values()) == {2}
    expected = [d for d in docs if d["topic"] == "books" and d["id"] in {o["id"] for o in out}]
    assert result.deduplications["mix_by_field"]["tokens_written"] == 2 * sum(d["n"] for d in expected)


def test_a_recipe_and_an_infeasible_target(tmp_path: Path) -> None:
    write(tmp_path / "in")
    recipe = tmp_path / "recipe.yaml"
    head = f"input: {tmp_path}/in\nsettings: {{memory: {MEMORY}}}\n"
    recipe.write_text(f"{head}output: {tmp_path}/a\nsteps:\n  - mix: {{by: topic, target: 100k, unimax: true}}\n")
    done = command.tamis("run", str(recipe), "--json")
    assert done.exit_code == 0, done.output
    assert abs(sum(map(tokens, read(tmp_path / "a"))) - 100_000) < 600
    recipe.write_text(f"{head}output: {tmp_path}/b\nsteps:\n  - mix: {{by: topic, target: 1B, temperature: 0.5}}\n")
    refused = command.tamis("run", str(recipe))
    assert refused.exit_code == 2
    assert "the target is 1,000,000,000 tokens" in refused.output
    assert not list((tmp_path / "b").glob("*.jsonl"))


@pytest.mark.parametrize(
    "make",
    [
        lambda: Mix(),
        lambda: Mix("topic"),
        lambda: Mix("topic", unimax=True),
        lambda: Mix("topic", unimax=True, temperature=1, target=5),
        lambda: Mix("topic", epochs={}),
        lambda: Mix("topic", epochs={"a": -1}),
        lambda: Mix("topic", epochs={"a": 0}),
        lambda: Mix("topic", curve=[1]),
        lambda: Mix("topic", curve=[0, 1], max_epochs=0),
        lambda: Mix("topic", temperature=-1, target=4),
    ],
)
def test_mistakes(make: Any) -> None:
    with pytest.raises(UsageError):
        make()


def test_a_mix_comes_last(tmp_path: Path) -> None:
    write(tmp_path / "in")
    with pytest.raises(PipelineError, match="put the mix last"):
        Curation([Mix("topic", epochs={"*": 2}), ExactDuplicates()], str(tmp_path / "in"), str(tmp_path / "out"))
