"""`tamis run` under the original's name: `python -m tamis.config.run --config-path DIR --config-name NAME key=value`.

`create_pipeline_from_yaml` gives the pipeline of a recipe without running it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from tamis.cli.terminal.streams import LAYOUT
from tamis.errors import UsageError
from tamis.terminal import printable

USAGE = "python -m tamis.config.run --config-path FOLDER --config-name NAME [--trust-remote-code] [key=value ...]"
_TRUST = "--trust-remote-code"
_SHORT = {"-cp": "--config-path", "-cn": "--config-name"}


def parse(arguments: Sequence[str]) -> tuple[str, dict[str, str]]:
    """Split command line arguments into the recipe's path and the values that override its own.

    >>> parse(["--config-path", "in", "--config-name=a", "x.y=1", "+z=2"])
    ('in/a.yaml', {'x.y': '1', 'z': '2'})
    """
    options: dict[str, str] = {}
    overrides: dict[str, str] = {}
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        name = _SHORT.get(name, name)
        if name in _SHORT.values():
            if not equals and not rest:
                raise UsageError(f"{name} needs a value; {USAGE}")
            options[name] = value if equals else rest.pop(0)
        elif equals and not word.startswith("-"):
            overrides[name.lstrip("+")] = value
        else:
            raise UsageError(f"{word!r} is not understood; {USAGE}")
    if "--config-name" not in options:
        raise UsageError(f"--config-name is missing; {USAGE}")
    file = options["--config-name"]
    file = file if file.endswith((".yaml", ".yml")) else file + ".yaml"
    return os.path.join(options.get("--config-path", "."), file), overrides


def create_pipeline_from_yaml(cfg: Any, trust_remote_code: bool = False) -> Any:
    """Build the pipeline of a recipe, given as a path or as a mapping parsed by a YAML library.

    `trust_remote_code`: allow stages to run code that models bring along; a recipe cannot allow that itself.
    """
    from tamis.cli.jobs.jobs import find_recipe
    from tamis.recipe.load import load_recipe

    if isinstance(cfg, (str, os.PathLike)):
        return load_recipe(find_recipe(os.fspath(cfg)), trust_remote_code=trust_remote_code).pipeline()
    import yaml

    text = yaml.safe_dump(_plain(cfg), sort_keys=False)
    return load_recipe("the given mapping", text=text, trust_remote_code=trust_remote_code).pipeline()


def _plain(value: Any) -> Any:
    """Convert mappings and lists of any library to Python's own."""
    if isinstance(value, Mapping) or type(value).__name__ == "DictConfig":
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)) or type(value).__name__ == "ListConfig":
        return [_plain(item) for item in value]
    return value


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a recipe, and end the program with the exit code of the run."""
    from tamis.cli.main import main as command

    typed = sys.argv[1:] if arguments is None else arguments
    path, overrides = parse([word for word in typed if word != _TRUST])
    sets = [word for key, value in overrides.items() for word in ("--set", f"{key}={value}")]
    sys.argv = ["tamis", "run", path, *sets, *([_TRUST] if _TRUST in typed else [])]
    command()


if __name__ == "__main__":
    try:
        main()
    except UsageError as exc:
        print(f"error: {printable(str(exc), keep=LAYOUT)}", file=sys.stderr)
        sys.exit(exc.exit_code)
