"""Short names for the steps of a curation (`steps:` of a recipe), and the steps of one recipe inside another.

    steps:
      - preset: web-english             # all steps of a shipped recipe, or of a file
      - gopher_quality: {min_words: 30}
      - exact_duplicates
      - _target_: my.module.Stage       # anything else by its name

Works on the nodes of the file, before names are checked and anything is built.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from tamis.errors import RecipeError
from tamis.recipe.targets import TARGET
from tamis.recipe.yaml_text import Node, parse, read_text, suggest

PRESETS = Path(__file__).parent / "presets"
NAMES = {
    "language": "tamis.stages.text.filters.language.LanguageFilter",
    "gopher_quality": "tamis.stages.text.filters.gopher.GopherQuality",
    "gopher_repetition": "tamis.stages.text.filters.gopher.GopherRepetition",
    "c4_quality": "tamis.stages.text.filters.c4.C4Quality",
    "fineweb_quality": "tamis.stages.text.filters.fineweb.FineWebQuality",
    "heuristic_english": "tamis.stages.text.filters.heuristics.HeuristicEnglish",
    "heuristic_non_english": "tamis.stages.text.filters.heuristics.HeuristicNonEnglish",
    "text": "tamis.stages.text.filters.has_text.HasText",
    "sample": "tamis.stages.text.modules.sample.Sample",
    "add_id": "tamis.stages.text.modules.add_id.AddId",
    "exact_duplicates": "tamis.curation.steps.ExactDuplicates",
    "fuzzy_duplicates": "tamis.curation.steps.FuzzyDuplicates",
    "duplicate_lines": "tamis.curation.steps.DuplicateLines",
    "read_images": "tamis.stages.image.io.image_reader.ImageReader",
    "image_size": "tamis.stages.image.filters.size_filter.ImageSizeFilterStage",
    "image_embedding": "tamis.stages.image.embedders.clip_embedder.ImageEmbeddingStage",
    "image_aesthetic": "tamis.stages.image.filters.aesthetic_filter.ImageAestheticFilterStage",
    "image_nsfw": "tamis.stages.image.filters.nsfw_filter.ImageNSFWFilterStage",
    "exact_image_duplicates": "tamis.curation.pictures.ExactImageDuplicates",
    "semantic_image_duplicates": "tamis.curation.pictures.SemanticImageDuplicates",
    "write_images": "tamis.stages.image.io.image_writer.ImageWriterStage",
}
PRESET = "preset"
_MAX_DEPTH = 4


def expand(root: Node, file: str) -> None:
    """Write out the names in `steps:` of a recipe, in place. Values that the steps of a preset refer to come with them."""
    assert isinstance(root.value, dict)
    root.value["steps"] = _steps(root.value["steps"], root.value, file, 0)


def _steps(node: Node, top: dict[str, Node], file: str, depth: int) -> Node:
    if not isinstance(node.value, list) or not node.value:
        raise RecipeError("expected a list of steps", file=file, line=node.line, field="steps")
    found: list[Node] = []
    for i, item in enumerate(node.value):
        where = f"steps.{i}"

        def fail(message: str, item: Node = item, where: str = where) -> RecipeError:
            return RecipeError(message, file=file, line=item.line, field=where)

        if isinstance(item.value, dict) and TARGET in item.value:
            found.append(item)
            continue
        name, given = _named(item, fail)
        if name == PRESET:
            found += _of_preset(given, top, depth, fail)
        elif name in NAMES:
            parameters = given.value if isinstance(given.value, dict) else {} if given.value is None else None
            if parameters is None:
                raise fail(f"{name}: expected its parameters by name, e.g. {name}: {{text_field: body}}")
            found.append(Node({TARGET: Node(NAMES[name], item.line), **parameters}, item.line))
        else:
            raise fail(f"no step is called {name!r}{suggest(name, [*NAMES, PRESET])}; any stage goes by {TARGET}")
    return Node(found, node.line)


def _named(item: Node, fail: Callable[[str], RecipeError]) -> tuple[str, Node]:
    """(name, parameters) of `- name` and of `- name: {...}`."""
    if isinstance(item.value, str):
        return item.value, Node(None, item.line)
    if isinstance(item.value, dict) and len(item.value) == 1:
        return next(iter(item.value.items()))
    raise fail(f"expected one name of a step with its parameters, or a mapping with {TARGET}")


def _of_preset(given: Node, top: dict[str, Node], depth: int, fail: Callable[[str], RecipeError]) -> list[Node]:
    if not isinstance(given.value, str):
        raise fail("preset: expected the name of a shipped recipe, or a file")
    if depth >= _MAX_DEPTH:
        raise fail(f"presets inside presets, more than {_MAX_DEPTH} deep")
    path = given.value if os.sep in given.value else str(PRESETS / f"{given.value.removesuffix('.yaml')}.yaml")
    if not os.path.isfile(path):
        raise fail(f"no such preset: {given.value}{suggest(given.value, with_steps())}")
    root = parse(read_text(path), path)
    if not isinstance(root.value, dict) or "steps" not in root.value:
        raise fail(f"{path} has no 'steps:'; only the steps of a curation can be taken over")
    for key, node in root.value.items():
        if not isinstance(node.value, (list, dict)) and key not in ("name", "description", "input", "output"):
            top.setdefault(key, node)
    steps = _steps(root.value["steps"], top, path, depth + 1).value
    assert isinstance(steps, list)
    return steps


def with_steps() -> list[str]:
    """Names of the shipped recipes that are curations."""
    return sorted(p.stem for p in PRESETS.glob("*.yaml") if "\nsteps:" in p.read_text(encoding="utf-8"))
