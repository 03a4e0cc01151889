"""Rules and sinks as people write them: the `alerts:` section of a recipe, and the user's own file (YAML or TOML).

    every: 10min                    # a rule speaks at most this often about the same thing
    to: [log, terminal]             # for rules that do not say
    rules:
      memory: {above: 90%, for: 1min, do: shrink}
      gpu: off
      too long: {measure: runtime, above: 8h, to: [log, chat], do: stop}
    sinks:
      chat: {webhook: "https://chat.example/hook"}

Reading is strict: every error names file, line and key, and what is allowed there. What depends on other files (which sinks
there are, what an earlier file said about a rule) is checked by choose.py.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from tamis.errors import RecipeError, UsageError
from tamis.observe.alerts.measures import MEASURES
from tamis.observe.alerts.rules import BUILT_IN_SINKS, LEVELS, REMEDIES, Limit
from tamis.observe.alerts.wording import parse_time
from tamis.recipe.yaml_text import Node, References, suggest
from tamis.sizes import parse_size

TOP_KEYS = ("every", "to", "rules", "sinks")
RULE_KEYS = ("measure", "above", "below", "for", "level", "every", "to", "do", "say", "only", "on")
COMMAND_KEYS = ("command", "timeout")
WEBHOOK_KEYS = ("webhook", "headers", "timeout", "retries")
MAX_RULES, MAX_SINKS, MAX_TEXT, MAX_ITEMS = 200, 20, 2000, 50
MIN_EVERY_S = 1.0
MAX_PAUSE_S = 3600.0
MAX_SINK_TIMEOUT_S = 120.0
MAX_RETRIES = 10
DEFAULT_PAUSE_S = 60.0
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_ -]{0,59}")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_SHARE = re.compile(r"\s*([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*%\s*")


@dataclass(frozen=True)
class Where:
    """For messages."""

    file: str
    line: int = 0
    key: str = ""

    def fail(self, message: str) -> RecipeError:
        return RecipeError(message, file=self.file, line=self.line, field=self.key)


@dataclass(frozen=True)
class RulePart:
    """What one file says about one rule: only what it says. `limits` are in `above`/`below`, units still to be matched."""

    where: Where
    values: Mapping[str, Any]


@dataclass(frozen=True)
class SinkSpec:
    """A command or a webhook."""

    name: str
    where: Where
    command: tuple[str, ...] = ()
    webhook: str = ""
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    timeout_s: float = 10.0
    retries: int = 4


@dataclass(frozen=True)
class Section:
    """What one file says about alerts."""

    every_s: float | None = None
    to: tuple[str, ...] | None = None
    rules: Mapping[str, RulePart] = field(default_factory=dict)
    sinks: Mapping[str, SinkSpec] = field(default_factory=dict)
    where: Where = field(default_factory=lambda: Where(""))


def read_section(node: Node, references: References, file: str, prefix: str = "") -> Section:
    """`prefix` is the key that the section stands under ("alerts" in a recipe)."""
    return _Reader(references, file).section(node, prefix)


class _Reader:
    def __init__(self, references: References, file: str) -> None:
        self.references, self.file = references, file

    def at(self, node: Node, key: str) -> Where:
        return Where(self.file, node.line, key)

    # -- the parts ------------------------------------------------------------------------------------------------------
    def section(self, node: Node, prefix: str) -> Section:
        where = self.at(node, prefix)
        if node.value is None:
            return Section(where=where)
        top = self.mapping(node, prefix, TOP_KEYS)
        dot = f"{prefix}." if prefix else ""
        rules, sinks = top.get("rules"), top.get("sinks")
        return Section(
            self.every(top["every"], f"{dot}every") if "every" in top else None,
            self.names(top["to"], f"{dot}to") if "to" in top else None,
            {n: self.rule(v, f"{dot}rules.{n}") for n, v in self.named(rules, f"{dot}rules", MAX_RULES).items()},
            {n: self.sink(n, v, f"{dot}sinks.{n}") for n, v in self.named(sinks, f"{dot}sinks", MAX_SINKS).items()},
            where,
        )

    def rule(self, node: Node, key: str) -> RulePart:
        where = self.at(node, key)
        if not isinstance(node.value, (dict, list)):
            value = self.scalar(node, key)
            if value in ("off", False):
                return RulePart(where, {"on": False})
            if value in ("on", True):
                return RulePart(where, {"on": True})
            raise where.fail(f"expected off, on, or a mapping of {', '.join(RULE_KEYS)}; got {value!r:.80}")
        values: dict[str, Any] = {}
        for name, item in self.mapping(node, key, RULE_KEYS).items():
            at = f"{key}.{name}"
            if name in ("above", "below"):
                values[name] = self.limits(item, at)
            elif name in ("for", "every"):
                values[name] = self.every(item, at) if name == "every" else self.time(item, at)
            elif name == "to":
                values[name] = self.names(item, at)
            elif name == "do":
                values[name] = tuple(self.remedy(v, i, k) for v, i, k in self.items(item, at))
            elif name == "on":
                values[name] = self.boolean(item, at)
            else:
                values[name] = self.word(item, at, {"measure": list(MEASURES), "level": list(LEVELS)}.get(name))
        return RulePart(where, values)

    def sink(self, name: str, node: Node, key: str) -> SinkSpec:
        where = self.at(node, key)
        if name in BUILT_IN_SINKS:
            raise where.fail(f"{name!r} is built in; choose another name, built in are: {', '.join(BUILT_IN_SINKS)}")
        if not isinstance(node.value, dict) or len({"command", "webhook"} & set(node.value)) != 1:
            raise where.fail("expected a mapping with either command: or webhook:")
        is_command = "command" in node.value
        given = self.mapping(node, key, COMMAND_KEYS if is_command else WEBHOOK_KEYS)
        timeout_s = self.time(given["timeout"], f"{key}.timeout") if "timeout" in given else 10.0
        if not 0 < timeout_s <= MAX_SINK_TIMEOUT_S:
            raise self.at(given["timeout"], f"{key}.timeout").fail(
                f"expected a time above 0 and up to {MAX_SINK_TIMEOUT_S:.0f}s"
            )
        if is_command:
            return SinkSpec(name, where, self.command(given["command"], f"{key}.command"), timeout_s=timeout_s)
        return SinkSpec(
            name,
            where,
            webhook=self.url(given["webhook"], f"{key}.webhook"),
            headers=self.headers(given["headers"], f"{key}.headers") if "headers" in given else (),
            timeout_s=timeout_s,
            retries=self.count(given["retries"], f"{key}.retries", MAX_RETRIES) if "retries" in given else 4,
        )

    # -- the values -----------------------------------------------------------------------------------------------------
    def mapping(self, node: Node, key: str, known: Sequence[str]) -> dict[str, Node]:
        if not isinstance(node.value, dict):
            raise self.at(node, key).fail(f"expected a mapping of {', '.join(known)}")
        for name, item in node.value.items():
            if name not in known:
                raise self.at(item, f"{key}.{name}"[:200] if key else name[:200]).fail(
                    f"unknown key {name[:80]!r}{suggest(name[:80], list(known))}"
                )
        return node.value

    def named(self, node: Node | None, key: str, most: int) -> dict[str, Node]:
        if node is None or node.value is None:
            return {}
        if not isinstance(node.value, dict) or len(node.value) > most:
            raise self.at(node, key).fail(f"expected a mapping of names, at most {most}")
        for name, item in node.value.items():
            if not _NAME.fullmatch(name):
                raise self.at(item, key).fail(
                    f"{name[:80]!r} is no name: a letter, then up to 59 letters, digits, spaces, - or _"
                )
        return node.value

    def scalar(self, node: Node, key: str) -> Any:
        if isinstance(node.value, (list, dict)):
            raise self.at(node, key).fail("expected one value, got a list or mapping")
        value = self.references.value(node, key)
        if isinstance(value, str) and len(value) > MAX_TEXT:
            raise self.at(node, key).fail(f"longer than {MAX_TEXT} characters")
        return value

    def items(self, node: Node, key: str) -> list[tuple[Any, Node, str]]:
        """One value or a list of them."""
        if not isinstance(node.value, list):
            return [(self.scalar(node, key), node, key)]
        if len(node.value) > MAX_ITEMS:
            raise self.at(node, key).fail(f"more than {MAX_ITEMS} items")
        return [(self.scalar(item, f"{key}.{i}"), item, f"{key}.{i}") for i, item in enumerate(node.value)]

    def word(self, node: Node, key: str, known: list[str] | None = None) -> str:
        value = self.scalar(node, key)
        if not isinstance(value, str) or not value.strip():
            raise self.at(node, key).fail(f"expected text, got {value!r:.80}; put it into quotes")
        if known is not None and value not in known:
            raise self.at(node, key).fail(f"unknown value {value[:80]!r}{suggest(value[:80], known)}")
        return value

    def boolean(self, node: Node, key: str) -> bool:
        value = self.scalar(node, key)
        if not isinstance(value, bool):
            raise self.at(node, key).fail(f"expected true or false, got {value!r:.80}")
        return value

    def count(self, node: Node, key: str, most: int) -> int:
        value = self.scalar(node, key)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
            raise self.at(node, key).fail(f"expected a whole number from 0 to {most}, got {value!r:.80}")
        return value

    def time(self, node: Node, key: str) -> float:
        try:
            return parse_time(self.scalar(node, key), "time")
        except RecipeError:
            raise
        except UsageError as exc:
            raise self.at(node, key).fail(str(exc)) from None

    def every(self, node: Node, key: str) -> float:
        seconds = self.time(node, key)
        if seconds < MIN_EVERY_S:
            raise self.at(node, key).fail(f"expected at least {MIN_EVERY_S:.0f}s between two alerts")
        return seconds

    def names(self, node: Node, key: str) -> tuple[str, ...]:
        found = []
        for value, item, at in self.items(node, key):
            if not isinstance(value, str) or not _NAME.fullmatch(value):
                raise self.at(item, at).fail(
                    f"expected the name of a sink (log, terminal, or your own), got {value!r:.80}"
                )
            found.append(value)
        return tuple(dict.fromkeys(found))

    def limits(self, node: Node, key: str) -> tuple[Limit, ...]:
        found = tuple(self.limit(value, item, at) for value, item, at in self.items(node, key))
        if not 1 <= len(found) <= 4:
            raise self.at(node, key).fail("expected one limit, or a list of up to 4, e.g. [5%, 1GB]")
        return found

    def limit(self, value: Any, node: Node, key: str) -> Limit:
        """`unit` "" is a bare number, whose meaning is the measure's."""
        share = _SHARE.fullmatch(value) if isinstance(value, str) else None
        if share is not None:
            return Limit(float(share[1]) / 100, "share")
        if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 2**63:
            return Limit(float(value), "")
        for read, unit in ((parse_time, "seconds"), (parse_size, "bytes")):
            try:
                if isinstance(value, str):
                    return Limit(float(read(value, "limit")), unit)
            except UsageError:
                continue
        raise self.at(node, key).fail(f"expected a limit such as 85%, 1GB, 5min or a number, got {value!r:.80}")

    def remedy(self, value: Any, node: Node, key: str) -> str:
        name, _, argument = str(value).strip().replace(" ", ":", 1).partition(":")
        if not isinstance(value, str) or name not in REMEDIES or (argument and name != "pause"):
            raise self.at(node, key).fail(
                f"unknown remedy {value!r:.80}{suggest(name[:80], list(REMEDIES))}; pause may have a time: pause 30s"
            )
        if name != "pause":
            return name
        try:
            seconds = parse_time(_number(argument), "pause") if argument else DEFAULT_PAUSE_S
        except UsageError as exc:
            raise self.at(node, key).fail(str(exc)) from None
        if not 0 < seconds <= MAX_PAUSE_S:
            raise self.at(node, key).fail(f"pause: expected a time above 0 and up to {MAX_PAUSE_S:.0f}s")
        return f"pause:{seconds:g}"

    def command(self, node: Node, key: str) -> tuple[str, ...]:
        """A list is taken as it is, a text is split as a shell would; no shell ever runs."""
        parts = [value for value, _, _ in self.items(node, key)]
        if not isinstance(node.value, list):
            try:
                parts = shlex.split(self.word(node, key))
            except ValueError as exc:
                raise self.at(node, key).fail(f"cannot be split into words ({exc}); write a list") from None
        if not parts or not all(isinstance(p, str) and "\0" not in p for p in parts) or not parts[0].strip():
            raise self.at(node, key).fail("expected a program and its arguments, as one text or a list of texts")
        return tuple(parts)

    def url(self, node: Node, key: str) -> str:
        value = self.word(node, key)
        try:
            parts = urlsplit(value)
            usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
        except ValueError:
            usable = False
        if not usable or not value.isascii() or not value.isprintable() or " " in value:
            raise self.at(node, key).fail("expected an address that begins with http:// or https://")
        if "@" in parts.netloc:
            raise self.at(node, key).fail(
                "an address with a password in it is refused; use headers: {Authorization: ...}"
            )
        return value

    def headers(self, node: Node, key: str) -> tuple[tuple[str, str], ...]:
        if not isinstance(node.value, dict) or len(node.value) > MAX_ITEMS:
            raise self.at(node, key).fail("expected a mapping of header names and values")
        found = []
        for name, item in node.value.items():
            value = str(self.scalar(item, f"{key}.{name}"[:200]))
            if not _HEADER.fullmatch(name) or not value.isascii() or not value.isprintable():
                raise self.at(item, key).fail(f"{name[:80]!r}: expected a header name and one line of ASCII text")
            if name.lower() in ("content-type", "content-length", "host", "transfer-encoding"):
                raise self.at(item, key).fail(f"{name[:80]!r} is set by Tamis; remove it")
            found.append((name, value))
        return tuple(found)


def _number(text: str) -> Any:
    """Digits alone are seconds."""
    return float(text) if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", text) else text
