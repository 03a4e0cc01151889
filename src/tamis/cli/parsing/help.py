"""Help pages of commands, from their signatures and docstrings."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tamis.cli.parsing.arguments import Command, Commands, Parameter

_WIDEST = 100
_INDENT = "  "


def group_help(commands: Commands) -> str:
    """Return the help of a command group: its purpose, and one line for each command."""
    members = [(name, commands[name]) for name in commands]
    rows = [(name, member.help) for name, member in members]
    options = [("-h, --help", "Show this page.")]
    if " " not in commands.words:
        options.insert(0, ("--version", "Print the version and exit."))
    parts = [f"{_strong('usage:')} {commands.usage}", _wrapped(commands.help), _table("Commands", rows)]
    return "\n\n".join([*parts, _table("Options", options)])


def command_help(command: Command) -> str:
    """Return the full help of one command."""
    paragraphs = _cleaned(command.function.__doc__ or "").split("\n\n")
    arguments = [(p.shown, p.about.help) for p in command.arguments]
    options = [(_names(p), _about(p)) for p in command.options] + [("-h, --help", "Show this page.")]
    parts = [f"{_strong('usage:')} {command.usage}", *(_wrapped(paragraph) for paragraph in paragraphs)]
    parts += [_table("Arguments", arguments)] if arguments else []
    return "\n\n".join([*parts, _table("Options", options)])


def _names(p: Parameter) -> str:
    names = ", ".join([*reversed(p.names)])
    if p.negation:
        names += f" / {p.negation}"
    return names if p.is_flag else f"{names} {p.shown}"


def _about(p: Parameter) -> str:
    has_default = p.default is not None and not isinstance(p.default, bool)
    return f"{p.about.help} Default: {p.default}." if has_default else p.about.help


def _cleaned(text: str) -> str:
    first, _, rest = text.strip().partition("\n")
    return f"{first}\n{textwrap.dedent(rest)}".strip() if rest else first


def _wrapped(text: str) -> str:
    lines = textwrap.wrap(" ".join(text.split()), _width(), initial_indent=_INDENT, subsequent_indent=_INDENT)
    return "\n".join(lines)


def _table(title: str, rows: Iterable[tuple[str, str]]) -> str:
    """Format rows as two columns; a name too long for its column has its text on the next line."""
    rows = list(rows)
    column = min(max(len(name) for name, _ in rows), 30)
    lines = [_strong(f"{title}:")]
    for name, about in rows:
        text = textwrap.wrap(about, max(_width() - column - 4, 30)) or [""]
        lines.append(
            f"{_INDENT}{_strong(name.ljust(column))}{_INDENT}{text[0] if len(name) <= column else ''}".rstrip()
        )
        lines += [" " * (column + 4) + more for more in text[1 if len(name) <= column else 0 :]]
    return "\n".join(lines)


def _width() -> int:
    return min(shutil.get_terminal_size((80, 24)).columns, _WIDEST)


def _strong(text: str) -> str:
    """Render as bold on a terminal that can show it."""
    plain = not sys.stdout.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return text if plain else f"\x1b[1m{text}\x1b[0m"
