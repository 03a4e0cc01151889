"""Merge the rules and sinks of a run: the defaults, then the recipe, then the user's own file over both.

The user's file is `--alerts FILE`, else $TAMIS_ALERTS, else alerts.yaml or alerts.toml in the folder tamis of the
user's configuration (XDG_CONFIG_HOME, ~/.config); "off" in place of the first two turns all alerts off.

A recipe may come from anybody: the commands and webhooks it names are refused unless the user allows them, and it can
never change a sink of the user's.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

from tamis._dataclasses import dataclass
from tamis.errors import RecipeError, UsageError
from tamis.observe.alerts.measures import MEASURES, RunContext
from tamis.observe.alerts.parse import Section
from tamis.observe.alerts.rules import BUILT_IN_SINKS, DEFAULT_EVERY_S, AlertLimit, AlertRule, default_rules
from tamis.observe.alerts.sinks import AlertSink, CommandSink
from tamis.observe.alerts.wording import UNITS
from tamis.yaml_text import suggest

ALLOW = "--allow-alert-sinks"
OFF = "off"
_NAMES = ("alerts.yaml", "alerts.yml", "alerts.toml")


@dataclass(frozen=True)
class AlertSetup:
    rules: Sequence[AlertRule] = ()
    sinks: Mapping[str, AlertSink] = field(default_factory=dict)
    every_s: float = DEFAULT_EVERY_S
    to: tuple[str, ...] = BUILT_IN_SINKS


def choose(
    recipe: Section | None, own: Section | None, context: RunContext, allow_recipe_sinks: bool = False
) -> AlertSetup:
    """Combine the default rules, those of a recipe and the user's own; raise if they contradict each other."""
    if recipe is not None:
        _check_trust(recipe, own, allow_recipe_sinks)
    sections = [section for section in (recipe, own) if section is not None]
    rules = {rule.name: rule for rule in default_rules(context)}
    sinks: dict[str, AlertSink] = {}
    defaults: dict[str, Any] = {}
    for section in sections:
        for name, values in section.rules.items():
            rules[name] = _changed(rules.get(name), name, values, section)
        sinks |= section.sinks
        defaults |= {key: value for key in ("every_s", "to") if (value := getattr(section, key)) is not None}
    known = [*BUILT_IN_SINKS, *sinks]
    for section in sections:
        sink_names = [((), section.to or ()), *((("rules", n), v.get("sinks", ())) for n, v in section.rules.items())]
        for name, keys in ((name, keys) for keys, names in sink_names for name in names):
            if name not in known:
                raise section.fail(f"to: there is no sink {name!r}{suggest(name, known)}", *keys)
    return AlertSetup(list(rules.values()), sinks, **defaults)


def _check_trust(recipe: Section, own: Section | None, allowed: bool) -> None:
    """Reject sinks of a recipe unless the user allows them, and always those named like one of the user's."""
    for name, sink in recipe.sinks.items():
        if not allowed:
            kind = "command" if isinstance(sink, CommandSink) else "webhook"
            message = (
                f"the recipe wants alerts to go to a {kind} of its own; if you trust it, add {ALLOW}, or define the "
                "sink in your own alerts file (docs/guides/alerts.md)"
            )
            raise recipe.fail(message, "sinks", name)
        if own is not None and name in own.sinks:
            raise recipe.fail(f"your own alerts file has a sink {name!r} too; give it another name", "sinks", name)


def _changed(rule: AlertRule | None, name: str, fields: Mapping[str, Any], section: Section) -> AlertRule:
    """Return a rule with the changes that a file specifies; a new rule if there is none of that name."""

    def fail(message: str) -> RecipeError:
        return section.fail(message, "rules", name)

    values = dict(fields)
    measure = values.pop("measure", rule.measure if rule is not None else name)
    sides = [side for side in ("above", "below") if side in values]
    if rule is None:
        if measure not in MEASURES:
            known = suggest(name, list(MEASURES)).replace("ccepted:", "ccepted as measure:")
            raise fail(f"{name!r} is a new rule and must say what it measures{known}")
        if not sides:
            raise fail("a new rule needs a limit: above: or below:")
        rule = AlertRule(name, measure, ())
    elif measure != rule.measure:
        raise fail(f"the rule {name!r} is about {rule.measure}; to watch {measure}, give the rule another name")
    if len(sides) > 1:
        raise fail("give above: or below:, not both; a second rule can have the other")
    for side in sides:
        limits = tuple(_with_unit(limit, measure, side, fail) for limit in values.pop(side))
        values |= {"limits": limits, "low": side == "below"}
    return rule._replace(**values)


def _with_unit(limit: AlertLimit, name: str, side: str, fail: Callable[[str], RecipeError]) -> AlertLimit:
    measure = MEASURES[name]
    if limit.unit == "":
        sized = measure.unit == "share" and limit.amount > 1
        if sized and not measure.sized:
            raise fail(f"{side}: {limit.amount:g} is more than everything; write {limit.amount:g}% or a share up to 1")
        return limit._replace(unit="bytes" if sized else measure.unit)
    units = dict.fromkeys([measure.unit, *(["bytes"] if measure.sized else [])])
    if limit.unit not in units:
        raise fail(f"{side}: {name} is compared with {' or '.join(UNITS[unit][0] for unit in units)}")
    return limit


def find_file(given: str | None, environ: Mapping[str, str]) -> str | None:
    """Return the user's alerts file, "off", or None if there is none.

    A file that was named must exist; reading it will show that.
    """
    named = given if given is not None else environ.get("TAMIS_ALERTS", "")
    if named:
        return named
    home = environ.get("HOME", "")
    base = environ.get("XDG_CONFIG_HOME", "") or (os.path.join(home, ".config") if home else "")
    if not os.path.isabs(base):
        return None
    paths = [path for name in _NAMES if os.path.isfile(path := os.path.join(base, "tamis", name))]
    if len(paths) > 1:
        raise UsageError(f"there are {' and '.join(paths)}; keep one of them")
    return paths[0] if paths else None
