"""`tamis recipe`: the recipes that ship with Tamis, to look at and to change."""

from __future__ import annotations

import sys
from typing import Annotated

from tamis.cli.parsing.arguments import Argument, Commands, echo
from tamis.terminal import is_terminal

app = Commands("recipe", help="Show the recipes that ship with Tamis.")


@app.command("list")
def list_() -> None:
    """List the recipes that ship with Tamis, and what each does."""
    from tamis.cli.terminal.show import print_table
    from tamis.recipe.step_names import PRESETS
    from tamis.yaml_text import fields_of

    rows = []
    for path in sorted(PRESETS.glob("*.yaml")):
        root = fields_of(str(path))
        about = root["description"].value if "description" in root else ""
        rows.append((path.stem, "tamis curate" if "steps" in root else "tamis run", str(about)))
    print_table("Recipes", ["name", "for", ""], rows)


@app.command("show")
def show(name: Annotated[str, Argument(metavar="NAME", help="The name of a shipped recipe, or a file.")]) -> None:
    """Print a recipe with its comments, for example to start one of your own.

    Example: tamis recipe show web-english > mine.yaml
    """
    from tamis.cli.jobs.jobs import find_recipe
    from tamis.yaml_text import read_text

    # Redirected into a file, it is the recipe as it was written.
    echo(read_text(find_recipe(name), keep_mark=True).rstrip("\n"), raw=not is_terminal(sys.stdout))
