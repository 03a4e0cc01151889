"""Reference pages from the commands and the declared settings: `python -m tamis.cli.reference docs`.

Writes cli.md in that folder, and the table of settings in its recipes.md.
"""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

from tamis.cli.main import app
from tamis.cli.parsing.arguments import Argument, Command, Commands, Option, Parameter
from tamis.recipe.load import RECIPE_SETTINGS

_HEAD = """# The command line

Made by `python -m tamis.cli.reference docs`; a test keeps it true.

Sizes: `MB` is 10^6 bytes, `MiB` is 2^20. Progress and errors go to stderr, results to stdout.

| exit code | meaning |
|---|---|
| 0 | finished, and every record is accounted for |
| 1 | failed; the message says what to do |
| 2 | a mistake in a call, recipe or option |
| 3 | incomplete: quarantine limit reached, work left, or only a sample delivered; everything else is committed |
| 4 | the budget (memory or disk) cannot hold the job; the message names the one that can |
| 5 | the output belongs to another run, to other data, or is in use |
| 6 | records in and records out do not add up |
| 130 | interrupted; everything committed is kept |
"""


# The ends of the table in recipes.md.
_BEGIN, _END = "| setting | meaning | default |\n|---|---|---|\n", "| `schema` |"


def reference() -> str:
    """Return the whole reference page: the commands, then those of groups."""
    members = [(name, app[name]) for name in app]
    commands = [(name, member) for name, member in members if isinstance(member, Command)]
    for group, member in members:
        if isinstance(member, Commands):
            inside = [(name, member[name]) for name in member]
            commands += [(f"{group} {name}", one) for name, one in inside if isinstance(one, Command)]
    return _HEAD + "".join(_command(name, command) for name, command in commands)


def _command(name: str, command: Command) -> str:
    body, _, example = inspect.cleandoc(command.function.__doc__ or "").partition("Example: ")
    rows = [
        f"| `{p.shown}` | {p.about.help} |" if isinstance(p.about, Argument) else _option(p) for p in command.parameters
    ]
    shown = " ".join(["tamis", name, *(p.shown for p in command.arguments)])
    lines = [f"\n## tamis {name}\n", f"`{shown} [OPTIONS]`\n", body.strip() + "\n"]
    if example:
        lines.append(f"Example: `{example.strip()}`\n")
    return "\n".join([*lines, "| | |", "|---|---|", *rows]) + "\n"


def _option(p: Parameter) -> str:
    names = ", ".join(f"`{name}`" for name in (p.about.names if isinstance(p.about, Option) else ()) or p.names)
    value = "" if p.is_flag else f" {p.shown.replace('|', ' or ')}"
    default = f" Default: {p.default}." if p.default is not None and not isinstance(p.default, bool) else ""
    return f"| {names}{value} | {p.about.help}{default} |"


def with_settings(page: str) -> str:
    """Return the page of recipes with the table of settings made anew."""
    before, begin, rest = page.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    rows = []
    for setting in RECIPE_SETTINGS.values():
        default = "no" if setting.default is False else setting.shown_default
        rows.append(f"| `{setting.name}` | {setting.description} | {default} |\n")
    return before + begin + "".join(rows) + end + after


def main(folder: str) -> None:
    """Write both pages into a folder."""
    (Path(folder) / "cli.md").write_text(reference(), encoding="utf-8")
    recipes = Path(folder) / "recipes.md"
    recipes.write_text(with_settings(recipes.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
