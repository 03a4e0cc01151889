"""Choosing and mixing seen from outside: the plan says the mix, rules meet their target, tokens are counted one way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tamis._lazy import np
from tamis.backends.local import InProcessExecutor
from tamis.cli.plan.mix import plan_mix
from tamis.curation import Curation
from tamis.curation.steps import Buckets, ExactDuplicates, KeepTop, Mix
from tamis.stages import vector_cache
from tamis.stages.resources import Resources
from tamis.stages.text.tokens.stages import CountTokens, Tokenize
from tamis.tasks import DocumentBatch
from tests.curation.small_corpus import PLANNED
from tests.dedup.test_mix import mixed, read, tokens, write
from tests.stages.text.tokens import small_tokenizers
from tests.support import command
from tests.support.run_dirs import run_dir_path

MEMORY = "512MB"
RULES: dict[str, dict[str, Any]] = {
    "temperature": {"by": "topic", "temperature": 0.5, "target": 300_000},
    "unimax": {"by": "topic", "unimax": True, "target": 250_000, "max_epochs": 4},
    "epochs": {"by": "topic", "epochs": {"books": 3, "*": 1}, "target": 200_000},
    "curve": {"by": "quality_bucket", "curve": [0, 7], "power": 2, "target": 400_000},
}


@pytest.mark.parametrize("rule", RULES)
def test_the_plan_says_the_mix_and_the_output_has_it(tmp_path: Path, rule: str) -> None:
    write(tmp_path / "in")
    steps: list[Any] = [Buckets("score", 5), Mix(**RULES[rule], name="mix")]
    planned = None
    if rule == "curve":
        curation = Curation(steps, str(tmp_path / "in"), str(tmp_path / "out"), card=False)
        planned = plan_mix(curation, {"memory": PLANNED})
        assert not (tmp_path / "out").exists()
    result = mixed(tmp_path / "in", tmp_path / "out", *steps)
    target = RULES[rule]["target"]
    assert abs(sum(map(tokens, read(tmp_path / "out"))) - target) <= 0.001 * target
    written = {g["group"]: (g["tokens"], g["epochs"]) for g in result.deduplications["mix"]["mix"]}
    if planned is not None:
        assert (planned.read_share, planned.reason) == (1.0, "")
        assert {g.name: (g.tokens, g.epochs) for g in planned.groups} == written
    page = (run_dir_path(tmp_path / "out") / "report.html").read_text()
    assert "<h2>Buckets and mix</h2>" in page
    for bucket, n in enumerate(result.deduplications["buckets"]["buckets"][0]["n_documents"]):
        kept = sum(d["quality_bucket"] == bucket for d in read(tmp_path / "out"))
        assert f"<td>{bucket}</td>" in page
        assert f'<td class="n">{n:,}</td>' in page
        assert f'<td class="n">{kept:,}</td></tr>' in page


def test_the_plan_of_an_infeasible_mix_gives_the_reason(tmp_path: Path) -> None:
    write(tmp_path / "in")
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        f"input: {tmp_path}/in\noutput: {tmp_path}/out\nsettings: {{memory: {MEMORY}}}\n"
        "steps:\n  - keep_top: {score: score, documents: 1000}\n  - mix: {by: topic, target: 1B, unimax: true}\n"
    )
    done = command.tamis("plan", str(recipe), "--json")
    assert done.exit_code == 0, done.output
    mix = json.loads(done.stdout)["mix"]
    assert not mix["is_feasible"]
    assert "the target is 1,000,000,000 tokens, and 7 epochs" in mix["reason"]
    assert {group["name"] for group in mix["groups"]} == {"web", "code", "books"}
    shown = command.tamis("plan", str(recipe)).stdout
    assert "not feasible: the target is" in shown
    assert "a quarter of the bytes of texts" in shown


def test_curate_shows_the_mix_before_it_is_written(tmp_path: Path) -> None:
    write(tmp_path / "in")
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        f"input: ???\noutput: ???\nsettings: {{memory: {MEMORY}}}\nwrite: {{card: false}}\n"
        "steps:\n  - buckets: {score: score, n: 5}\n  - mix: {by: quality_bucket, epochs: {4: 2, '*': 1}}\n"
    )
    arguments = ["curate", str(tmp_path / "in"), str(tmp_path / "out"), "--preset", str(recipe), "--json"]
    done = command.tamis(*arguments, "--plan")
    assert done.exit_code == 0, done.output
    assert not (tmp_path / "out").exists()
    planned = json.loads(done.stdout)["mix"]
    whole = json.loads(command.tamis(*arguments, "-q").stdout)
    written = {g["group"]: (g["tokens"], g["epochs"]) for g in whole["deduplications"]["mix_by_field"]["mix"]}
    assert {g["name"]: (g["tokens"], g["epochs"]) for g in planned["groups"]} == written
    assert sum(g["tokens_written"] for g in planned["groups"]) == sum(map(tokens, read(tmp_path / "out")))


def test_the_plan_of_curate_runs_no_model(tmp_path: Path) -> None:
    class Model(CountTokens):
        resources = Resources(gpus=1)

    small_tokenizers.save(tmp_path / "tok")
    write(tmp_path / "in")
    steps: list[Any] = [Model(str(tmp_path / "tok"), name="model"), Mix("topic", epochs={"*": 2})]
    curation = Curation(steps, str(tmp_path / "in"), str(tmp_path / "out"), card=False)
    planned = plan_mix(curation, {"memory": PLANNED}, may_load_models=False)
    assert planned is not None
    assert planned.lines() == [
        "mix_by_field: the mix cannot be told before the run: model uses a model; tamis plan runs it on a sample"
    ]


def test_a_large_input_is_planned_by_a_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    documents = write(tmp_path / "in")
    monkeypatch.setattr("tamis.cli.plan.mix._SAMPLE_BYTES", 300_000)
    steps = [KeepTop("score", documents=1500), Mix("topic", temperature=1, target=100_000)]
    planned = plan_mix(Curation(steps, str(tmp_path / "in"), str(tmp_path / "out"), card=False), {"memory": PLANNED})
    assert planned is not None
    assert 0.1 < planned.read_share < 0.5
    kept = sorted(documents, key=lambda d: -d["score"])[:1500]
    web = sum(tokens(d) for d in kept if d["topic"] == "web")
    assert sum(g.tokens for g in planned.groups if g.name == "web") == pytest.approx(web, rel=0.1)


def test_a_tokenizer_is_called_once_per_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    documents = write(tmp_path / "in")
    small_tokenizers.save(tmp_path / "tok")
    n_counted: list[int] = []
    encode = Tokenize.encode

    def counted(self: Tokenize, task: DocumentBatch) -> Any:
        n_counted.append(task.num_items)
        return encode(self, task)

    monkeypatch.setattr(Tokenize, "encode", counted)
    monkeypatch.setattr(vector_cache, "_SPARE_BYTES", 0)
    outputs = []
    for name, speed in (("kept", 1e15), ("again", 1)):  # with a disk that slow nothing is worth keeping
        monkeypatch.setattr(vector_cache, "_DISK_SPEED", speed)
        n_counted.clear()
        steps: list[Any] = [CountTokens(str(tmp_path / "tok")), Buckets("score", 4, weight="tokens"), ExactDuplicates()]
        curation = Curation([*steps, KeepTop("score", tokens=50_000)], str(tmp_path / "in"), str(tmp_path / name))
        curation.run(InProcessExecutor(), memory="1GB", blocksize="100kB", progress=False)
        assert len(n_counted) > 3
        assert (sum(n_counted) == len(documents)) == (name == "kept")
        outputs.append(read(tmp_path / name))
        assert not (run_dir_path(tmp_path / name) / "curation").exists()
    assert outputs[0] == outputs[1]


def test_counts_are_kept_exactly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts are stored as 32-bit floats, which have 24 bits of a number."""
    large = [0, 1, (1 << 24) - 1, 1 << 24, (1 << 24) + 1, (1 << 40) + 12345]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"text": "a" * i, "score": i}) + "\n" for i in range(6)))
    small_tokenizers.save(tmp_path / "tok")
    calls = []

    def counts(_: CountTokens, task: DocumentBatch) -> Any:
        calls.append(task.num_items)
        return np.array([large[len(text)] for text in task.texts("text").to_pylist()])

    monkeypatch.setattr(CountTokens, "_counts", counts)
    monkeypatch.setattr(vector_cache, "_DISK_SPEED", 1e15)
    monkeypatch.setattr(vector_cache, "_SPARE_BYTES", 0)
    steps: list[Any] = [CountTokens(str(tmp_path / "tok")), Buckets("score", 2)]
    Curation(steps, str(tmp_path / "in.jsonl"), str(tmp_path / "out"), card=False).run(
        InProcessExecutor(), memory="1GB", progress=False
    )
    assert [d["n_tokens"] for d in read(tmp_path / "out")] == large
    assert calls == [6]


def test_tokens_of_a_tokenizer_count_everywhere(tmp_path: Path) -> None:
    documents = write(tmp_path / "in")
    library = small_tokenizers.save(tmp_path / "tok")
    lengths = {d["id"]: len(library.encode(d["text"], add_special_tokens=False).ids) for d in documents}
    steps = [CountTokens(str(tmp_path / "tok")), Buckets("score", 4, weight="tokens"), KeepTop("score", tokens=50_000)]
    curation = Curation([*steps, Mix("topic", epochs={"*": 2})], str(tmp_path / "in"), str(tmp_path / "out"))
    result = curation.run(memory=MEMORY, progress=False)
    out = read(tmp_path / "out")
    assert all(d["n_tokens"] == lengths[d["id"]] for d in out)
    total = sum(lengths[d["id"]] for d in out)
    assert 99_000 < total <= 100_000
    weights = result.deduplications["buckets"]["buckets"][0]["weight"]
    assert sum(weights) == sum(lengths.values())
    assert max(weights) - min(weights) < 1000
    assert result.deduplications["mix_by_field"]["tokens_written"] == total
    assert f"{total:,} tokens, by the tokenizer tok." in (tmp_path / "out/README.md").read_text()
    assert "tokens written" in (run_dir_path(tmp_path / "out") / "report.html").read_text()
