"""Which rules and sinks a run has: the defaults, then the recipe, then the user's own file over both.

The user's file is `--alerts FILE`, else $TAMIS_ALERTS, else alerts.yaml or alerts.toml in the folder tamis of the user's
configuration (XDG_CONFIG_HOME, ~/.config); "off" in place of the first two turns all alerts off.

A recipe may come from anybody: the commands and webhooks it names are refused unless the user allows them, and it can never
change a sink of the user's.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tamis.errors import RecipeError, UsageError
from tamis.observe.alerts.measures import MEASURES, Place
from tamis.observe.alerts.parse import Section, read_section
from tamis.observe.alerts.rules import BUILT_IN_SINKS, DEFAULT_EVERY_S, Limit, Rule, default_rules
from tamis.observe.alerts.sinks import CommandSink, Sink
from tamis.recipe.yaml_text import Located, Node, References, parse, read_text, suggest

ALLOW = "--allow-alert-sinks"
MAX_FILE_BYTES = 1_000_000
OFF = "off"
_NAMES = ("alerts.yaml", "alerts.yml", "alerts.toml")


@dataclass(frozen=True)
class Chosen:
    rules: Sequence[Rule] = ()
    sinks: Mapping[str, Sink] = field(default_factory=dict)
    every_s: float = DEFAULT_EVERY_S
    to: tuple[str, ...] = BUILT_IN_SINKS


def choose(recipe: Section | None, own: Section | None, place: Place, allow_recipe_sinks: bool = False) -> Chosen:
    """Raises where the parts do not fit together."""
    if recipe is not None:
        _check_trust(recipe, own, allow_recipe_sinks)
    made = Chosen()
    rules = {rule.name: rule for rule in default_rules(place)}
    sections = [section for section in (recipe, own) if section is not None]
    for section in sections:
        for name, values in section.rules.items():
            rules[name] = _changed(rules.get(name), name, values, section)
        made = replace(
            made,
            sinks={**made.sinks, **section.sinks},
            every_s=made.every_s if section.every_s is None else section.every_s,
            to=made.to if section.to is None else section.to,
        )
    known = [*BUILT_IN_SINKS, *made.sinks]
    for section in sections:
        wanted = [((), section.to or ()), *((("rules", n), v.get("to", ())) for n, v in section.rules.items())]
        for name, keys in ((name, keys) for keys, names in wanted for name in names):
            if name not in known:
                raise section.fail(f"to: there is no sink {name!r}{suggest(name, known)}", *keys)
    return replace(made, rules=list(rules.values()))


def _check_trust(recipe: Section, own: Section | None, allowed: bool) -> None:
    """A recipe may have sinks of its own only where the user says so, and never under the name of one of the user's."""
    for name, sink in recipe.sinks.items():
        if not allowed:
            kind = "command" if isinstance(sink, CommandSink) else "webhook"
            message = (
                f"the recipe wants alerts to go to a {kind} of its own; if you trust it, add {ALLOW}, or define the sink in "
                "your own alerts file (docs/alerts.md)"
            )
            raise recipe.fail(message, "sinks", name)
        if own is not None and name in own.sinks:
            raise recipe.fail(f"your own alerts file has a sink {name!r} too; give it another name", "sinks", name)


_FIELDS = {"for": "for_s", "every": "every_s", "to": "sinks", "do": "remedies", "say": "advice"}


def _changed(rule: Rule | None, name: str, said: Mapping[str, Any], section: Section) -> Rule:
    """A rule with what a file says about it; a new one where there is none of that name."""

    def fail(message: str) -> RecipeError:
        return section.fail(message, "rules", name)

    values = dict(said)
    measure = values.pop("measure", rule.measure if rule is not None else name)
    if rule is None:
        if measure not in MEASURES:
            known = suggest(name, list(MEASURES)).replace("ccepted:", "ccepted as measure:")
            raise fail(f"{name!r} is a new rule and must say what it measures{known}")
        if not {"above", "below"} & set(values):
            raise fail("a new rule needs a limit: above: or below:")
        rule = Rule(name, measure, ())
    elif measure != rule.measure:
        raise fail(f"the rule {name!r} is about {rule.measure}; to watch {measure}, give the rule another name")
    if "above" in values and "below" in values:
        raise fail("give above: or below:, not both; a second rule can have the other")
    for side in ("above", "below"):
        if side in values:
            limits = tuple(_with_unit(limit, measure, side, fail) for limit in values.pop(side))
            rule = replace(rule, limits=limits, low=side == "below")
    return replace(rule, **{_FIELDS.get(key, key): value for key, value in values.items()})


def _with_unit(limit: Limit, name: str, side: str, fail: Callable[[str], RecipeError]) -> Limit:
    measure = MEASURES[name]
    if limit.unit == "":
        sized = measure.unit == "share" and limit.amount > 1
        if sized and not measure.sized:
            raise fail(f"{side}: {limit.amount:g} is more than everything; write {limit.amount:g}% or a share up to 1")
        return replace(limit, unit="bytes" if sized else measure.unit)
    if limit.unit == measure.unit or (limit.unit == "bytes" and measure.sized):
        return limit
    fitting = {"share": "a share such as 85%", "bytes": "a size such as 1GB", "seconds": "a time such as 5min"}
    expected = fitting.get(measure.unit, "a number of degrees")
    expected += " or a size such as 1GB" if measure.sized and measure.unit != "bytes" else ""
    raise fail(f"{side}: {name} is compared with {expected}")


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
    text = read_text(path, what="alerts file", most=MAX_FILE_BYTES)
    node = _toml(text, path) if path.endswith(".toml") else _yaml(text, path)
    return read_section(Located(node, "", References({}, environ, path)))


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
