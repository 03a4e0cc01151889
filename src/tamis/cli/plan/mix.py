"""The mix that a curation will write, for its plan: of the tokens of each group, how many, how often, or why not.

The steps before the mix are run on the beginnings of some input files, in a temporary folder: what is left of each
group there stands for the whole input. A small input is taken whole: then the mix is exact, but for documents that are
drawn.
"""

from __future__ import annotations

import copy
import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from tamis.cli.plan.trial import copy_heads, spread, without_profiles
from tamis.curation import Curation
from tamis.curation.mixing import is_plain
from tamis.curation.steps import Deduplication, KeepTop, Mix
from tamis.dedup.quantiles.mixing import epochs_of
from tamis.errors import TamisError, UsageError
from tamis.forecast import shipped_table
from tamis.pipeline import Pipeline

_SAMPLE_BYTES = 24_000_000
_FILES = 64
_SHOWN = 24


@dataclass(frozen=True)
class PlannedGroup:
    """The documents of a value. `tokens`: there will be, before the mix; `epochs`: how often they are written."""

    name: str
    tokens: int
    epochs: float | None = None

    @property
    def tokens_written(self) -> int:
        return round(self.tokens * (self.epochs or 0.0))


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
        groups = [asdict(group) | {"tokens_written": group.tokens_written} for group in self.groups]
        return asdict(self) | {"groups": groups, "is_feasible": not self.reason}

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


def plan_mix(curation: Curation, settings: Mapping[str, Any]) -> PlannedMix | None:
    """Return the mix of a curation; None if it mixes nothing. `settings`: of its run."""
    position = next((i for i, step in enumerate(curation.steps) if isinstance(step, Mix)), None)
    if position is None:
        return None
    mix = curation.steps[position]
    assert isinstance(mix, Mix)
    if not is_plain(curation.sources):
        return PlannedMix(mix.name, 0.0, reason="sources have weights or numbers of documents of their own")
    files = curation.files()
    total_bytes = shipped_table.decoded_bytes(files.paths, files.sizes)
    with tempfile.TemporaryDirectory(prefix="tamis-plan-") as folder, without_profiles():
        try:
            paths, share = _sample(curation, folder, files.paths, total_bytes)
            before = [_scaled(step, share) for step in curation.steps[:position]]
            counted = _tokens(curation, [*before, _plain(mix)], paths, folder, settings)
        except TamisError as exc:
            return PlannedMix(mix.name, 0.0, reason=str(exc))
    names, tokens = list(counted), [round(n / share) for n in counted.values()]
    rule = mix.workflow(os.curdir).rule
    try:
        epochs = epochs_of(rule, names, tokens)
    except UsageError as exc:
        groups = [PlannedGroup(name, n) for name, n in zip(names, tokens, strict=True)]
        return PlannedMix(mix.name, share, rule.target, str(exc).removeprefix("mix: "), groups)
    groups = [PlannedGroup(name, n, round(e, 6)) for name, n, e in zip(names, tokens, epochs, strict=True)]
    return PlannedMix(mix.name, share, rule.target, groups=groups)


def _sample(curation: Curation, folder: str, paths: list[str], total_bytes: int) -> tuple[list[str], float]:
    """Return files to try the steps on, and their share of the input."""
    if total_bytes <= _SAMPLE_BYTES:
        return list(paths), 1.0
    os.mkdir(os.path.join(folder, "in"))
    reader = Pipeline("sample", stages=[curation.source()])
    copies = copy_heads(reader, spread(paths, _FILES), os.path.join(folder, "in"), _SAMPLE_BYTES)
    n_bytes = sum(copied["n_bytes"] for copied in copies)
    return [copied["copy"] for copied in copies], min(1.0, n_bytes / max(1, total_bytes))


def _scaled(step: Any, share: float) -> Any:
    """Return a step for a share of the documents: a limit in documents, tokens or bytes is as much smaller."""
    if not isinstance(step, KeepTop):
        return copy.deepcopy(step)
    limits = {name: getattr(step, name) for name in ("documents", "tokens", "bytes")}
    smaller = {name: max(1, round(n * share)) for name, n in limits.items() if n is not None}
    return replace(step, **smaller)


def _plain(mix: Mix) -> Mix:
    """Return a step that counts the tokens of each group, and writes every document once."""
    return Mix(mix.by, epochs={"*": 1}, tokens_field=mix.tokens_field, text_field=mix.text_field, name=mix.name)


def _tokens(
    curation: Curation, steps: list[Any], paths: list[str], folder: str, settings: Mapping[str, Any]
) -> dict[str, int]:
    """Run steps and return the tokens of each group at the end of them."""
    trial = Curation(steps, paths, os.path.join(folder, "out"), name=curation.name, file_type="jsonl", card=False)
    used = {name: settings[name] for name in ("memory", "workers") if settings.get(name) is not None}
    result = trial.run(progress=False, count_caller=True, alerts="off", no_samples=True, **used)
    last = trial.steps[-1]
    assert isinstance(last, Deduplication)
    return {group["group"]: int(group["tokens"]) for group in result.deduplications[last.name]["mix"]}
