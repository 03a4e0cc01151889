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
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from tamis.errors import RecipeError, UsageError
from tamis.observe.alerts.measures import MEASURES
from tamis.observe.alerts.rules import BUILT_IN_SINKS, LEVELS, REMEDIES, Limit
from tamis.observe.alerts.sinks import CommandSink, Sink, WebhookSink
from tamis.observe.alerts.wording import parse_time
from tamis.recipe.yaml_text import Located, suggest
from tamis.sizes import parse_size

MAX_RULES, MAX_SINKS, MAX_TEXT, MAX_ITEMS = 200, 20, 2000, 50
MIN_EVERY_S = 1.0
MAX_PAUSE_S = 3600.0
MAX_SINK_TIMEOUT_S = 120.0
MAX_RETRIES = 10
DEFAULT_PAUSE_S = 60.0
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_ -]{0,59}")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_SHARE = re.compile(r"\s*([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*%\s*")
_SECONDS = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")


@dataclass(frozen=True)
class Section:
    """What one file says about alerts, and only that. `rules`: values by key, limits whose unit may still be open ("")."""

    at: Located
    every_s: float | None = None
    to: tuple[str, ...] | None = None
    rules: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    sinks: Mapping[str, Sink] = field(default_factory=dict)

    def fail(self, message: str, *keys: str) -> RecipeError:
        """A complaint about what stands under these keys."""
        at = self.at
        for key in keys:
            at = at.fields()[key]
        return at.fail(message)


def read_section(at: Located) -> Section:
    """What a recipe says under `alerts:`, or a file as a whole."""
    if at.node.value is None:
        return Section(at)
    top = _fields(at, ("every", "to", "rules", "sinks"))
    return Section(
        at,
        _every(top["every"]) if "every" in top else None,
        _names(top["to"]) if "to" in top else None,
        {name: _rule(item) for name, item in _named(top.get("rules"), MAX_RULES).items()},
        {name: _sink(item, name) for name, item in _named(top.get("sinks"), MAX_SINKS).items()},
    )


def _rule(at: Located) -> dict[str, Any]:
    if isinstance(at.node.value, (dict, list)):
        return {key: _RULE[key](item) for key, item in _fields(at, _RULE).items()}
    value = _scalar(at)
    if value in ("off", "on", False, True):
        return {"on": value in ("on", True)}
    raise at.fail(f"expected off, on, or a mapping of {', '.join(_RULE)}; got {value!r:.80}")


def _sink(at: Located, name: str) -> Sink:
    if name in BUILT_IN_SINKS:
        raise at.fail(f"{name!r} is built in; choose another name, built in are: {', '.join(BUILT_IN_SINKS)}")
    kinds = [kind for kind in _SINKS if kind in at.fields()]
    if len(kinds) != 1:
        raise at.fail("expected a mapping with either command: or webhook:")
    make, known = _SINKS[kinds[0]]
    given = {known[key][0]: known[key][1](item) for key, item in _fields(at, known).items()}
    return make(name, **given)


# -- parts -----------------------------------------------------------------------------------------------------------------
def _fields(at: Located, known: Iterable[str]) -> dict[str, Located]:
    if not isinstance(at.node.value, dict):
        raise at.fail(f"expected a mapping of {', '.join(known)}")
    found = at.fields()
    for name, item in found.items():
        if name not in known:
            raise item.fail(f"unknown key {name[:80]!r}{suggest(name[:80], list(known))}")
    return found


def _named(at: Located | None, most: int) -> dict[str, Located]:
    if at is None or at.node.value is None:
        return {}
    if not isinstance(at.node.value, dict) or len(at.node.value) > most:
        raise at.fail(f"expected a mapping of names, at most {most}")
    found = at.fields()
    for name, item in found.items():
        if not _NAME.fullmatch(name):
            raise Located(item.node, at.key, at.references).fail(
                f"{name[:80]!r} is no name: a letter, then up to 59 letters, digits, spaces, - or _"
            )
    return found


def _items(at: Located) -> list[Located]:
    """One value or a list of them."""
    if len(found := at.items()) > MAX_ITEMS:
        raise at.fail(f"more than {MAX_ITEMS} items")
    return found


# -- values ----------------------------------------------------------------------------------------------------------------
def _scalar(at: Located) -> Any:
    value = at.scalar()
    if isinstance(value, str) and len(value) > MAX_TEXT:
        raise at.fail(f"longer than {MAX_TEXT} characters")
    return value


def _word(at: Located) -> str:
    value = _scalar(at)
    if not isinstance(value, str) or not value.strip():
        raise at.fail(f"expected text, got {value!r:.80}; put it into quotes")
    return value


def _one_of(known: Iterable[str]) -> Callable[[Located], str]:
    def read(at: Located) -> str:
        value = _word(at)
        if value not in known:
            raise at.fail(f"unknown value {value[:80]!r}{suggest(value[:80], list(known))}")
        return value

    return read


def _boolean(at: Located) -> bool:
    value = _scalar(at)
    if not isinstance(value, bool):
        raise at.fail(f"expected true or false, got {value!r:.80}")
    return value


def _retries(at: Located) -> int:
    value = _scalar(at)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_RETRIES:
        raise at.fail(f"expected a whole number from 0 to {MAX_RETRIES}, got {value!r:.80}")
    return value


def _seconds(at: Located, value: object, what: str = "time") -> float:
    try:
        return parse_time(value, what)
    except UsageError as exc:
        raise at.fail(str(exc)) from None


def _time(at: Located) -> float:
    return _seconds(at, _scalar(at))


def _every(at: Located) -> float:
    if (seconds := _time(at)) < MIN_EVERY_S:
        raise at.fail(f"expected at least {MIN_EVERY_S:.0f}s between two alerts")
    return seconds


def _timeout(at: Located) -> float:
    if not 0 < (seconds := _time(at)) <= MAX_SINK_TIMEOUT_S:
        raise at.fail(f"expected a time above 0 and up to {MAX_SINK_TIMEOUT_S:.0f}s")
    return seconds


def _names(at: Located) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for item in _items(at):
        value = _scalar(item)
        if not isinstance(value, str) or not _NAME.fullmatch(value):
            raise item.fail(f"expected the name of a sink (log, terminal, or your own), got {value!r:.80}")
        found[value] = None
    return tuple(found)


def _limits(at: Located) -> tuple[Limit, ...]:
    found = tuple(map(_limit, _items(at)))
    if not 1 <= len(found) <= 4:
        raise at.fail("expected one limit, or a list of up to 4, e.g. [5%, 1GB]")
    return found


def _limit(at: Located) -> Limit:
    """`unit` "" is a bare number, whose meaning is the measure's."""
    value = _scalar(at)
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
    raise at.fail(f"expected a limit such as 85%, 1GB, 5min or a number, got {value!r:.80}")


def _remedies(at: Located) -> tuple[str, ...]:
    return tuple(map(_remedy, _items(at)))


def _remedy(at: Located) -> str:
    value = _scalar(at)
    name, _, argument = str(value).strip().replace(" ", ":", 1).partition(":")
    if not isinstance(value, str) or name not in REMEDIES or (argument and name != "pause"):
        raise at.fail(
            f"unknown remedy {value!r:.80}{suggest(name[:80], list(REMEDIES))}; pause may have a time: pause 30s"
        )
    if name != "pause":
        return name
    seconds = DEFAULT_PAUSE_S
    if argument:
        seconds = _seconds(at, float(argument) if _SECONDS.fullmatch(argument) else argument, "pause")
    if not 0 < seconds <= MAX_PAUSE_S:
        raise at.fail(f"pause: expected a time above 0 and up to {MAX_PAUSE_S:.0f}s")
    return f"pause:{seconds:g}"


def _command(at: Located) -> tuple[str, ...]:
    """A list is taken as it is, a text is split as a shell would; no shell ever runs."""
    if isinstance(at.node.value, list):
        parts = list(map(_scalar, _items(at)))
    else:
        text = _word(at)
        try:
            parts = shlex.split(text)
        except ValueError as exc:
            raise at.fail(f"cannot be split into words ({exc}); write a list") from None
    if not parts or not all(isinstance(p, str) and "\0" not in p for p in parts) or not parts[0].strip():
        raise at.fail("expected a program and its arguments, as one text or a list of texts")
    return tuple(parts)


def _url(at: Located) -> str:
    value = _word(at)
    try:
        parts = urlsplit(value)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        usable = False
    if not usable or not value.isascii() or not value.isprintable() or " " in value:
        raise at.fail("expected an address that begins with http:// or https://")
    if "@" in parts.netloc:
        raise at.fail("an address with a password in it is refused; use headers: {Authorization: ...}")
    return value


def _headers(at: Located) -> tuple[tuple[str, str], ...]:
    if not isinstance(at.node.value, dict) or len(at.node.value) > MAX_ITEMS:
        raise at.fail("expected a mapping of header names and values")
    found = {name: str(_scalar(item)) for name, item in at.fields().items()}
    for name, value in found.items():
        if not _HEADER.fullmatch(name) or not value.isascii() or not value.isprintable():
            raise at.fail(f"{name[:80]!r}: expected a header name and one line of ASCII text")
        if name.lower() in ("content-type", "content-length", "host", "transfer-encoding"):
            raise at.fail(f"{name[:80]!r} is set by Tamis; remove it")
    return tuple(found.items())


# What may stand in a rule, and how it is read.
_RULE: dict[str, Callable[[Located], Any]] = {
    "measure": _one_of(MEASURES),
    "above": _limits,
    "below": _limits,
    "for": _time,
    "level": _one_of(LEVELS),
    "every": _every,
    "to": _names,
    "do": _remedies,
    "say": _word,
    "only": _word,
    "on": _boolean,
}
# What may stand in a sink of each kind: the field of the sink that it is, and how it is read.
_SINKS: dict[str, tuple[Callable[..., Sink], dict[str, tuple[str, Callable[[Located], Any]]]]] = {
    "command": (CommandSink, {"command": ("command", _command), "timeout": ("timeout_s", _timeout)}),
    "webhook": (
        WebhookSink,
        {
            "webhook": ("url", _url),
            "headers": ("headers", _headers),
            "timeout": ("timeout_s", _timeout),
            "retries": ("retries", _retries),
        },
    ),
}
RULE_KEYS = tuple(_RULE)
