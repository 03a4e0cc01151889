"""From steps to passes: which steps share a pass, what is remembered and what is done again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tamis import ProcessingStage, Resources
from tamis.backends.base import BaseExecutor
from tamis.curation import Curation, ExactDuplicates
from tamis.curation.planner import CHANGES, COLUMNS, DROPS, StepFacts, make_plan
from tamis.curation.runner import CurationRun
from tamis.dedup.kinds import EXACT, FUZZY, LINES
from tamis.errors import PipelineError


def filter_(name: str = "filter") -> StepFacts:
    return StepFacts(name, DROPS)


EQUAL = StepFacts("equal", EXACT.name)
SIMILAR = StepFacts("similar", FUZZY.name, joins=True, compares_texts=True)
CUT = StepFacts("cut", LINES.name)
CHANGE = StepFacts("change", CHANGES)


def test_filters_exact_and_fuzzy_take_two_reads_however_many_filters_there_are() -> None:
    for n in (1, 2, 30):
        plan = make_plan([*(filter_(f"f{i}") for i in range(n)), EQUAL, SIMILAR, filter_("last")])
        assert plan.n_reads == 2
        assert [g.decides for g in plan.groups] == [(n, n + 1)]
        assert plan.last == (n + 2,)
        assert plan.passes[0].runs == tuple(f"f{i}" for i in range(n))
        assert plan.passes[1].remembers == (*(f"f{i}" for i in range(n)), "equal", "similar")
        assert plan.passes[1].runs == ("last",)
        assert plan.passes[1].redoes == ()


def test_without_a_deduplication_there_is_one_pass() -> None:
    plan = make_plan([filter_("a"), CHANGE, filter_("b")])
    assert (plan.n_reads, plan.groups, plan.last) == (1, (), (0, 1, 2))
    assert plan.passes[0].runs == ("a", "change", "b")
    assert "only pass" in plan.passes[0].why


def test_a_step_between_two_deduplications_takes_a_pass_of_its_own() -> None:
    plan = make_plan([EQUAL, filter_("between"), SIMILAR])
    assert [(g.before, g.decides) for g in plan.groups] == [((), (0,)), ((1,), (2,))]
    assert plan.n_reads == 3
    assert plan.passes[1].remembers == ("equal",)
    assert plan.passes[1].runs == ("between",)


def test_keys_that_mean_something_else_by_equal_are_not_shared() -> None:
    plan = make_plan([EQUAL, StepFacts("similar", FUZZY.name, joins=False)])
    assert [g.decides for g in plan.groups] == [(0,), (1,)]
    assert plan.n_reads == 3


def test_only_one_exact_deduplication_is_joined_and_only_by_the_fuzzy_one_after_it() -> None:
    assert [g.decides for g in make_plan([EQUAL, SIMILAR, SIMILAR]).groups] == [(0, 1), (2,)]
    assert [g.decides for g in make_plan([CUT, SIMILAR]).groups] == [(0,), (1,)]
    assert [g.decides for g in make_plan([SIMILAR, EQUAL]).groups] == [(0,), (1,)]


@pytest.mark.parametrize("before", [[CHANGE], [CUT], [filter_(), CHANGE, filter_()]])
def test_texts_that_were_changed_are_collected_to_be_compared(before: list[StepFacts]) -> None:
    plan = make_plan([*before, SIMILAR])
    assert plan.groups[-1].is_as_read is False
    assert plan.passes[-2].name == "texts for similar"
    assert make_plan([*before, EQUAL]).passes[-2].name.startswith("keys for")


def test_compressed_input_is_read_once_more_to_compare_texts() -> None:
    plan = make_plan([filter_(), EQUAL, SIMILAR], plain_texts=False)
    assert plan.n_reads == 3
    assert "cannot be read by position" in plan.passes[1].why
    assert make_plan([filter_(), EQUAL], plain_texts=False).n_reads == 2


def test_changes_and_columns_are_made_again_and_a_dear_one_is_remarked_upon() -> None:
    model = StepFacts("model", COLUMNS, is_expensive=True)
    plan = make_plan([CHANGE, model, EQUAL, StepFacts("behind", COLUMNS, is_expensive=True)])
    assert plan.passes[-1].redoes == ("change", "model")
    assert len(plan.remarks) == 1
    assert plan.remarks[0].startswith("model uses a model")
    assert plan.groups[0].is_as_read is False
    assert make_plan([model, EQUAL]).groups[0].is_as_read is True


def test_columns_that_make_the_compared_texts_are_made_again_for_them_and_no_others() -> None:
    steps = [
        StepFacts("length", COLUMNS, reads=frozenset({"text"}), adds=frozenset({"n"})),
        StepFacts("twice", COLUMNS, reads=frozenset({"n"}), adds=frozenset({"m"})),
        StepFacts("language", COLUMNS, reads=frozenset({"text"}), adds=frozenset({"lang"})),
        StepFacts("tag", CHANGES, reads=frozenset({"text", "m"})),
        StepFacts("later", COLUMNS, reads=frozenset({"text"}), adds=frozenset({"late"})),
        StepFacts("similar", FUZZY.name, compares_texts=True, reads=frozenset({"text"})),
    ]
    plan = make_plan(steps)
    assert plan.groups[0].text_makers == (0, 1, 3)
    assert plan.passes[1].redoes == ("length", "twice", "tag")
    steps[3] = StepFacts("anything", CHANGES)  # it does not say what it reads
    assert make_plan(steps).groups[0].text_makers == (0, 1, 2, 3)
    of_a_column = [steps[0], steps[2], StepFacts("similar", FUZZY.name, compares_texts=True, reads=frozenset({"lang"}))]
    assert make_plan(of_a_column).groups[0].text_makers == (1,)
    assert make_plan([CUT, steps[-1]]).passes[-2].why == "the texts that similar compares are those that cut made"


class OnTwoGpus(ProcessingStage[Any, Any]):
    name = "on two GPUs"
    resources = Resources(gpus=2.0)

    def process(self, task: Any) -> Any:
        return task


class OfManyMachines(BaseExecutor):
    is_cluster = True


def test_gpus_that_a_step_needs_are_looked_for_where_it_will_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tamis.engine.job.count_gpus", lambda: 0)
    (tmp_path / "in.jsonl").write_text('{"text": "a"}\n')
    curation = Curation([OnTwoGpus(), ExactDuplicates()], str(tmp_path / "in.jsonl"), str(tmp_path / "out"), card=False)
    with pytest.raises(PipelineError, match="asks for 2 GPU, this machine has 0"):
        curation.run(memory="600MB")
    assert not (tmp_path / "out").exists()
    identity = CurationRun(curation, {}, None, OfManyMachines())._identity()
    assert identity["steps"][0] == "on two GPUs"
