"""The reference of the command line as Markdown, made from the commands themselves: python -m tamis.cli.reference > docs/cli.md"""

from __future__ import annotations

import inspect
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import typer

from tamis.cli.main import app

_HEAD = """# The command line

Made by `python -m tamis.cli.reference`; a test keeps it true.

Sizes: `MB` is 10^6 bytes, `MiB` is 2^20. Progress and errors go to stderr, results to stdout.

| exit code | meaning |
|---|---|
| 0 | finished, and the books balance |
| 1 | failed; the message says what to do |
| 2 | a mistake in a call, recipe or option |
| 3 | incomplete: the quarantine limit was reached, work is left, or only a sample could be delivered; everything else is committed |
| 4 | the budget (memory or disk) cannot hold the job; the message names the one that can |
| 5 | the output belongs to another run, to other data, or is in use |
| 6 | records in and records out do not balance |
| 130 | interrupted; everything committed is kept |
"""


def reference() -> str:
    """The whole page."""
    commands = [(str(info.name), info.callback) for info in app.registered_commands]
    for group in app.registered_groups:
        assert group.typer_instance is not None
        inside = group.typer_instance.registered_commands
        commands += [(f"{group.name} {info.name}", info.callback) for info in inside]
    return _HEAD + "".join(_command(name, function) for name, function in commands)


def _command(name: str, function: Any) -> str:
    # Signatures and not typer's own objects, which differ between its versions.
    body, _, example = inspect.cleandoc(function.__doc__ or "").partition("Example: ")
    hints = get_type_hints(function, include_extras=True)
    arguments, rows = [], []
    for parameter in inspect.signature(function).parameters.values():
        kind, about = get_args(hints[parameter.name])[:2]
        if isinstance(about, typer.models.ArgumentInfo):
            arguments.append(about.metavar or parameter.name.upper())
            rows.append(f"| `{arguments[-1]}` | {about.help} |")
        else:
            rows.append(_option(parameter, kind, about))
    shown = " ".join(["tamis", name, *arguments])
    lines = [f"\n## tamis {name}\n", f"`{shown} [OPTIONS]`\n", body.strip() + "\n"]
    if example:
        lines.append(f"Example: `{example.strip()}`\n")
    return "\n".join([*lines, "| | |", "|---|---|", *rows]) + "\n"


def _option(parameter: inspect.Parameter, kind: Any, about: Any) -> str:
    # In Annotated the first name of an option stands where its default would.
    given = [n for n in (about.default, *(about.param_decls or ())) if isinstance(n, str) and n.startswith("-")]
    names = ", ".join(f"`{n}`" for n in given or ["--" + parameter.name.replace("_", "-")])
    value = "" if kind is bool else f" {_value(kind, about)}"
    default = parameter.default
    shown = f" Default: {default}." if default is not None and not isinstance(default, bool) else ""
    return f"| {names}{value} | {about.help}{shown} |"


def _value(kind: Any, about: Any) -> str:
    """What to write behind an option."""
    if about.metavar:
        return str(about.metavar)
    inner = (
        next((k for k in get_args(kind) if k is not type(None)), kind)
        if get_origin(kind) in (UnionType, Union)
        else kind
    )
    if get_origin(inner) is Literal:
        return " or ".join(get_args(inner))
    return {int: "NUMBER", float: "NUMBER", Path: "PATH"}.get(inner, "TEXT")


if __name__ == "__main__":
    print(reference(), end="")
