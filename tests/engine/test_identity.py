"""What a pipeline is: equal for equal work, different when the output could differ."""

from __future__ import annotations

import enum
import functools
import importlib
import inspect
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tamis.dedup.fuzzy.stages import DocumentSketches
from tamis.dedup.replay_tables.stages import ReplayDrops
from tamis.engine.job import make_job
from tamis.engine.run import identity
from tamis.engine.run.budget.expectation import profile_key
from tamis.engine.run.identity import describe_job, differences
from tamis.engine.schema import StageDescription
from tamis.observe.diff import setting_changes
from tamis.stages import base
from tamis.stages.base import ProcessingStage
from tamis.stages.function_decorators import processing_stage
from tamis.stages.resources import Resources
from tamis.stages.text.classifiers import AegisClassifier
from tamis.stages.text.classifiers.fasttext import FastTextModelStage
from tamis.stages.text.filters import Score, ScoreFilter
from tamis.stages.text.filters.fasttext import FastTextQualityFilter
from tamis.stages.text.filters.heuristic import WordCountFilter
from tamis.stages.text.filters.heuristic.code import TokenizerFertilityFilter
from tamis.stages.text.filters.histogram import HistogramFilter
from tamis.stages.text.io.reader import JsonlReader
from tamis.stages.text.io.writer import JsonlWriter
from tamis.stages.text.io.writer.megatron_tokenizer import MegatronTokenizerWriter
from tamis.tasks import Task


class Keep(ProcessingStage[Any, Any]):
    name = "keep"

    def __init__(self, limit: float, words: set[str] | None = None, rule: Any = None) -> None:
        self.limit, self.words, self.rule, self._cache = limit, words, rule, object()

    def process(self, task: Task[Any]) -> Task[Any]:
        return task


class KeepOther(Keep):
    def process(self, task: Task[Any]) -> None:
        return None


def described(
    stage: ProcessingStage[Any, Any], reader: JsonlReader | None = None, max_record: int = 5
) -> list[StageDescription]:
    return describe_job(
        make_job("p", [*(reader or JsonlReader("in/")).decompose(), stage, JsonlWriter("out")]),
        {"max_record": max_record},
    )


def copied(stages: list[StageDescription], replaced: str = "", by: str = "") -> list[StageDescription]:
    """Return the description as read back from a plan, with a text replaced in it."""
    text = json.dumps([stage.to_dict() for stage in stages])
    assert replaced in text
    return [StageDescription(**entry) for entry in json.loads(text.replace(replaced, by) if replaced else text)]


def long(text: str) -> bool:
    return len(text) > 10


def short(text: str) -> bool:
    return len(text) < 10


def test_the_same_pipeline_is_the_same_run_after_run() -> None:
    assert differences(described(Keep(0.5, {"b", "a"}, long)), described(Keep(0.5, {"a", "b"}, long))) == []


def test_execution_settings_do_not_count() -> None:
    other = Keep(0.5).with_(resources=Resources(cpus=4.0), batch_size=9, num_workers=3)
    assert differences(described(Keep(0.5)), described(other, JsonlReader("elsewhere/", blocksize="1MB"))) == []


def test_a_changed_parameter_is_named() -> None:
    assert differences(described(Keep(0.5)), described(Keep(0.6)))[0].endswith("Keep: limit 0.5 -> 0.6")
    assert differences(described(Keep(0.5)), described(Keep(0.5), max_record=6)) == ["settings: max_record 5 -> 6"]
    assert (
        "fields None -> ['text']"
        in differences(described(Keep(1)), described(Keep(1), JsonlReader("in/", fields=["text"])))[0]
    )


def test_a_changed_function_or_class_is_noticed() -> None:
    assert len(differences(described(Keep(0.5, rule=long)), described(Keep(0.5, rule=short)))) == 1
    assert differences(described(Keep(0.5)), described(KeepOther(0.5)))[0].startswith("the stages were ")


class Colour(enum.Enum):
    RED, BLUE = 1, 2


class Slotted:
    __slots__ = ("_hidden", "limit")

    def __init__(self, limit: int) -> None:
        self.limit, self._hidden = limit, object()


def longer_than(limit: int) -> Callable[[str], bool]:
    return lambda text: len(text) > limit


def longer(text: str, limit: int) -> bool:
    return len(text) > limit


class Rule:
    def __init__(self, limit: int) -> None:
        self.limit = limit

    def keeps(self, text: str) -> bool:
        return len(text) > self.limit


@pytest.mark.parametrize(
    ("make", "one", "other"),
    [
        (re.compile, "a+", "b+"),
        (lambda flags: re.compile("a", flags), 0, re.IGNORECASE),
        (str.encode, "a", "b"),
        (Path, "a.bin", "b.bin"),
        (Colour, 1, 2),
        (Slotted, 1, 2),
        (np.int64, 1, 2),
        (np.arange, 3, 4),
        (complex, 1, 2),
        (lambda name: getattr(str, name), "lower", "upper"),
        (lambda text: text.join, ",", ";"),
        (longer_than, 1, 2),
        (lambda n: lambda text, limit=n: len(text) > limit, 1, 2),
        (lambda n: functools.partial(longer, limit=n), 1, 2),
        (lambda n: Rule(n).keeps, 1, 2),
    ],
)
def test_a_changed_value_of_any_kind_is_noticed_and_the_same_is_not(make: Any, one: Any, other: Any) -> None:
    assert differences(described(Keep(0.5, rule=make(one))), described(Keep(0.5, rule=make(one)))) == []
    (changed,) = differences(described(Keep(0.5, rule=make(one))), described(Keep(0.5, rule=make(other))))
    assert "Keep: rule" in changed
    assert re.search("[0-9a-f]{16}", changed) is None, "hashes tell nobody anything"
    copied(described(Keep(0.5, rule=make(one))))


def test_a_module_counts_by_its_name() -> None:
    (changed,) = differences(described(Keep(0.5, rule=json)), described(Keep(0.5, rule=re)))
    assert changed.endswith("Keep: rule 'json' -> 're'")


def test_addresses_are_no_parameters() -> None:
    assert differences(described(Keep(0.5, rule=object())), described(Keep(0.5, rule=object()))) == []


def test_a_description_survives_json() -> None:

    before = described(Keep(0.5, {"a"}, long))
    assert differences(copied(before), described(Keep(0.5, {"a"}, long))) == []


def test_a_class_of_tamis_may_move_to_another_module() -> None:
    """Recorded when DocumentSketches was in dedup.index.against; so may a class that a stage holds, as a filter."""
    now = described(DocumentSketches())
    before = copied(now, f"{DocumentSketches.__module__}.", "tamis.dedup.index.against.")
    assert before[-3].stage == "tamis.dedup.index.against.DocumentSketches"
    assert differences(before, now) == setting_changes(before, now) == []
    before[-3].params["first"] = 7
    assert differences(before, now) == ["tamis.DocumentSketches: first 7 -> 0"]
    before[-3] = replace(before[-3], stage="tamis.dedup.index.against.Sketches")
    assert differences(before, now)[0].startswith("the stages were ")
    assert setting_changes(before, now)[0].startswith("the stages were ")
    now = described(ScoreFilter(WordCountFilter(min_words=3)))
    assert differences(copied(now, f"{WordCountFilter.__module__}.", "tamis.stages.text.words."), now) == []


def test_a_stage_of_the_user_is_known_by_its_whole_path() -> None:
    now = described(Keep(0.5, rule=Colour.RED))
    assert differences(copied(now, f"{__name__}.Keep", "tamis_like.Keep"), now)[0].startswith("the stages were ")
    assert "rule mine.Colour -> " in differences(copied(now, f"{__name__}.Colour", "mine.Colour"), now)[0]


def test_what_is_reported_of_a_stage_is_no_parameter(tmp_path: Path) -> None:
    (tmp_path / "starts.npy").touch()

    def remembered(judge: base.ProcessingStage[Any, Any]) -> list[StageDescription]:
        return described(ReplayDrops(str(tmp_path), "language", judge))

    one, other = (ScoreFilter(WordCountFilter(min_words=n), name="language") for n in (10, 20))
    assert differences(remembered(one), remembered(other)) == []


def test_the_policy_of_prompts_is_a_parameter_of_the_stage_that_makes_them() -> None:
    """The model's stage is told of it, too, since a later version: runs that were begun before go on."""
    stages = AegisClassifier(policy="O1: Violence.").decompose()
    told = [entry.params["policy"] for stage in stages for entry in described(stage) if "policy" in entry.params]
    assert told == ["O1: Violence."]


def test_whether_code_of_a_model_may_run_is_no_parameter() -> None:
    """The code itself counts by its files."""
    for trusted, plain in zip(*(AegisClassifier(trust_remote_code=t).decompose() for t in (True, False)), strict=True):
        assert differences(described(plain), described(trusted)) == []


def _histogram(folder: Path) -> ProcessingStage[Any, Any]:
    return ScoreFilter(HistogramFilter(cache_dir=str(folder), lang="m.bin"))


def _tokenizer(folder: Path) -> ProcessingStage[Any, Any]:
    return ScoreFilter([WordCountFilter(), TokenizerFertilityFilter(str(folder / "m.bin"))])


def _quality(folder: Path) -> ProcessingStage[Any, Any]:
    return Score(FastTextQualityFilter(str(folder / "m.bin")), "quality")


def _classifier(folder: Path) -> ProcessingStage[Any, Any]:
    return FastTextModelStage(str(folder / "m.bin"))


@pytest.mark.parametrize("made", [_histogram, _tokenizer, _quality, _classifier])
def test_another_file_at_the_same_place_is_another_model(
    made: Callable[[Path], ProcessingStage[Any, Any]], tmp_path: Path
) -> None:
    (tmp_path / "m.bin").write_text("abc")
    before = described(made(tmp_path))
    assert differences(before, described(made(tmp_path))) == []
    (tmp_path / "m.bin").write_text("abd")
    (told,) = differences(before, described(made(tmp_path)))
    assert "its model files changed" in told
    del before[2].params["model files"]  # the file was fetched later
    assert differences(before, described(made(tmp_path))) == []


def test_the_tokenizer_of_a_writer_counts(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    one = MegatronTokenizerWriter(str(tmp_path / "out"), model_identifier=str(tmp_path)).model_files()
    (tmp_path / "tokenizer.json").write_text("[]")
    assert one != MegatronTokenizerWriter(str(tmp_path / "out"), model_identifier=str(tmp_path)).model_files() != ""


HELPERS = (
    "LIMIT = 3\n\ndef clean(text):\n    return deeper(text)\n\ndef deeper(text):\n    return text.strip()\n\ndef "
    "idle():\n    return 1\n"
)
STAGES = """
import own_{n}.helpers as helpers
from own_{n}.bases import Base
from tamis.stages.text.filters import DocumentFilter

class Clean(Base):
    name = "clean"
    def process(self, task):
        return [helpers.clean(t) for t in task.column("text").to_pylist()] and task

def by_hand(task):
    return own(task)

def own(task):
    return task

class Short(DocumentFilter):
    def score_document(self, text):
        return own(text)
    def keep_document(self, score):
        return True
"""
BASES = (
    "from tamis import ProcessingStage\n\nclass Base(ProcessingStage):\n    def outputs(self):\n        return [], "
    "[]\n    def process(self, task):\n        return task\n"
)


def own_package(folder: Path, n: int, monkeypatch: pytest.MonkeyPatch, **edited: tuple[str, str]) -> Any:
    """Make a package of the user's own, with the text of some of its modules edited.

    Names are new: nothing is imported twice.
    """
    place = folder / str(n) / f"own_{n}"
    place.mkdir(parents=True)
    for name, text in {"__init__": "", "helpers": HELPERS, "bases": BASES, "stages": STAGES.format(n=n)}.items():
        old, new = edited.get(name, ("", ""))
        assert old in text
        (place / f"{name}.py").write_text(text.replace(old, new, 1) if old else text)
    monkeypatch.syspath_prepend(str(place.parent))
    return importlib.import_module(f"own_{n}.stages")


def test_an_edited_helper_or_base_of_a_users_stage_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def uses(n: int, **edited: tuple[str, str]) -> list[StageDescription]:
        own = own_package(tmp_path, n, monkeypatch, **edited)
        found = [*described(own.Clean()), *described(base_stage(own.by_hand)), *described(ScoreFilter([own.Short()]))]
        return copied(found, f"own_{n}", "own")

    def base_stage(function: Any) -> Any:
        return processing_stage(name="by hand")(function)

    plain = uses(0)
    told = {name for entry in plain for name in entry.uses}
    assert told == {"own.helpers.clean", "own.helpers.deeper", "own.bases.Base", "own.stages.own"}
    without_source = [
        replace(e, source="") for e in plain
    ]  # what the file looks like around them is of no interest here
    for n, module, old, new, name in (
        (1, "helpers", "text.strip()", "text.lower()", "own.helpers.deeper"),
        (2, "bases", "return task", "return None", "own.bases.Base"),
    ):
        now = [replace(e, source="") for e in uses(n, **{module: (old, new)})]
        (told,) = differences(without_source, now)
        assert told.startswith(f"own.stages.Clean: {name}, which it uses, changed: ")
        assert old in told
        assert f"{new}`" in told
    now = [replace(e, source="") for e in uses(3, helpers=("return 1", "return 2"))]
    assert differences(without_source, now) == []  # nobody calls it
    assert profile_key([replace(e, uses={}) for e in plain]) == profile_key(plain)


def test_code_of_tamis_and_of_installed_packages_does_not_count() -> None:
    stage = Keep(1.0, rule=re.compile("x"))
    stage.words = np.zeros(3)  # type: ignore[assignment]
    assert all(not entry.uses for entry in described(stage))
    assert all(not entry.uses for entry in described(ScoreFilter(WordCountFilter())))


class Called:
    def __call__(self, text: str) -> str:
        return text


@functools.wraps(Called())
def wrapping_an_object(text: str) -> bool:
    return long(text)


def brief(text: str) -> bool:
    return short(text)


def test_decorators_of_any_kind_are_looked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(brief, "__wrapped__", brief, raising=False)  # no end
    for rule, used in ((wrapping_an_object, "long"), (brief, "short")):
        assert described(Keep(0.5, rule=rule))[-3].uses.keys() == {f"{__name__}.{used}"}


def test_functions_in_containers_are_looked_at() -> None:
    for rule in ({"a": brief}, {brief}, [({"a": [brief]},)]):
        assert described(Keep(0.5, rule=rule))[-3].uses.keys() == {f"{__name__}.short"}
    endless: list[Any] = [brief]
    endless.append(endless)
    assert described(Keep(0.5, rule=endless))[-3].uses.keys() == {f"{__name__}.short"}


def test_a_module_is_parsed_once_for_all_of_its_classes() -> None:
    def local() -> type:
        @functools.total_ordering
        class Local:
            def __lt__(self, other: object) -> bool:
                return False

        return Local

    classes = [Keep, KeepOther, Colour, Slotted, Rule, local()]
    expected = [inspect.getsource(cls) for cls in classes]
    identity._first_lines.cache_clear()
    assert [identity._text(cls) for cls in classes] == expected
    assert identity._first_lines.cache_info().misses <= 1  # none since Python 3.13 a class knows its line


@pytest.mark.parametrize("decorator", ["", "@dataclass\n"])
def test_code_without_source_is_compared_as_it_is_compiled(decorator: str) -> None:
    """Methods that exec() or `python -c` defined have no source."""

    def described(body: str) -> StageDescription:
        names: dict[str, Any] = {"__name__": "__main__"}
        exec(
            f"from dataclasses import dataclass\nfrom tamis import ProcessingStage\n{decorator}"
            f"class Mine(ProcessingStage):\n  name: str = 'mine'\n  def process(self, batch):\n    {body}\n",
            names,
        )
        return identity._describe_stage(names["Mine"]())

    assert described("return batch") == described("return batch")
    assert described("return batch").source != described("return None").source
