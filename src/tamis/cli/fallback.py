"""A group of commands with one that is meant when the first word is none of them: `tamis profile RECIPE` beside `tamis profile list`."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup


class FallbackGroup(TyperGroup):
    """`fallback` names the command for everything that is not a command's name. A file called like a command is given as ./NAME."""

    fallback = "try"

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = [self.fallback, *args]
        return super().parse_args(ctx, args)
