"""`tamis run` under the original's name: `python -m tamis.config.run --config-path DIR --config-name NAME key=value`.

The other functions give what a recipe describes without running it.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tamis.cli.terminal.streams import LAYOUT
from tamis.errors import UsageError
from tamis.terminal import printable

if TYPE_CHECKING:
    from tamis.backends.base import BaseExecutor
    from tamis.recipe.load import Recipe

USAGE = "python -m tamis.config.run [--config-path FOLDER] [--config-name NAME] [--trust-remote-code] [key=value ...]"
_USUAL_NAME = "pipeline"  # of the file, if none is given
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
    file = options.get("--config-name", _USUAL_NAME)
    file = file if file.endswith((".yaml", ".yml")) else file + ".yaml"
    return os.path.join(options.get("--config-path", "."), file), overrides


def create_pipeline_from_yaml(cfg: Any, *, log_config: bool = True, trust_remote_code: bool = False) -> Any:
    """Build the pipeline or the workflow of a recipe, given as a path or as a mapping parsed by a YAML library.

    `trust_remote_code`: allow stages to run code that models bring along; a recipe cannot allow that itself.
    `log_config`: log which recipe it is (logger tamis.config, level INFO).
    """
    recipe = _recipe_of(cfg, trust_remote_code)
    if log_config:
        logging.getLogger("tamis.config").info("%s: %s", recipe.file, recipe.name)
    return recipe.workflow if recipe.workflow is not None else recipe.pipeline()


def create_executor_from_yaml(cfg: Any) -> BaseExecutor | None:
    """Return the executor that `backend:` and `execution_mode:` of a recipe name; None if it has neither."""
    from tamis.backends.registry import check_installed, executor_class
    from tamis.yaml_text import parse, read_text

    top: Any = cfg
    if isinstance(cfg, (str, os.PathLike)):
        top = parse(read_text(os.fspath(cfg)), os.fspath(cfg)).value
    named = {key: getattr(top[key], "value", top[key]) for key in ("backend", "execution_mode") if key in top}
    if not named:
        return None
    backend = str(named.get("backend", "xenna"))
    check_installed(backend)
    mode = {"execution_mode": str(named["execution_mode"])} if "execution_mode" in named else {}
    return executor_class(backend)(config=mode)


def create_ray_client_from_yaml(cfg: Any) -> Any:
    """Return the client that `ray_client:` of a recipe describes, or one with the usual settings."""
    from tamis import _satellites

    client: Any = _recipe_of(cfg, False).ray_client
    return client if client is not None else _satellites.load("recipe.client").RayClient()


def _recipe_of(cfg: Any, trust_remote_code: bool) -> Recipe:
    from tamis.cli.jobs.jobs import find_recipe
    from tamis.recipe.load import load_recipe

    if isinstance(cfg, (str, os.PathLike)):
        return load_recipe(find_recipe(os.fspath(cfg)), trust_remote_code=trust_remote_code)
    import yaml

    text = yaml.safe_dump(_plain(cfg), sort_keys=False)
    return load_recipe("the given mapping", text=text, trust_remote_code=trust_remote_code)


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
