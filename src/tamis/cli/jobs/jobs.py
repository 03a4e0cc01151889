"""Jobs: what commands run, by the values that the user gave.

Each builds its stages or its workflow, and is saved field by field.
"""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import tamis
from tamis import _satellites, secrets
from tamis._dataclasses import dataclass
from tamis.engine.run.settings import SettingValue
from tamis.errors import UsageError
from tamis.stores.urls import absolute

if TYPE_CHECKING:
    from tamis.recipe.load import Recipe

# Options by the parameter of a stage.
_CLASSIFIER_OPTIONS = {
    "label_field": "--label-field",
    "score_field": "--score-field",
    "score_label": "--score-label",
    "filter_by": "--keep",
    "text_field": "--text-field",
    "max_seq_length": "--max-tokens",
    "trust_remote_code": "--trust-remote-code",
    "model_folder": "--model-folder",
    "model_identifier": "--model-folder",
}


@dataclass(frozen=True)
class Consent:
    """Permissions of this call. Never saved: `tamis resume` needs the user to allow it again."""

    modules: tuple[str, ...] = ()  # Python modules that a recipe may load
    trust_remote_code: bool = False  # run code that comes with models
    alert_sinks: bool = False  # run commands and call webhooks that the recipe names
    module_folder: str | None = None  # where the modules are looked for; None: the current folder


class CommandJob(Protocol):
    """The job of a command, by the values that the user gave.

    Saved in `command.json` field by field (command_file.py).
    """

    kind: ClassVar[str]  # its name in `command.json`

    def load(self, consent: Consent) -> Recipe:
        """Build its stages or its workflow."""
        ...

    def describe(self) -> str:
        """Return its name for messages."""
        ...


@dataclass(frozen=True)
class RecipeJob:
    """A recipe: a file or one that ships with Tamis, by its name.

    `overrides`: from --set, text as it would be written in the recipe. `values`: literal values of its fields, by the
    same keys.
    """

    kind: ClassVar[str] = "recipe"
    recipe: str
    overrides: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, SettingValue] = field(default_factory=dict)

    @property
    def path(self) -> str:
        return find_recipe(self.recipe)

    def load(self, consent: Consent) -> Recipe:
        from tamis.recipe.load import load_recipe

        folder = consent.module_folder or os.getcwd()
        if consent.modules and folder not in sys.path:
            sys.path.insert(0, folder)  # a module the user names is looked for here, as `python -m` does
        secrets.learn_values(self.overrides)
        recipe = load_recipe(
            self.path,
            consent.modules,
            overrides=self.overrides,
            values=self.values,
            trust_remote_code=consent.trust_remote_code,
        )
        for sink in recipe.alerts.sinks.values() if recipe.alerts is not None else ():
            secrets.learn(sink.addresses())  # the address of a chat is all it takes to write there
        return recipe

    def describe(self) -> str:
        return self.recipe


@dataclass(frozen=True)
class FilterJob:
    """Documents that pass sets of rules."""

    kind: ClassVar[str] = "filter"
    sets: str
    source: str
    target: str
    text_field: str = "text"

    def load(self, consent: Consent) -> Recipe:
        from tamis.recipe.load import Recipe
        from tamis.stages.text.filters.catalogue import find_sets

        stages: list[Any] = find_sets(self.sets)
        filters = [cls(text_field=self.text_field) for cls in stages]
        return Recipe(self.sets, copy_stages(self.source, self.target, filters))

    def describe(self) -> str:
        return f"tamis filter {self.sets}"


@dataclass(frozen=True)
class ClassifyJob:
    """Documents with the labels of a classifier. `None`: the default of its stage."""

    kind: ClassVar[str] = "classify"
    model: str
    source: str
    target: str
    label_field: str | None = None
    score_field: str | None = None
    score_label: str | None = None  # the label that the score is of; None: all
    labels: tuple[str, ...] | None = None  # keep only documents with one of these
    text_field: str = "text"
    max_tokens: int | None = None
    model_folder: str | None = None
    uses_remote_code: bool = False  # whether the model's folder has code, which the user must allow at each call
    format: str | None = None  # of the output; None: that of the input

    def load(self, consent: Consent) -> Recipe:
        from tamis.recipe.load import Recipe

        if self.uses_remote_code and not consent.trust_remote_code:
            raise UsageError(
                f"{self.model} was run with the code in its folder; if you still trust it, add --trust-remote-code to "
                "the command"
            )
        stages = copy_stages(self.source, self.target, [self.stage()], self.format)
        return Recipe(f"classify {Path(self.model).name}", stages)

    def stage(self) -> Any:
        """Return the stage of the classifier; raise UsageError for an option that it does not have."""
        if self.score_label is not None and self.score_field is None:
            raise UsageError("--score-label names a label for --score-field: give that, too")
        cls = known_classifiers().get(self.model)
        if cls is not None:
            return self._known_stage(cls)
        return self._fasttext_stage() if os.path.isfile(self.model) else self._model_folder_stage()

    def _arguments(self) -> dict[str, Any]:
        """Return the arguments of the stage that were given."""
        choices: dict[str, Any] = {
            "label_field": self.label_field,
            "score_field": self.score_field,
            "score_label": self.score_label,
            "filter_by": None if self.labels is None else list(self.labels),
            "text_field": self.text_field,
            "max_seq_length": self.max_tokens,
            "trust_remote_code": self.uses_remote_code or None,
        }
        return {name: value for name, value in choices.items() if value is not None}

    def _fasttext_stage(self) -> Any:
        choices = self._arguments()
        unused = sorted({"max_seq_length", "trust_remote_code"} & set(choices))
        unused += ["model_folder"] if self.model_folder else []
        if unused:
            raise UsageError(f"{_CLASSIFIER_OPTIONS[unused[0]]} means nothing for the fastText model {self.model}")
        return _satellites.load("models.classifiers").FastTextClassifier(model_path=self.model, **choices)

    def _model_folder_stage(self) -> Any:
        """Return the stage of a model of the user: a folder of transformers."""
        if self.score_label is not None:
            raise UsageError("--score-label is for fastText models; --score-field alone gets all probabilities")
        if self.model_folder is not None:
            raise UsageError(
                f"--model-folder is for a known classifier, and {self.model!r} is none; give the folder itself as MODEL"
            )
        return _satellites.load("models.classifiers").DistributedDataClassifier(
            **{"model_identifier": self.model, "label_field": "label", **self._arguments()}
        )

    def _known_stage(self, cls: Any) -> Any:
        choices = self._arguments()
        names = {f.name for f in fields(cls)}
        if self.model_folder is not None:
            model = (
                "aegis_variant" if "aegis_variant" in names and "model_identifier" not in names else "model_identifier"
            )
            choices = {model: self.model_folder, **choices}
        if unused := sorted(set(choices) - names):
            raise UsageError(
                f"{_CLASSIFIER_OPTIONS[unused[0]]} is not an option of {self.model!r}; it writes fields of its own"
            )
        return cls(**choices)

    def describe(self) -> str:
        return f"tamis classify {self.model}"


def known_classifiers() -> dict[str, Any]:
    """Return the classifiers by their command-line name: QualityClassifier is `quality`.

    >>> sorted(known_classifiers())[:4]
    ['aegis', 'content-type', 'domain', 'fineweb-edu']
    """
    classifiers = _satellites.load("models.classifiers")
    jobs = {}
    for name in classifiers.__all__:
        if name not in ("DistributedDataClassifier", "FastTextClassifier"):
            words = name.removesuffix("Classifier").replace("FineWeb", "Fineweb")
            jobs["".join("-" + c.lower() if c.isupper() and i else c.lower() for i, c in enumerate(words))] = getattr(
                classifiers, name
            )
    return jobs


def find_recipe(name: str) -> str:
    """Return the path of a recipe: a file, or a recipe that ships with Tamis, by its name."""
    shipped = Path(tamis.__file__).parent / "recipe" / "presets"
    if os.sep in name or (os.path.exists(name) and not os.path.isdir(name)):  # a folder called `code` hides no preset
        return name
    path = shipped / f"{name.removesuffix('.yaml')}.yaml"
    if path.is_file():
        return str(path)
    names = sorted(p.stem for p in shipped.glob("*.yaml"))
    near = difflib.get_close_matches(name.removesuffix(".yaml"), names, 1)
    hint = f"did you mean {near[0]!r}? Give" if near else "give"
    raise UsageError(f"no such recipe: {name}; {hint} a file, or one of those that ship with Tamis: {', '.join(names)}")


def location(path: str) -> str:
    """Return a path as jobs hold it: absolute, and text even if its bytes are not UTF-8."""
    from tamis.stores.urls import path_text

    return path_text(absolute(path))


def copy_stages(source: str, target: str, stages: Sequence[Any], file_type: str | None = None) -> list[Any]:
    """Return stages that read `source`, apply `stages`, and write to `target` in `file_type`, or that of the source."""
    from tamis.stages.text.io.formats import output_format, writer_of
    from tamis.stages.text.io.reader import DocumentReader

    if file_type is not None:
        writer, extension = writer_of(file_type), file_type
    else:
        writer, extension = output_format(source, output=target)
    return [DocumentReader(source), *stages, writer(target, file_extension=extension)]
