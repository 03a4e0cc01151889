"""Which rules and sinks a run has: the defaults, then the recipe, then the user's own file over both.

The user's file is `--alerts FILE`, else $TAMIS_ALERTS, else alerts.yaml or alerts.toml in the folder tamis of the user's
configuration (XDG_CONFIG_HOME, ~/.config); "off" in place of the first two turns all alerts off.

A recipe may come from anybody: the commands and webhooks it names are refused unless the user allows them, and it can never
change a sink of the user's.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tamis.errors import RecipeError, UsageError
from tamis.observe.alerts.measures import MEASURES, Place
from tamis.observe.alerts.parse import RulePart, Section, SinkSpec, Where, read_section
from tamis.observe.alerts.rules import BUILT_IN_SINKS, DEFAULT_EVERY_S, Limit, Rule, default_rules
from tamis.recipe.yaml_text import Node, References, parse, suggest

ALLOW = "--allow-alert-sinks"
MAX_FILE_BYTES = 1_000_000
OFF = "off"
_NAMES = ("alerts.yaml", "alerts.yml", "alerts.toml")


@dataclass(frozen=True)
class Chosen:
    rules: Sequence[Rule] = ()
    sinks: Mapping[str, SinkSpec] = field(default_factory=dict)
    every_s: float = DEFAULT_EVERY_S
    to: tuple[str, ...] = BUILT_IN_SINKS


def choose(recipe: Section | None, own: Section | None, place: Place, allow_recipe_sinks: bool = False) -> Chosen:
    """Raises where the parts do not fit together."""
    if recipe is not None and recipe.sinks and not allow_recipe_sinks:
        first = next(iter(recipe.sinks.values()))
        kind = "command" if first.command else "webhook"
        raise first.where.fail(
            f"the recipe wants alerts to go to a {kind} of its own; if you trust it, add {ALLOW}, or define the sink in "
            "your own alerts file (docs/alerts.md)"
        )
    rules = {rule.name: rule for rule in default_rules(place)}
    sinks: dict[str, SinkSpec] = {}
    every_s: float = DEFAULT_EVERY_S
    to: tuple[str, ...] = BUILT_IN_SINKS
    for section in (recipe, own):
        if section is None:
            continue
        for name, part in section.rules.items():
            rules[name] = _changed(rules.get(name), name, part)
        sinks |= section.sinks
        every_s = section.every_s if section.every_s is not None else every_s
        to = section.to if section.to is not None else to
    if recipe is not None and own is not None:
        for name in recipe.sinks:
            if name in own.sinks:
                raise recipe.sinks[name].where.fail(
                    f"your own alerts file has a sink {name!r} too; give it another name"
                )
    _check_sinks([s for s in (recipe, own) if s is not None], sinks)
    return Chosen(list(rules.values()), sinks, every_s, to)


def _check_sinks(sections: Sequence[Section], sinks: Mapping[str, SinkSpec]) -> None:
    known = [*BUILT_IN_SINKS, *sinks]
    for section in sections:
        wanted = [
            (section.where, section.to or ()),
            *((r.where, r.values.get("to", ())) for r in section.rules.values()),
        ]
        for where, names in wanted:
            for name in names:
                if name not in known:
                    raise where.fail(f"to: there is no sink {name!r}{suggest(name, known)}")


_FIELDS = {"for": "for_s", "every": "every_s", "to": "sinks", "do": "remedies", "say": "advice"}


def _changed(rule: Rule | None, name: str, part: RulePart) -> Rule:
    """A rule with what a file says about it; a new one where there is none of that name."""
    values = dict(part.values)
    if rule is None:
        measure = values.get("measure", name if name in MEASURES else None)
        if measure is None:
            raise part.where.fail(
                f"{name!r} is a new rule and must say what it measures{suggest(name, list(MEASURES))}".replace(
                    "ccepted:", "ccepted as measure:"
                )
            )
        if not {"above", "below"} & set(values):
            raise part.where.fail("a new rule needs a limit: above: or below:")
        rule = Rule(name, measure, ())
    elif values.get("measure", rule.measure) != rule.measure:
        raise part.where.fail(
            f"the rule {name!r} is about {rule.measure}; to watch {values['measure']}, give the rule another name"
        )
    values.pop("measure", None)
    if "above" in values and "below" in values:
        raise part.where.fail("give above: or below:, not both; a second rule can have the other")
    for side in ("above", "below"):
        if side in values:
            limits = tuple(_with_unit(limit, rule.measure, part.where, side) for limit in values.pop(side))
            rule = replace(rule, limits=limits, low=side == "below")
    changes: dict[str, Any] = {_FIELDS.get(key, key): value for key, value in values.items()}
    return replace(rule, **changes)


def _with_unit(limit: Limit, measure_name: str, where: Where, side: str) -> Limit:
    measure = MEASURES[measure_name]
    if limit.unit == "":
        if measure.unit == "share" and limit.amount > 1 and not measure.sized:
            raise where.fail(
                f"{side}: {limit.amount:g} is more than everything; write {limit.amount:g}% or a share up to 1"
            )
        sized = measure.unit == "share" and limit.amount > 1
        return replace(limit, unit="bytes" if sized else measure.unit)
    if limit.unit == measure.unit or (limit.unit == "bytes" and measure.sized):
        return limit
    fitting = {"share": "a share such as 85%", "bytes": "a size such as 1GB", "seconds": "a time such as 5min"}
    expected = fitting.get(measure.unit, "a number of degrees")
    expected += " or a size such as 1GB" if measure.sized and measure.unit != "bytes" else ""
    raise where.fail(f"{side}: {measure_name} is compared with {expected}")


# -- the user's own file -------------------------------------------------------------------------------------------------
def find_file(given: str | None, environ: Mapping[str, str]) -> str | None:
    """The user's file, "off", or None where there is none. A file that was named must exist; reading it will tell."""
    named = given if given is not None else environ.get("TAMIS_ALERTS", "")
    if named:
        return named
    home = environ.get("HOME", "")
    base = environ.get("XDG_CONFIG_HOME", "") or (os.path.join(home, ".config") if home else "")
    if not os.path.isabs(base):
        return None
    found = [path for name in _NAMES if os.path.isfile(path := os.path.join(base, "tamis", name))]
    if len(found) > 1:
        raise UsageError(f"there are {' and '.join(found)}; keep one of them")
    return found[0] if found else None


def read_file(path: str, environ: Mapping[str, str]) -> Section:
    """A file of rules and sinks; TOML if its name ends so, YAML otherwise."""
    try:
        with open(path, "rb") as file:
            raw = file.read(MAX_FILE_BYTES + 1)
    except OSError as exc:
        raise RecipeError(f"cannot read the alerts file: {exc.strerror}", file=path) from None
    except ValueError:
        raise UsageError(f"{path!r} is not the name of a file") from None
    if len(raw) > MAX_FILE_BYTES:
        raise RecipeError(f"larger than {MAX_FILE_BYTES:,} bytes; is this an alerts file?", file=path)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        raise RecipeError(f"not UTF-8 at byte {exc.start}; save it as UTF-8", file=path) from None
    node = _toml(text, path) if path.endswith(".toml") else _yaml(text, path)
    return read_section(node, References({}, environ, path), path)


def _yaml(text: str, path: str) -> Node:
    lines = (line.strip() for line in text.splitlines())
    if all(not line or line.startswith("#") or line == "---" for line in lines):
        return Node(None)
    return parse(text, path)


def _toml(text: str, path: str) -> Node:
    import tomllib

    try:
        values = tomllib.loads(text)
    except ValueError as exc:  # TOMLDecodeError, and whole numbers of thousands of digits
        raise RecipeError(f"not valid TOML: {exc}", file=path) from None
    except RecursionError:
        raise RecipeError("nested too deeply", file=path) from None
    return _node(values, path, 0)


def _node(value: Any, path: str, depth: int) -> Node:
    if depth > 10:
        raise RecipeError("nested deeper than 10 levels; an alerts file needs 4", file=path)
    if isinstance(value, dict):
        return Node({k: _node(v, path, depth + 1) for k, v in value.items()})
    if isinstance(value, list):
        return Node([_node(v, path, depth + 1) for v in value])
    if isinstance(value, (bool, int, float, str)):
        return Node(value)
    raise RecipeError(f"expected text, a number or true or false, got a {type(value).__name__}", file=path)
