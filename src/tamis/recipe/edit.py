"""Changes to the `settings:` of a recipe, in its text: comments, order and spelling of the rest stay.

The text is parsed before and after, and the change is refused unless it changed exactly what was asked for. Written
whole or not at all. Recipes that ship with Tamis are not changed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tamis import files
from tamis.errors import RecipeError, UsageError
from tamis.yaml_text import Node, parse, plain_scalar, read_text

_SHIPPED = Path(__file__).parent / "presets"


def check_writable(path: str) -> None:
    """Raise UsageError, before the work, if a recipe must not or cannot be changed."""
    real = Path(os.path.realpath(path))
    if _SHIPPED.resolve() in real.parents:
        raise UsageError(
            f"{real.name} ships with Tamis and is not changed; copy it, and give the copy: cp {real} my.yaml"
        )
    if not os.access(real, os.W_OK) or not os.access(real.parent, os.W_OK):
        raise UsageError(f"{path} cannot be written; copy it to a folder of yours, and give the copy")


def write_settings(path: str, changes: Mapping[str, str | None]) -> None:
    """Set these settings of the recipe at `path`; None removes one."""
    check_writable(path)
    real = os.path.realpath(path)
    text = read_text(real, keep_mark=True)
    changed = edit(text, changes, path)
    if changed == text:
        return
    mode = os.stat(real).st_mode & 0o7777
    with files.replacing(real) as file:
        os.fchmod(file.fileno(), mode)
        file.write(changed.encode("utf-8"))


def edit(text: str, changes: Mapping[str, str | None], file: str = "recipe") -> str:
    r"""Return the text of a recipe with its settings changed; None removes one.

    >>> changes = {"memory": "2GB", "blocksize": "32MB"}
    >>> print(edit("name: a\nsettings:\n  memory: 1GB  # all of it\n", changes), end="")
    name: a
    settings:
      memory: 2GB  # all of it
      blocksize: 32MB
    """
    mark = "\ufeff" if text.startswith("\ufeff") else ""
    body = text[len(mark) :]
    whole = _plain(parse(body, file))
    before = _settings(whole)
    meant = {name: plain_scalar(value) for name, value in changes.items() if value is not None}
    edited = body
    for name, value in changes.items():
        if before.get(name) != meant.get(name):
            edited = _edit_one(edited, name, value, file)
    expected = {k: v for k, v in {**before, **meant}.items() if k in meant or k not in changes}
    try:
        after = _plain(parse(edited, file))
        is_as_expected = _settings(after) == expected and {**after, "settings": 0} == {**whole, "settings": 0}
    except RecipeError:  # the edit broke it: an alias, an anchor
        is_as_expected = False
    if not is_as_expected:
        raise _edit_by_hand(file, changes, "its settings are written in an unusual way")
    return mark + edited


def _edit_one(text: str, name: str, value: str | None, file: str) -> str:
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    if not isinstance(root, yaml.MappingNode):
        raise RecipeError("expected a mapping", file=file)
    newline = "\r\n" if "\r\n" in text else "\n"
    section = next(((k, v) for k, v in root.value if k.value == "settings"), None)
    if section is None:
        return text if value is None else _begin_section(text, root.end_mark.index, name, value, newline)
    key, settings = section
    if isinstance(settings, yaml.ScalarNode) and settings.value in ("", "~", "null") and value is not None:
        return _fill_empty_section(text, key, settings, name, value, newline)
    if not isinstance(settings, yaml.MappingNode):
        raise _edit_by_hand(file, {name: value}, "its settings are not a mapping of their own")
    entry = next(((k, v) for k, v in settings.value if k.value == name), None)
    if entry is not None:
        return _replace(text, settings, entry, name, value, file)
    return text if value is None else _add(text, settings, name, value, newline)


def _begin_section(text: str, end: int, name: str, value: str, newline: str) -> str:
    """Add `settings:` with one setting at the end of a recipe that has none."""
    head = text[:end].rstrip(" ")
    gap = "" if head.endswith("\n") or not head else newline
    return f"{head}{gap}settings:{newline}  {name}: {value}{newline}{text[end:]}"


def _fill_empty_section(text: str, key: Any, settings: Any, name: str, value: str, newline: str) -> str:
    """Add the first setting below a `settings:` without a value; a comment on its line stays."""
    colon_end = key.end_mark.index + 1
    following = text[settings.end_mark.index :] if settings.value else text[colon_end:]
    line_end = following.find("\n")
    line = following if line_end < 0 else following[:line_end].rstrip("\r")
    tail = "" if line_end < 0 else following[line_end + 1 :]
    return f"{text[:colon_end]}{line}{newline}  {name}: {value}{newline}{tail}"


def _add(text: str, settings: Any, name: str, value: str, newline: str) -> str:
    """Add a setting: at the front of `{...}`, else on a line of its own after the others."""
    if settings.flow_style:
        start = settings.start_mark.index + 1
        return f"{text[:start]}{name}: {value}{', ' if settings.value else ''}{text[start:]}"
    indent = " " * settings.value[0][0].start_mark.column
    end = _line_end(text, settings.value[-1][1])
    head = text[:end]
    return f"{head}{'' if head.endswith(newline) else newline}{indent}{name}: {value}{newline}{text[end:]}"


def _replace(text: str, settings: Any, entry: Any, name: str, value: str | None, file: str) -> str:
    key, old = entry
    start, end = old.start_mark.index, old.end_mark.index
    if not isinstance(old, yaml.ScalarNode) or "${" in old.value or old.style in ("|", ">"):
        raise _edit_by_hand(file, {name: value}, f"{name} is a reference or a block of text there")
    if value is not None:
        if old.value:
            return f"{text[:start]}{value}{text[end:]}"
        return f"{text[: key.end_mark.index + 1]} {value}{text[key.end_mark.index + 1 :]}"
    if settings.flow_style or len(settings.value) == 1:
        raise _edit_by_hand(file, {name: value}, f"{name} cannot be taken out by itself")
    begin = text.rfind("\n", 0, key.start_mark.index) + 1
    return text[:begin] + text[_line_end(text, old) :]


def _line_end(text: str, node: Any) -> int:
    """Return the position after the line on which a value ends; a block mapping may end later, after comments."""
    at = node.end_mark.index
    while isinstance(node, (yaml.MappingNode, yaml.SequenceNode)) and node.value and not node.flow_style:
        last = node.value[-1]
        node = last[1] if isinstance(last, tuple) else last
        at = node.end_mark.index
    end = text.find("\n", at)
    return len(text) if end < 0 else end + 1


def _settings(whole: Any) -> dict[str, Any]:
    section = whole.get("settings") if isinstance(whole, dict) else None
    return section if isinstance(section, dict) else {}


def _plain(node: Node) -> Any:
    value = node.value
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_plain(v) for v in value]
    return value


def _edit_by_hand(file: str, changes: Mapping[str, str | None], why: str) -> UsageError:
    lines = ", ".join(f"{k}: {v}" if v is not None else f"no {k}" for k, v in changes.items())
    return UsageError(f"{file} is not changed ({why}); set it by hand, under settings: {lines}")
