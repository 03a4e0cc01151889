"""Rules and sinks as people write them: the `alerts:` section of a recipe, and the user's own file (YAML or TOML).

    every: 10min                    # a rule speaks at most this often about the same thing
    to: [log, terminal]             # for rules that do not say
    rules:
      memory: {above: 90%, for: 1min, do: shrink}
      gpu: off
      too long: {measure: runtime, above: 8h, to: [log, chat], do: stop}
    sinks:
      chat: {webhook: "https://chat.example/hook"}

Tables at the end list the keys and how their values are read. Reading is strict: every error names
file, line and key, and what is allowed there. What depends on other files (which sinks there are, what an earlier file
set for a rule) is checked by choose.py.
"""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Callable, Collection, Mapping
from dataclasses import field
from typing import Any
from urllib.parse import urlsplit

from tamis._dataclasses import dataclass
from tamis.errors import RecipeError, UsageError
from tamis.observe.alerts.measures import MEASURES
from tamis.observe.alerts.rules import BUILT_IN_SINKS, LEVELS, REMEDIES, AlertLimit
from tamis.observe.alerts.sinks import AlertSink, CommandSink, WebhookSink
from tamis.observe.alerts.wording import parse_time
from tamis.sizes import parse_size
from tamis.yaml_text import Located, Node, References, parse, read_text, suggest

MAX_FILE_BYTES = 1_000_000
MAX_RULES, MAX_SINKS, MAX_TEXT, MAX_ITEMS = 200, 20, 2000, 50
MIN_EVERY_S, MAX_SINK_TIMEOUT_S, MAX_RETRIES = 1, 120, 10
DEFAULT_PAUSE_S, MAX_PAUSE_S = 60, 3600
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_ -]{0,59}")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_SHARE = re.compile(r"\s*([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*%\s*")

Read = Callable[[Located], Any]
Table = Mapping[str, tuple[str, Read]]  # by key: what it is called inside, and how it is read


@dataclass(frozen=True)
class Section:
    """The alert settings of one file, without defaults.

    `rules`: values by name, limits whose unit may still be open ("").
    """

    at: Located
    every_s: float | None = None
    to: tuple[str, ...] | None = None
    rules: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    sinks: Mapping[str, AlertSink] = field(default_factory=dict)

    def fail(self, message: str, *keys: str) -> RecipeError:
        """Return an error about the value under these keys."""
        at = self.at
        for key in keys:
            at = at.fields()[key]
        return at.fail(message)


def read_section(at: Located) -> Section:
    """Read the `alerts:` section of a recipe, or a whole alerts file."""
    return Section(at, **_mapping(at, _SECTION) if at.node.value is not None else {})


def read_file(path: str, environ: Mapping[str, str]) -> Section:
    """Read a file of rules and sinks: TOML if its name ends in .toml, otherwise YAML."""
    text = read_text(path, what="alerts file", most=MAX_FILE_BYTES)
    if path.endswith(".toml"):
        node = _toml(text, path)
    else:
        is_empty = all(line.strip() in ("", "---") or line.strip()[0] == "#" for line in text.splitlines())
        node = Node(None) if is_empty else parse(text, path)
    return read_section(Located(node, "", References({}, environ, path)))


def read_mapping(values: Mapping[str, Any], environ: Mapping[str, str]) -> Section:
    """Return rules and sinks that a program gives, with the keys of a file."""
    where = "alerts="
    return read_section(Located(_node(values, where), "", References({}, environ, where)))


def _node(value: Any, path: str, depth: int = 0) -> Node:
    if depth > 10:
        raise RecipeError("nested deeper than 10 levels; an alerts file needs 4", file=path)
    if isinstance(value, Mapping):
        return Node({str(k): _node(v, path, depth + 1) for k, v in value.items()})
    if isinstance(value, (list, tuple)):
        return Node([_node(v, path, depth + 1) for v in value])
    if isinstance(value, (bool, int, float, str)):
        return Node(value)
    raise RecipeError(f"expected text, a number or true or false, got a {type(value).__name__}", file=path)


def _toml(text: str, path: str) -> Node:
    import tomllib

    try:
        values = tomllib.loads(text)
    except ValueError as exc:  # TOMLDecodeError, and whole numbers of thousands of digits
        raise RecipeError(f"not valid TOML: {exc}", file=path) from None
    except RecursionError:
        raise RecipeError("nested too deeply", file=path) from None
    return _node(values, path)


# -- one value: errors name its location ----------------------------------------------------------------------------
def _value(made: Callable[[Any], Any] = lambda value: value) -> Read:
    """Return a reader that converts a value of the file with `made`."""

    def read(at: Located) -> Any:
        value = at.scalar()
        if isinstance(value, str) and len(value) > MAX_TEXT:
            raise at.fail(f"longer than {MAX_TEXT} characters")
        try:
            return made(value)
        except UsageError as exc:
            raise at.fail(str(exc)) from None

    return read


def _checked(
    expected: str, is_good: Callable[[Any], object], convert: Callable[[Any], Any] = lambda value: value
) -> Read:
    def check(value: Any) -> Any:
        if not is_good(converted := convert(value)):
            raise UsageError(f"expected {expected}, got {value!r:.80}")
        return converted

    return _value(check)


def _one_of(known: Collection[str]) -> Read:
    def check(value: Any) -> str:
        if _text(value) not in known:
            raise UsageError(f"unknown value {value[:80]!r}{suggest(value[:80], list(known))}")
        return str(value)

    return _value(check)


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise UsageError(f"expected text in quotes, got {value!r:.80}")
    return value


def _time(value: Any) -> float:
    return parse_time(value, "time")


def _limit(value: Any) -> AlertLimit:
    """Parse a limit; a bare number has the unit "", whose meaning is the measure's."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 2**63:
        return AlertLimit(float(value), "")
    if isinstance(value, str) and (share := _SHARE.fullmatch(value)):
        return AlertLimit(float(share[1]) / 100, "share")
    for read, unit in ((parse_time, "seconds"), (parse_size, "bytes")) if isinstance(value, str) else ():
        with contextlib.suppress(UsageError):
            return AlertLimit(float(read(value, "limit")), unit)
    raise UsageError(f"expected a limit such as 85%, 1GB, 5min or a number, got {value!r:.80}")


def _remedy(value: Any) -> str:
    name, _, argument = str(value).strip().replace(" ", ":", 1).partition(":")
    if not isinstance(value, str) or name not in REMEDIES or (argument and name != "pause"):
        known = suggest(name[:80], list(REMEDIES))
        raise UsageError(f"unknown remedy {value!r:.80}{known}; pause may have a time: pause 30s")
    if name != "pause":
        return name
    number: object = float(argument) if argument.replace(".", "", 1).isdecimal() else argument
    seconds = parse_time(number, "pause") if argument else DEFAULT_PAUSE_S
    if not 0 < seconds <= MAX_PAUSE_S:
        raise UsageError(f"pause: expected a time above 0 and up to {MAX_PAUSE_S}s")
    return f"pause:{seconds:g}"


def _split(value: Any) -> list[str]:
    text = _text(value)
    try:
        return shlex.split(text)
    except ValueError as exc:
        raise UsageError(f"cannot be split into words ({exc}); write a list") from None


def _url(value: Any) -> str:
    try:
        parts = urlsplit(_text(value))
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        usable = False
    if not usable or not value.isascii() or not value.isprintable() or " " in value:
        raise UsageError("expected an address that begins with http:// or https://")
    if "@" in parts.netloc:
        raise UsageError("an address with a password in it is refused; use headers: {Authorization: ...}")
    return str(value)


# -- lists and mappings ----------------------------------------------------------------------------------------------
def _items(read: Read, least: int = 0, most: int = MAX_ITEMS, expected: str = f"more than {MAX_ITEMS} items") -> Read:
    """Return a reader of one value or a list of values."""

    def read_all(at: Located) -> tuple[Any, ...]:
        items = at.items()
        if not least <= len(items) <= most:
            raise at.fail(expected)
        return tuple(map(read, items))

    return read_all


def _mapping(at: Located, table: Table) -> dict[str, Any]:
    """Return the values under the keys of a table, by the names used in the code."""
    if not isinstance(at.node.value, dict):
        raise at.fail(f"expected a mapping of {', '.join(table)}")
    values = at.fields()
    for key, item in values.items():
        if key not in table:
            raise item.fail(f"unknown key {key[:80]!r}{suggest(key[:80], list(table))}")
    return {table[key][0]: table[key][1](item) for key, item in values.items()}


def _named(most: int, read: Callable[[Located, str], Any]) -> Read:
    """Return a reader of a mapping of names."""

    def read_all(at: Located) -> dict[str, Any]:
        if at.node.value is None:
            return {}
        if not isinstance(at.node.value, dict) or len(at.node.value) > most:
            raise at.fail(f"expected a mapping of names, at most {most}")
        for name, item in at.fields().items():
            if not _NAME.fullmatch(name):
                message = f"{name[:80]!r} is no name: a letter, then up to 59 letters, digits, spaces, - or _"
                raise Located(item.node, at.key, at.references).fail(message)
        return {name: read(item, name) for name, item in at.fields().items()}

    return read_all


def _rule(at: Located, name: str) -> dict[str, Any]:
    if isinstance(at.node.value, (dict, list)):
        return _mapping(at, _RULE)
    value = _value()(at)
    if value in ("off", "on", False, True):
        return {"on": value in ("on", True)}
    raise at.fail(f"expected off, on, or a mapping of {', '.join(_RULE)}; got {value!r:.80}")


def _sink(at: Located, name: str) -> AlertSink:
    if name in BUILT_IN_SINKS:
        raise at.fail(f"{name!r} is built in; choose another name, built in are: {', '.join(BUILT_IN_SINKS)}")
    kinds = [kind for kind in _SINKS if kind in at.fields()]
    if len(kinds) != 1:
        raise at.fail("expected a mapping with either command: or webhook:")
    make, table = _SINKS[kinds[0]]
    return make(name, **_mapping(at, table))


def _names(at: Located) -> tuple[str, ...]:
    expected = "the name of a sink (log, terminal, or your own)"
    read = _items(_checked(expected, lambda v: isinstance(v, str) and _NAME.fullmatch(v)))
    return tuple(dict.fromkeys(read(at)))


def _command(at: Located) -> tuple[str, ...]:
    """Read a command: a list is used unchanged, a text is split as a shell would; no shell ever runs."""
    parts = (_items(_value()) if isinstance(at.node.value, list) else _value(_split))(at)
    if not parts or not all(isinstance(p, str) and "\0" not in p for p in parts) or not parts[0].strip():
        raise at.fail("expected a program and its arguments, as one text or a list of texts")
    return tuple(parts)


def _headers(at: Located) -> tuple[tuple[str, str], ...]:
    if not isinstance(at.node.value, dict) or len(at.node.value) > MAX_ITEMS:
        raise at.fail("expected a mapping of header names and values")
    headers = {name: str(_value()(item)) for name, item in at.fields().items()}
    for name, value in headers.items():
        if not _HEADER.fullmatch(name) or not value.isascii() or not value.isprintable():
            raise at.fail(f"{name[:80]!r}: expected a header name and one line of ASCII text")
        if name.lower() in ("content-type", "content-length", "host", "transfer-encoding"):
            raise at.fail(f"{name[:80]!r} is set by Tamis; remove it")
    return tuple(headers.items())


# -- which keys there are: what each is called inside, and how it is read --------------------------------------------
_every = _checked(f"at least {MIN_EVERY_S}s between two alerts", lambda s: s >= MIN_EVERY_S, _time)
_timeout = _checked(f"a time above 0 and up to {MAX_SINK_TIMEOUT_S}s", lambda s: 0 < s <= MAX_SINK_TIMEOUT_S, _time)
_retries = _checked(f"a whole number from 0 to {MAX_RETRIES}", lambda v: type(v) is int and 0 <= v <= MAX_RETRIES)
_limits = _items(_value(_limit), 1, 4, "expected one limit, or a list of up to 4, e.g. [5%, 1GB]")
_RULE: Table = {
    "measure": ("measure", _one_of(MEASURES)),
    "above": ("above", _limits),
    "below": ("below", _limits),
    "for": ("for_s", _value(_time)),
    "level": ("level", _one_of(LEVELS)),
    "every": ("every_s", _every),
    "to": ("sinks", _names),
    "do": ("remedies", _items(_value(_remedy))),
    "say": ("advice", _value(_text)),
    "only": ("only", _value(_text)),
    "on": ("on", _checked("true or false", lambda v: isinstance(v, bool))),
}
RULE_KEYS = tuple(_RULE)
_SINKS: Mapping[str, tuple[Callable[..., AlertSink], Table]] = {
    "command": (CommandSink, {"command": ("command", _command), "timeout": ("timeout_s", _timeout)}),
    "webhook": (
        WebhookSink,
        {
            "webhook": ("url", _value(_url)),
            "headers": ("headers", _headers),
            "timeout": ("timeout_s", _timeout),
            "retries": ("retries", _retries),
        },
    ),
}
_SECTION: Table = {
    "every": ("every_s", _every),
    "to": ("to", _names),
    "rules": ("rules", _named(MAX_RULES, _rule)),
    "sinks": ("sinks", _named(MAX_SINKS, _sink)),
}
