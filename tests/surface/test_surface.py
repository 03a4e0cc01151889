"""Every name, parameter and default that users of NeMo Curator know is here, or is listed with the reason why not."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent

from tests.surface import compare  # noqa: E402

FACTS: dict[str, list[dict[str, Any]]] = json.loads((HERE / "surface.json").read_text())
GROUPS: dict[str, dict[str, Any]] = tomllib.loads((HERE / "exceptions.toml").read_text())
LISTED = [entry for group in GROUPS.values() for entry in group.get("missing", [])]
DIFFERS = {name: why for group in GROUPS.values() for name, why in group.get("differs", {}).items()}
# (module, name) of everything that may be looked for: definitions, and what the documentation imports
NAMES = {(n["module"], n["name"]): n for n in FACTS["names"]}
IMPORTS = {(i["from"], i["import"]): i["blocks"] for i in FACTS["imports"]}


def covers(entry: str, module: str, name: str | None) -> bool:
    """Whether an entry (`module`, or `module:name`) speaks of a name."""
    where, _, what = entry.partition(":")
    if what:
        return (where, what) == (module, name)
    return f"{module}.{name or ''}.".startswith(where + ".")


def is_listed(module: str, name: str | None) -> bool:
    return any(covers(entry, module, name) for entry in LISTED)


def test_every_name_is_here_or_listed() -> None:
    missing = [
        f"{module}:{name}"
        for module, name in NAMES
        if compare.find_defined(module, name) is compare.MISSING and not is_listed(module, name)
    ]
    assert missing == []


def test_every_import_of_the_documentation_works_or_is_listed() -> None:
    missing = [
        f"from {module} import {name} ({blocks} blocks)"
        for (module, name), blocks in IMPORTS.items()
        if compare.find(module, name) is compare.MISSING and not is_listed(module, name)
    ]
    assert missing == []


def test_parameters_defaults_order_and_methods() -> None:
    wrong = {}
    for (module, name), facts in NAMES.items():
        thing = compare.find_defined(module, name)
        if thing is not compare.MISSING and f"{module}:{name}" not in DIFFERS:
            found = compare.differences(facts["params"], facts["methods"], thing)
            if found:
                wrong[f"{module}:{name}"] = found
    assert wrong == {}


@pytest.mark.parametrize("entry", LISTED)
def test_what_is_listed_as_missing_is_missing(entry: str) -> None:
    spoken_of = [pair for pair in (*NAMES, *IMPORTS) if covers(entry, *pair)]
    assert spoken_of, f"{entry} is nothing that anybody looks for; remove it from exceptions.toml"
    there = [f"{m}:{n}" for m, n in spoken_of if compare.find(m, n) is not compare.MISSING]
    assert there == [], (
        f"these have come to exist; remove {entry} from exceptions.toml, or say more exactly what is missing"
    )


def test_what_is_listed_as_different_is_different() -> None:
    same = []
    for entry in DIFFERS:
        module, _, name = entry.partition(":")
        facts, thing = NAMES[module, name], compare.find_defined(module, name)
        if thing is compare.MISSING or not compare.differences(facts["params"], facts["methods"], thing):
            same.append(entry)
    assert same == [], "these do not differ any more (or are missing); remove them from exceptions.toml"


def test_how_much_of_it_is_here() -> None:
    """Of what is about text, and not about clusters, models, images and objects of GPU libraries."""
    others = ("cluster", "models", "images", "gpu")
    theirs = [*(e for g in others for e in (*GROUPS[g]["missing"], *GROUPS[g].get("differs", ())))]
    ours = [p for p in NAMES if not any(covers(e, *p) for e in theirs)]
    exceptions = [p for p in ours if is_listed(*p) or f"{p[0]}:{p[1]}" in DIFFERS]
    assert len(ours) > 200
    assert len(exceptions) / len(ours) < 0.05


def test_what_is_left_to_gpu_libraries_is_nothing_that_documents_import() -> None:
    assert [p for p in IMPORTS if any(covers(e, *p) for e in GROUPS["gpu"]["missing"])] == []


# -- the comparison itself --------------------------------------------------------------------------------------------
def sample(a: int, b: str = "x", c: Any = None, *, d: float = 1.0) -> None:
    """Something to compare with."""


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        (["a", "b='x'", "c=None", "d=1.0"], []),
        (["a", "b='x'", "c=field(default_factory=dict)"], []),
        (["a", "**kwargs"], []),
        (["a", "b='y'"], ["b has the default 'x' where it should be 'y'"]),
        (["a", "c=None", "b='x'"], ["c is parameter 3 where it should be 2", "b is parameter 2 where it should be 3"]),
        (["a", "e=1"], ["no parameter e"]),
        (["b='x'"], ["b is parameter 2 where it should be 1", "a is required, and there is none"]),
        (["a=1"], ["a has the default none: it is required where it should be 1"]),
        (["a", "b", "c=False"], ["c has the default None where it should be False"]),
    ],
)
def test_differences_are_seen(params: list[str], expected: list[str]) -> None:
    assert compare.parameter_differences(params, sample) == expected


def test_missing_methods_and_modules_are_seen() -> None:
    assert compare.differences([], ["lower", "shout"], "text") == ["no method shout"]
    assert compare.find("tamis.no_such_room", "x") is compare.MISSING
    assert compare.find("tamis.stages.base", "NoSuchThing") is compare.MISSING
    assert compare.find("tamis.stages", "base") is not compare.MISSING
    assert compare.find_defined("tamis.stages.base.elsewhere", "ProcessingStage") is not compare.MISSING
    assert compare.evaluated("float('inf')") == float("inf")
    assert compare.evaluated("SOME_CONSTANT") is compare.UNKNOWN
