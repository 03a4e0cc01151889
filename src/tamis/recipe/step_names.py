"""Short names for the steps of a curation (`steps:` of a recipe), and the steps of one recipe inside another.

    steps:
      - preset: web-english             # all steps of a shipped recipe, or of a file (mine.yaml next to this one)
      - gopher_quality: {min_words: 30}
      - exact_duplicates
      - _target_: my.module.Stage       # anything else by its name

Works on the nodes of the file, before names are checked and anything is built.
"""

from __future__ import annotations

import os
from pathlib import Path

from tamis.dedup.kinds import KINDS
from tamis.recipe.targets import TARGET
from tamis.yaml_text import Located, Node, References, parse, read_text, suggest


def _class_name(step: str) -> str:
    return "".join(word.capitalize() for word in step.split("_"))


PRESETS = Path(__file__).parent / "presets"
NAMES = {
    "language": "tamis.stages.text.filters.fasttext.LanguageFilter",
    "gopher_quality": "tamis.stages.text.filters.gopher.GopherQuality",
    "gopher_repetition": "tamis.stages.text.filters.gopher.GopherRepetition",
    "c4_quality": "tamis.stages.text.filters.c4.C4Quality",
    "fineweb_quality": "tamis.stages.text.filters.fineweb.FineWebQuality",
    "language_rules": "tamis.stages.text.filters.language_rules.LanguageRules",
    "heuristic_english": "tamis.stages.text.filters.nemo_curator.HeuristicEnglish",
    "heuristic_non_english": "tamis.stages.text.filters.nemo_curator.HeuristicNonEnglish",
    "text": "tamis.stages.text.filters.has_text.HasText",
    "url_filter": "tamis.stages.text.urls.UrlFilter",
    "html_extract": "tamis.stages.text.html.HtmlExtract",
    "sample": "tamis.stages.text.modules.sample.Sample",
    "count_tokens": "tamis.stages.text.tokens.stages.CountTokens",
    "add_id": "tamis.stages.text.modules.add_id.AddId",
    **{kind.step: f"tamis.curation.steps.{_class_name(kind.step)}" for kind in KINDS.values() if kind.step},
    "read_images": "tamis.stages.image.io.image_reader.ImageReader",
    "image_size": "tamis.stages.image.filters.size_filter.ImageSizeFilterStage",
    "image_embedding": "tamis.stages.image.embedders.clip_embedder.ImageEmbeddingStage",
    "image_aesthetic": "tamis.stages.image.filters.aesthetic_filter.ImageAestheticFilterStage",
    "image_nsfw": "tamis.stages.image.filters.nsfw_filter.ImageNSFWFilterStage",
    "exact_image_duplicates": "tamis.curation.images.ExactImageDuplicates",
    "semantic_image_duplicates": "tamis.curation.images.SemanticImageDuplicates",
    "write_images": "tamis.stages.image.io.image_writer.ImageWriterStage",
}
PRESET = "preset"
_MAX_DEPTH = 4


def name_of(target: str) -> str:
    """Return the short name of a step, or the name of its class.

    >>> name_of("tamis.stages.text.filters.fasttext.LanguageFilter"), name_of("mine.stages.Keep")
    ('language', 'Keep')
    """
    return next((name for name, known in NAMES.items() if known == target), target.rpartition(".")[2])


def expand(root: Node, file: str) -> None:
    """Write out the names in `steps:` of a recipe, in place.

    Values that the steps of a preset refer to come with them.
    """
    assert isinstance(root.value, dict)
    at = Located(root.value["steps"], "steps", References({}, {}, file))
    root.value["steps"] = Node(_steps(at, root.value, 0), at.node.line)


def _steps(at: Located, top: dict[str, Node], depth: int) -> list[Node]:
    if not isinstance(at.node.value, list) or not at.node.value:
        raise at.fail("expected a list of steps")
    steps: list[Node] = []
    for item in at.items():
        if TARGET in item.fields():
            steps.append(item.node)
            continue
        name, parameters = _named(item)
        if name == PRESET:
            steps += _of_preset(parameters, item, top, depth)
        elif name in NAMES:
            if parameters.value is not None and not isinstance(parameters.value, dict):
                raise item.fail(f"{name}: expected its parameters by name, e.g. {name}: {{text_field: body}}")
            steps.append(Node({TARGET: Node(NAMES[name], item.node.line), **(parameters.value or {})}, item.node.line))
        else:
            raise item.fail(f"no step is called {name!r}{suggest(name, [*NAMES, PRESET])}; any stage goes by {TARGET}")
    return steps


def _named(at: Located) -> tuple[str, Node]:
    """Return (name, parameters) of `- name` and of `- name: {...}`."""
    item = at.node
    if isinstance(item.value, str):
        return item.value, Node(None, item.line)
    if isinstance(item.value, dict) and len(item.value) == 1:
        return next(iter(item.value.items()))
    raise at.fail(f"expected one name of a step with its parameters, or a mapping with {TARGET}")


def _of_preset(parameters: Node, at: Located, top: dict[str, Node], depth: int) -> list[Node]:
    if not isinstance(parameters.value, str):
        raise at.fail("preset: expected the name of a shipped recipe, or a file")
    if depth >= _MAX_DEPTH:
        raise at.fail(f"presets inside presets, more than {_MAX_DEPTH} deep")
    path = _file_of(parameters.value, at.references.file)
    if not os.path.isfile(path):
        raise at.fail(f"no such preset: {parameters.value}{suggest(parameters.value, with_steps())}")
    root = parse(read_text(path), path)
    if not isinstance(root.value, dict) or "steps" not in root.value:
        raise at.fail(f"{path} has no 'steps:'; only the steps of a curation can be taken over")
    for key, node in root.value.items():
        if not isinstance(node.value, (list, dict)) and key not in ("name", "description", "input", "output"):
            top.setdefault(key, node)
    return _steps(Located(root.value["steps"], "steps", References({}, {}, path)), top, depth + 1)


def _file_of(preset: str, recipe: str) -> str:
    """Return the path of the steps that a recipe file refers to by this name.

    It is a file, relative to the working directory or to the recipe's folder, or a shipped recipe.
    """
    neighbour = os.path.join(os.path.dirname(os.path.abspath(recipe)), preset)
    if os.sep in preset:
        return preset if os.path.isfile(preset) else neighbour
    if preset.endswith((".yaml", ".yml")) and os.path.isfile(neighbour) and neighbour != os.path.abspath(recipe):
        return neighbour
    return str(PRESETS / f"{preset.removesuffix('.yaml')}.yaml")


def with_steps() -> list[str]:
    """Return the names of the shipped recipes that are curations."""
    return sorted(p.stem for p in PRESETS.glob("*.yaml") if "\nsteps:" in p.read_text(encoding="utf-8"))
