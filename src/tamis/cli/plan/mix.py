"""The mix that a curation will write, for its plan: of the tokens of each group, how many, how often, or why not.

The steps before the mix are run on the beginnings of some input files, in a temporary folder: what is left of each
group there stands for the whole input. A small input is taken whole: then the mix is exact, but for documents that a
step `mix` draws. For sources with weights the whole curation is run there.
"""

from __future__ import annotations

import copy
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from typing import Any

from tamis.cli.plan.trial import copy_heads, spread, without_profiles
from tamis.curation import Curation
from tamis.curation.mixing import Source, tokens_by_source
from tamis.curation.result import CurationResult
from tamis.curation.steps import KeepTop, Mix, Step
from tamis.dedup.quantiles.mixing import epochs_of
from tamis.errors import TamisError, UsageError
from tamis.forecast import shipped_table
from tamis.pipeline import Pipeline
from tamis.stages.base import ProcessingStage
from tamis.stages.text.tokens.stages import Tokenize

_SAMPLE_BYTES = 24_000_000
_FILES = 64
_SHOWN = 24
_SOURCES = "sources"


@dataclass(frozen=True)
class PlannedGroup:
    """The documents of a value or of a source.

    `tokens`: there will be, before the mix; `epochs`: how often they are written, None where there is no such mix.
    """

    name: str
    tokens: int
    epochs: float | None = None
    tokens_written: int = 0


@dataclass(frozen=True)
class PlannedMix:
    """A mix before anything is written.

    `read_share`: of the input that the figures were taken from; `reason`: why there is no such mix, "" if there is one.
    """

    step: str
    read_share: float
    target: int | None = None
    reason: str = ""
    groups: list[PlannedGroup] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"is_feasible": not self.reason}

    def lines(self) -> list[str]:
        """Return the mix as lines: the total, then each group, those with the most tokens first."""
        if self.reason and not self.groups:
            return [f"{self.step}: the mix cannot be told before the run: {self.reason}"]
        written = sum(group.tokens_written for group in self.groups)
        source = "of all documents" if self.read_share == 1 else f"estimated from {self.read_share:.2g} of the input"
        head = f"{self.step}: {written:,} tokens, {source}" if not self.reason else f"{self.step}: {source}"
        lines = [f"{head}; not feasible: {self.reason}" if self.reason else head]
        ranked = sorted(self.groups, key=lambda group: (-group.tokens_written, -group.tokens, group.name))
        for group in ranked[:_SHOWN]:
            share = f", {group.tokens_written / written:.2%} of the mix" if written and not self.reason else ""
            epochs = f" x {group.epochs:.3f} = {group.tokens_written:,}" if group.epochs is not None else ""
            lines.append(f"  {group.name or '(no value)'}: {group.tokens:,} tokens{epochs}{share}")
        if len(ranked) > _SHOWN:
            rest = sum(group.tokens_written for group in ranked[_SHOWN:])
            lines.append(f"  {len(ranked) - _SHOWN:,} others: {rest:,} tokens in the mix")
        return lines


def plan_mix(curation: Curation, settings: Mapping[str, Any], may_load_models: bool = True) -> PlannedMix | None:
    """Return what the step `mix` of a curation makes; None if it has none. `settings`: of its run."""
    position = next((i for i, step in enumerate(curation.steps) if isinstance(step, Mix)), None)
    if position is None:
        return None
    mix = curation.steps[position]
    assert isinstance(mix, Mix)
    if not may_load_models and (model := _model(curation.steps[:position])):
        return PlannedMix(mix.name, 0.0, reason=f"{model} uses a model; tamis plan runs it on a sample")
    files = curation.files()
    with tempfile.TemporaryDirectory(prefix="tamis-plan-") as folder, without_profiles():
        try:
            paths, share = _sample(curation, folder, files.paths, shipped_table.decoded_bytes(files.paths, files.sizes))
            before = [_scaled(step, share) for step in curation.steps[:position]]
            trial = Curation([*before, _plain(mix)], paths, **_of_trial(curation, folder))
            result = _run(trial, settings)
        except TamisError as exc:
            return PlannedMix(mix.name, 0.0, reason=str(exc))
    counted = result.deduplications[mix.name]["mix"]
    names, tokens = [group["group"] for group in counted], [round(int(group["tokens"]) / share) for group in counted]
    rule = mix.workflow(os.curdir).rule
    try:
        epochs = epochs_of(rule, names, tokens)
    except UsageError as exc:
        groups = [PlannedGroup(name, n) for name, n in zip(names, tokens, strict=True)]
        return PlannedMix(mix.name, share, rule.target, str(exc).removeprefix("mix: "), groups)
    groups = [
        PlannedGroup(name, n, round(e, 6), round(n * round(e, 6)))
        for name, n, e in zip(names, tokens, epochs, strict=True)
    ]
    return PlannedMix(mix.name, share, rule.target, groups=groups)


def plan_sources(curation: Curation, settings: Mapping[str, Any], may_load_models: bool = True) -> PlannedMix | None:
    """Return what weights and numbers of sources make; None if every document of theirs is written once."""
    source_mix = curation.mix()
    if source_mix is None:
        return None
    if not may_load_models and (model := _model(curation.steps)):
        return PlannedMix(_SOURCES, 0.0, reason=f"{model} uses a model; tamis plan runs it on a sample")
    files = curation.files()
    bounds = list(pairwise([*source_mix.first_files, len(files.paths)]))
    sizes = [shipped_table.decoded_bytes(files.paths[a:b], files.sizes[a:b]) for a, b in bounds]
    with tempfile.TemporaryDirectory(prefix="tamis-plan-") as folder, without_profiles():
        try:
            trials, shares = list(curation.sources), [1.0] * len(sizes)
            if sum(sizes) > _SAMPLE_BYTES:
                for k, (a, b) in enumerate(bounds):
                    if a == b:  # all of its files are those of sources before it
                        trials[k] = replace(trials[k], path=trials[0].path)
                        continue
                    part = _SAMPLE_BYTES * sizes[k] // sum(sizes)
                    trials[k], shares[k] = _sampled_source(curation, k, folder, files.paths[a:b], sizes[k], part)
            share = sum(s * size for s, size in zip(shares, sizes, strict=True)) / max(1, sum(sizes))
            steps = [_scaled(step, share) for step in curation.steps if not isinstance(step, Tokenize)]
            trial = Curation(steps, sources=trials, **_of_trial(curation, folder))
            result = _run(trial, settings)
        except TamisError as exc:
            return PlannedMix(_SOURCES, 0.0, reason=str(exc))
    assert result.run is not None
    counts = tokens_by_source((book.metrics for book in result.run.ledger.stages), len(trials))
    groups = [
        PlannedGroup(source.path, round(left / s), round(written / left, 6) if left else 0.0, round(written / s))
        for source, s, (left, written) in zip(curation.sources, shares, counts, strict=True)
    ]
    return PlannedMix(_SOURCES, share, groups=groups)


def _model(steps: Sequence[Step]) -> str:
    """Return the name of the first step that uses a model on a device, "" if none does."""
    plain = (step for step in steps if isinstance(step, ProcessingStage))
    return next((step.name for step in plain if step.resources.requires_gpu), "")


def _sampled_source(
    curation: Curation, number: int, folder: str, paths: list[str], n_bytes: int, sample_bytes: int
) -> tuple[Source, float]:
    """Return a source that has the beginnings of some of these files, and their share."""
    source, target = curation.sources[number], os.path.join(folder, f"source-{number}")
    os.mkdir(target)
    share = _copy_heads(curation, target, paths, n_bytes, sample_bytes)[1]
    most = source.max_documents
    return replace(source, path=target, max_documents=None if most is None else max(1, round(most * share))), share


def _sample(curation: Curation, folder: str, paths: list[str], total_bytes: int) -> tuple[list[str], float]:
    """Return files to try the steps on, and their share of the input."""
    if total_bytes <= _SAMPLE_BYTES:
        return list(paths), 1.0
    target = os.path.join(folder, "in")
    os.mkdir(target)
    return _copy_heads(curation, target, paths, total_bytes, _SAMPLE_BYTES)


def _copy_heads(
    curation: Curation, target: str, paths: list[str], total_bytes: int, sample_bytes: int
) -> tuple[list[str], float]:
    """Copy the beginnings of some files into a folder; return the copies and their share of all the files."""
    reader = Pipeline("sample", stages=[curation.source()])
    copies = copy_heads(reader, spread(paths, _FILES), target, sample_bytes)
    n_bytes = sum(copied["n_bytes"] for copied in copies)
    return [copied["copy"] for copied in copies], min(1.0, n_bytes / max(1, total_bytes))


def _scaled(step: Any, share: float) -> Any:
    """Return a step for a share of the documents: a limit in documents, tokens or bytes is as much smaller."""
    if isinstance(step, Mix):
        target = step.workflow(os.curdir).rule.target
        return step if target is None else replace(step, target=max(1, round(target * share)))
    if not isinstance(step, KeepTop):
        return copy.deepcopy(step)
    limits = {name: getattr(step, name) for name in ("documents", "tokens", "bytes")}
    smaller = {name: max(1, round(n * share)) for name, n in limits.items() if n is not None}
    return replace(step, **smaller)


def _plain(mix: Mix) -> Mix:
    """Return a step that counts the tokens of each group, and writes every document once."""
    return Mix(mix.by, epochs={"*": 1}, tokens_field=mix.tokens_field, text_field=mix.text_field, name=mix.name)


def _of_trial(curation: Curation, folder: str) -> dict[str, Any]:
    """Return the options of a curation that is run only to count."""
    return {"output_path": os.path.join(folder, "out"), "name": curation.name, "file_type": "jsonl", "card": False}


def _run(trial: Curation, settings: Mapping[str, Any]) -> CurationResult:
    used = {name: settings[name] for name in ("memory", "workers") if settings.get(name) is not None}
    return trial.run(progress=False, count_caller=True, alerts="off", no_samples=True, **used)
