"""Reading recipe text: values, limits, overrides."""

from __future__ import annotations

from typing import Any

import pytest

from tamis.errors import RecipeError
from tamis.yaml_text import Node, References, override, parse


def plain(node: Node) -> Any:
    if isinstance(node.value, dict):
        return {key: plain(item) for key, item in node.value.items()}
    if isinstance(node.value, list):
        return [plain(item) for item in node.value]
    return node.value


def test_scalars_follow_yaml_1_2() -> None:
    text = (
        "[1, -2, 1_000, 1e-3, .5, 0x1f, 010, true, no, on, null, ~, '1', \"true\", 2024-01-01, 12:30, !!str 5, 512MB]"
    )
    assert plain(parse(text, "f")) == [
        1,
        -2,
        1000,
        0.001,
        0.5,
        31,
        10,
        True,
        "no",
        "on",
        None,
        None,
        "1",
        "true",
        "2024-01-01",
        "12:30",
        "5",
        "512MB",
    ]


def test_lines_are_known() -> None:
    root = parse("a: 1\nb:\n  - x\n  - y: 2\n", "f")
    assert isinstance(root.value, dict)
    items = root.value["b"].value
    assert isinstance(items, list)
    assert [root.value["a"].line, items[0].line, items[1].line] == [1, 3, 4]


@pytest.mark.parametrize(
    "tag",
    ["!!python/object/apply:os.system", "!!python/name:os.system", "!!python/object:object", "!custom", "!!timestamp"],
)
def test_tags_are_refused(tag: str) -> None:
    with pytest.raises(RecipeError, match=r"f:1: a: tag .* is refused"):
        parse(f"a: {tag} ['true']\n", "f")


def test_aliases_work_and_bombs_are_refused() -> None:
    assert plain(parse("a: &x [1, 2]\nb: *x\n", "f")) == {"a": [1, 2], "b": [1, 2]}
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
    for i in range(1, 12):
        bomb += f"a{i}: &a{i} [" + ", ".join([f"*a{i - 1}"] * 10) + "]\n"
    with pytest.raises(RecipeError, match="100,000 values"):
        parse(bomb, "f")


@pytest.mark.parametrize("text", ["a: &x [*x]\n", "a: *nothing\n", "<<: {a: 1}\n", "? [a]\n: 1\n"])
def test_odd_structures_are_refused(text: str) -> None:
    with pytest.raises(RecipeError):
        parse(text, "f")


@pytest.mark.parametrize("text", ["[" * 100_000, "{a: " * 100_000, "- " * 100_000 + "x"])
def test_deep_nesting_is_refused(text: str) -> None:
    with pytest.raises(RecipeError, match="nested deeper than 40 levels"):
        parse(text, "f")


def test_deep_nesting_through_aliases_is_refused() -> None:
    text = "a0: &a0 " + "[" * 15 + "]" * 15 + "\n"
    text += "".join(f"a{i}: &a{i} " + "[" * 15 + f"*a{i - 1}" + "]" * 15 + "\n" for i in range(1, 50))
    with pytest.raises(RecipeError, match="through aliases"):
        parse(text, "f")


def test_forty_levels_are_accepted() -> None:
    assert plain(parse("[" * 40 + "]" * 40, "f")) is not None


def test_references_that_grow_are_refused() -> None:
    text = "a0: xxxxxxxxxxxxxxxxxxxx\n" + "".join(f"a{i}: " + f"${{a{i - 1}}}" * 20 + "\n" for i in range(1, 9))
    root = parse(text, "f")
    assert isinstance(root.value, dict)
    with pytest.raises(RecipeError, match="grows beyond"):
        References(root.value, {}, "f").value(root.value["a8"], "a8")


def test_overrides_change_one_place() -> None:
    root = parse("a: &x {n: 1, l: [1, 2]}\nb: *x\n", "f")
    override(root, "b.n", "2", "f")
    override(root, "b.l.1", "[7, 8]", "f")
    override(root, "c", "/data/*.jsonl", "f")
    override(root, "a.new", "text: with colon", "f")
    assert plain(root) == {
        "a": {"n": 1, "l": [1, 2], "new": "text: with colon"},
        "b": {"n": 2, "l": [1, [7, 8]]},
        "c": "/data/*.jsonl",
    }


@pytest.mark.parametrize(
    ("key", "words"), [("a.m.x", "did you mean n"), ("a.l.5", "it has 2 items"), ("", "no ''"), ("a.n.x", "no 'x'")]
)
def test_overrides_of_nothing_are_refused(key: str, words: str) -> None:
    root = parse("a: {nm: 1, l: [1, 2], n: 3}\n", "f")
    with pytest.raises(RecipeError, match=words):
        override(root, key, "1", "f")


def test_overrides_may_begin_settings_and_how_a_curation_is_written() -> None:
    root = parse("stages: []\nsettings:\n", "f")
    override(root, "settings.memory", "1GB", "f")
    override(root, "settings.workers", "2", "f")
    assert plain(root) == {"stages": [], "settings": {"memory": "1GB", "workers": 2}}
    with pytest.raises(RecipeError, match="no 'write' in the recipe"):  # stages write for themselves
        override(root, "write.format", "jsonl", "f")
    steps = parse("steps: []\n", "f")
    override(steps, "write.format", "jsonl", "f")
    assert plain(steps) == {"steps": [], "write": {"format": "jsonl"}}


def test_a_path_that_looks_like_a_number_stays_text() -> None:
    root = parse("stages: [{file_paths: a, limit: 3}]\n", "f")
    for key, text in (("input", "2024"), ("output", "1e3"), ("stages.0.file_paths", "007"), ("stages.0.limit", "5")):
        override(root, key, text, "f")
    override(root, "seed", "2024", "f")
    assert plain(root) == {
        "stages": [{"file_paths": "007", "limit": 5}],
        "input": "2024",
        "output": "1e3",
        "seed": 2024,
    }
