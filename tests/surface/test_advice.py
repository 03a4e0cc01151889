"""What `tamis doctor --check-script` advises is in step with what is really missing or different."""

from __future__ import annotations

import importlib
import sys

import pytest

from tamis._nemo_hints import load_advice, suggest_replacement
from tests.surface import compare
from tests.surface.test_surface import DIFFERS, GROUPS, IMPORTS, LISTED, NAMES, covers


def test_there_is_advice_for_all_that_is_missing() -> None:
    wanted = {pair for pair in (*NAMES, *IMPORTS) if pair[1] and any(covers(entry, *pair) for entry in LISTED)}
    assert sorted(f"{m}.{n}" for m, n in wanted if not suggest_replacement(f"{m}.{n}")) == []


def test_no_advice_is_left_over() -> None:
    missing = {(m, n) for m, n in (*NAMES, *IMPORTS) if n and compare.find(m, n) is compare.MISSING}
    paths = {f"{m}.{n}." for m, n in missing}
    names = {n for _, n in missing}
    stale = [k for k in load_advice()["missing"] if k not in names and not any(p.startswith(k + ".") for p in paths)]
    assert stale == []


def test_differences_that_are_reported_are_real() -> None:
    listed = {entry.partition(":")[2] for entry in DIFFERS}
    assert sorted(set(load_advice()["differs"]) - listed) == []
    for name in load_advice()["order"]:
        (module,) = [m for m, n in NAMES if n == name]
        found = compare.parameter_differences(NAMES[module, name]["params"], compare.find_defined(module, name))
        assert any("is parameter" in line for line in found), f"the order of {name} is that of the original; remove it"


def test_parameters_and_methods_that_are_reported_are_missing() -> None:
    params, methods = set(), set()
    for (module, name), facts in NAMES.items():
        thing = compare.find_defined(module, name)
        if thing is not compare.MISSING:
            lines = compare.differences(facts["params"], facts["methods"], thing)
            params |= {line.split()[2] for line in lines if line.startswith("no parameter")}
            methods |= {line.split()[2] for line in lines if line.startswith("no method")}
    told = {k for k in load_advice()["parameters"] if "." not in k}
    assert sorted(told - params) == []
    assert sorted(params - told - {"duplicate_id_field", "ids_to_remove_path", "read_kwargs"}) == []
    assert sorted(set(load_advice()["methods"]) ^ methods) == []


def test_every_group_says_why() -> None:
    assert all(group["reason"] for group in GROUPS.values())


def test_a_module_that_is_not_here_says_what_to_use() -> None:
    """Whole rooms of the original: importing one raises, with the advice of doctor."""
    others = [e for group in ("cluster", "gpu", "lance", "images") for e in GROUPS[group]["missing"] if ":" not in e]
    for entry in (e for e in others if not e.startswith("tamis.models.")):  # of these the room around them is told
        with pytest.raises(ModuleNotFoundError) as told:
            importlib.import_module(entry)
        assert str(told.value) == f"{entry} is not part of Tamis: {suggest_replacement(entry)}"
        assert told.value.name == entry
    with pytest.raises(ModuleNotFoundError, match=r"tamis\.stages\.audio is not part of Tamis: audio is not here yet"):
        importlib.import_module("tamis.stages.audio.io")


def test_what_is_here_is_not_refused_by_a_caller() -> None:
    """As pytest does: it asks every finder, whether or not another has found the module."""
    (ours,) = [finder for finder in sys.meta_path if getattr(finder, "__module__", "") == "tamis"]
    for name in ("tamis.stages.text.classifiers", "tamis.stages.deduplication.semantic.kmeans", "tamis.tasks.document"):
        assert suggest_replacement(name)
        assert ours.find_spec(name, ["/nowhere"]) is None
