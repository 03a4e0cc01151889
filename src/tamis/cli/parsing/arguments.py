"""Commands, declared by the signatures of functions, and the parser of their command lines.

A parameter of a command is `name: Annotated[kind, Option(...)]` or `Annotated[kind, Argument(...)]`; kinds are bool (a
flag), str, int, float, Path, Literal, each of these or None, and lists. A parameter after `*` is a set of options: a
dataclass with such fields, or `Annotated[cls, OptionSet]`. Options and arguments may be mixed in any order; `--name
value` and `--name=value` are the same. Written for the start of every command: the libraries for this take 0.1 to 0.3 s
to import (one of them checks arguments with pydantic).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, NoReturn, Protocol, Union, get_args, get_origin, get_type_hints

from tamis._dataclasses import dataclass
from tamis.cli.terminal.streams import LAYOUT, put
from tamis.errors import UsageError
from tamis.terminal import printable, styled

HELP = ("-h", "--help")


class CommandExit(Exception):
    """Raised by a command to end with this exit code."""

    def __init__(self, code: int = 0) -> None:
        super().__init__(code)
        self.code = code


class Misuse(UsageError):
    """A command line that does not fit the command. `usage`: one that would."""

    def __init__(self, message: str, usage: str = "") -> None:
        super().__init__(message)
        self.usage = usage


_COLORS = {"error:": "red", "incomplete:": "yellow", "warning:": "yellow"}


def echo(text: object = "", err: bool = False, nl: bool = True, raw: bool = False) -> None:
    """Print a text with its control characters escaped, apart from line ends and tabs.

    `err`: to stderr, with a first word such as "error:" in its color. `raw`: print it as it is. Only for texts that
    hold no names from data: pages of help, files to be redirected.
    """
    line = (str(text) if raw else printable(str(text), keep=LAYOUT)) + ("\n" if nl else "")
    if err:
        word, space, rest = line.partition(" ")
        if word in _COLORS:
            line = styled(word, _COLORS[word], sys.stderr) + space + rest
        print(line, end="", file=sys.stderr, flush=True)
    else:
        put(line, flush=True)


# -- declaring --------------------------------------------------------------------------------------------------------
class Option:
    """An option of a command.

    `names`: as typed, e.g. "--quiet", "-q"; "--open/--no-open" for a flag with a negation. By default derived from the
    parameter.

    `check`: called with a value and the option's name; raises UsageError for one that is not allowed.
    """

    def __init__(
        self,
        *names: str,
        help: str,
        metavar: str = "",
        min: float | None = None,
        max: float | None = None,
        check: Callable[[Any, str], object] | None = None,
    ) -> None:
        self.names, self.help, self.metavar, self.min, self.max, self.check = names, help, metavar, min, max, check


class Argument:
    def __init__(self, *, help: str, metavar: str = "") -> None:
        self.help, self.metavar = help, metavar


class OptionSet(Protocol):
    """Options that a command takes as one keyword parameter, `Annotated[cls, option_set]`."""

    @property
    def parameters(self) -> list[Parameter]:
        """One parameter for each option."""
        ...

    def build(self, values: Mapping[str, Any]) -> object:
        """Return the argument of the command, from the values of all options by name."""
        ...


@dataclass(frozen=True)
class Parameter:
    """One argument or option of a command."""

    name: str
    kind: Any  # of one value: bool, str, int, float, Path or a Literal
    many: bool
    about: Option | Argument
    default: Any
    required: bool

    @property
    def is_flag(self) -> bool:
        return self.kind is bool

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Its spellings on the command line, without the one that unsets a flag."""
        names = self.about.names if isinstance(self.about, Option) else ()
        return tuple(name.partition("/")[0] for name in names) or ("--" + self.name.strip("_").replace("_", "-"),)

    @property
    def negation(self) -> str:
        names = self.about.names if isinstance(self.about, Option) else ()
        return names[0].partition("/")[2] if names else ""

    @property
    def shown(self) -> str:
        """The placeholder for its value in help and messages."""
        if self.about.metavar:
            return self.about.metavar
        if isinstance(self.about, Argument):
            return self.name.strip("_").upper()
        if get_origin(self.kind) is Literal:
            return "|".join(get_args(self.kind))
        return {int: "NUMBER", float: "NUMBER", Path: "PATH"}.get(self.kind, "TEXT")

    def value(self, text: str) -> Any:
        """Convert the typed text to the type that the command expects."""
        value = self._converted(text)
        if isinstance(self.about, Option) and self.about.check is not None:
            self.about.check(value, self.names[0])
        return value

    def _converted(self, text: str) -> Any:
        what = self.names[0] if isinstance(self.about, Option) else self.shown
        if get_origin(self.kind) is Literal:
            if text not in get_args(self.kind):
                raise Misuse(f"{what}: expected {' or '.join(get_args(self.kind))}, got {text!r}")
            return text
        if self.kind is Path and text.startswith("s3://"):
            if not isinstance(self.about, Argument):
                raise Misuse(f"{what}: expected a folder of this machine, got {text}")
            from tamis.stores.run_locations import fetch_run_dir

            return Path(fetch_run_dir(text))
        return self._number(text, what) if self.kind in (int, float) else self.kind(text)

    def _number(self, text: str, what: str) -> float:
        """Return the number that the text spells; raise Misuse for any other text, and outside the option's range."""
        low, high = (self.about.min, self.about.max) if isinstance(self.about, Option) else (None, None)
        number: float | None
        try:
            number = self.kind(text)
        except ValueError:
            number = None
        if isinstance(number, float) and not math.isfinite(number):  # inf and nan fit no option
            number = None
        if number is None or (low is not None and not number >= low) or (high is not None and not number <= high):
            expected = "a whole number" if self.kind is int else "a number"
            between = f" from {low} to {high}" if high is not None else f" of {low} or more" if low is not None else ""
            raise Misuse(f"{what}: expected {expected}{between}, got {text!r}")
        return number


def parameters_of(function: Callable[..., Any]) -> list[Parameter]:
    """Return the parameters of a command, those of its option sets last."""
    hints = get_type_hints(function, include_extras=True)
    code = function.__code__
    names = code.co_varnames[: code.co_argcount]
    defaults = function.__defaults__ or ()
    n_required = len(names) - len(defaults)
    parameters = [
        _parameter(name, hints[name], defaults[i - n_required] if i >= n_required else None, i < n_required)
        for i, name in enumerate(names)
    ]
    return parameters + [p for options in option_sets(function).values() for p in options.parameters]


def option_sets(function: Callable[..., Any]) -> dict[str, OptionSet]:
    """Return the option sets of a command, by the name of its parameter."""
    code = function.__code__
    names = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    hints = get_type_hints(function, include_extras=True) if names else {}
    return {name: hints[name].__metadata__[0] if get_args(hints[name]) else _Fields(hints[name]) for name in names}


@dataclass(frozen=True)
class _Fields:
    """The option set of a dataclass whose fields are options."""

    cls: Any

    @property
    def parameters(self) -> list[Parameter]:
        hints = get_type_hints(self.cls, include_extras=True)
        return [_parameter(f.name, hints[f.name], f.default, False) for f in fields(self.cls)]

    def build(self, values: Mapping[str, Any]) -> object:
        return self.cls(**values)


def _parameter(name: str, hint: Any, default: Any, required: bool) -> Parameter:
    kind, about = get_args(hint)[:2]
    many = False
    if get_origin(kind) in (UnionType, Union):
        (kind,) = (member for member in get_args(kind) if member is not NoneType)
    if get_origin(kind) is list:
        kind, many = get_args(kind)[0], True
    return Parameter(name, kind, many, about, default, required)


# -- reading ----------------------------------------------------------------------------------------------------------
class Command:
    """One command: a function, and the words that call it ("tamis dedup exact")."""

    def __init__(self, words: str, function: Callable[..., Any]) -> None:
        self.words, self.function = words, function

    @cached_property
    def parameters(self) -> list[Parameter]:
        return parameters_of(self.function)

    @property
    def help(self) -> str:
        """Its purpose, in one line."""
        return " ".join((self.function.__doc__ or "").strip().partition("\n\n")[0].split())

    @property
    def arguments(self) -> list[Parameter]:
        return [p for p in self.parameters if isinstance(p.about, Argument)]

    @property
    def options(self) -> list[Parameter]:
        return [p for p in self.parameters if isinstance(p.about, Option)]

    @property
    def usage(self) -> str:
        shown = []
        for p in self.arguments:
            name = f"{p.shown}..." if p.many else p.shown
            shown.append(name if p.required else f"[{name}]")
        return " ".join([self.words, *(["[OPTIONS]"] if self.options else []), *shown])

    def __call__(self, typed: Sequence[str]) -> None:
        before = typed[: typed.index("--")] if "--" in typed else typed
        if any(word in HELP for word in before):
            from tamis.cli.parsing.help import command_help

            echo(command_help(self), raw=True)
            return
        try:
            values = self.read(typed)
        except Misuse as exc:
            raise Misuse(str(exc), self.usage) from None
        for name, options in option_sets(self.function).items():
            values[name] = options.build({p.name: values.pop(p.name) for p in options.parameters})
        self.function(**values)

    def read(self, typed: Sequence[str]) -> dict[str, Any]:
        """Parse the typed words into the values of all parameters."""
        by_name = {name: (p, True) for p in self.options for name in p.names}
        by_name |= {p.negation: (p, False) for p in self.options if p.negation}
        values: dict[str, Any] = {}
        loose: list[str] = []
        words = iter(typed)
        for word in words:
            if word == "--":
                loose += words
            elif word.startswith("-") and word != "-" and not _is_number(word):
                self._option(word, words, by_name, values)
            else:
                loose.append(word)
        self._assign_positional(loose, values)
        for p in self.parameters:
            if p.name not in values:
                if p.required:
                    raise Misuse(f"{p.shown if isinstance(p.about, Argument) else p.names[0]} is missing")
                values[p.name] = p.default
        return values

    def _option(
        self, word: str, words: Iterator[str], by_name: dict[str, tuple[Parameter, bool]], values: dict[str, Any]
    ) -> None:
        name, has_value, text = word.partition("=")
        if name not in by_name:
            raise Misuse(f"no such option: {name}{_similar(name, by_name)}")
        p, positive = by_name[name]
        if p.is_flag:
            if has_value:
                raise Misuse(f"{name} takes no value, got {text!r}")
            values[p.name] = positive
            return
        if not has_value:
            following = next(words, None)
            if following is None or following in by_name:
                raise Misuse(f"{name}: expected {p.shown}, got {following or 'nothing'}")
            text = following
        if p.many:
            values.setdefault(p.name, []).append(p.value(text))
        else:
            values[p.name] = p.value(text)

    def _assign_positional(self, loose: list[str], values: dict[str, Any]) -> None:
        """Assign positional arguments by their order; one that takes many takes all that the others leave."""
        remaining = list(loose)
        for k, p in enumerate(self.arguments):
            if p.many:
                n_after = len(self.arguments) - k - 1
                values_of_many, remaining = remaining[: len(remaining) - n_after], remaining[len(remaining) - n_after :]
                if values_of_many:
                    values[p.name] = [p.value(text) for text in values_of_many]
            elif remaining:
                values[p.name] = p.value(remaining.pop(0))
        if remaining:
            raise Misuse(f"one argument too many: {remaining[0]!r}")


class Commands:
    """A group of commands: `tamis`, `tamis dedup`. `fallback` is meant where the first word names none of them."""

    def __init__(self, name: str, help: str, fallback: str = "") -> None:
        self.words, self.help, self.fallback = name, help, fallback
        self._members: dict[str, str | Callable[..., Any] | Commands] = {}

    def command(self, name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Return a decorator that makes a function a command."""

        def add(function: Callable[..., Any]) -> Callable[..., Any]:
            self._members[name] = function
            return function

        return add

    def add(self, name: str, where: str) -> None:
        """Add a command or group by the location of its function, "package.module:name".

        The function is imported only when it is called or listed.
        """
        self._members[name] = where

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __getitem__(self, name: str) -> Command | Commands:
        member = self._members[name]
        if isinstance(member, str):
            module, _, inside = member.partition(":")
            member = getattr(import_module(module), inside)
        if isinstance(member, Commands):
            member.words = f"{self.words} {name}"
            return member
        return Command(f"{self.words} {name}", member)

    @property
    def usage(self) -> str:
        return f"{self.words} COMMAND [OPTIONS] ..."

    def __call__(self, typed: Sequence[str]) -> None:
        if not typed or typed[0] in HELP:
            from tamis.cli.parsing.help import group_help

            echo(group_help(self), raw=True)
            return
        name, arguments = typed[0], typed[1:]
        if name not in self._members and self.fallback:
            name, arguments = self.fallback, typed
        if name not in self._members:
            what = "option" if name.startswith("-") else "command"
            raise Misuse(f"no such {what}: {name}{_similar(name, self._members)}", self.usage)
        self[name](arguments)


def run(command: Callable[[Sequence[str]], None], typed: Sequence[str]) -> NoReturn:
    """Call a command, and end this process with its exit code."""
    try:
        command(typed)
    except CommandExit as exc:
        sys.exit(exc.code)
    except Misuse as exc:
        echo(f"error: {exc}", err=True)
        if exc.usage:
            echo(f"usage: {exc.usage}\nmore: {exc.usage.partition(' [')[0].partition(' COMMAND')[0]} --help", err=True)
        sys.exit(exc.exit_code)
    sys.exit(0)


def _is_number(word: str) -> bool:
    return word[1:2].isdigit() or word[1:2] == "."


def _similar(name: str, names: Iterator[str] | dict[str, Any]) -> str:
    import difflib

    near = difflib.get_close_matches(name, list(names), 3, 0.7)
    return f"; did you mean {' or '.join(near)}?" if near else ""
