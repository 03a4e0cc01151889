"""The effect of another limit: which dropped documents would pass its rule, and which kept ones it would drop.

No text is read.

Dropped documents: from the verdicts, exactly. Kept ones: from their scores, two bytes each
(formats/scratch/score_file.py); documents whose code leaves it open are counted apart, so that both ends of the answer
are certain.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from tamis.engine.schema import FileKind
from tamis.errors import FormatError, UsageError
from tamis.formats.scratch.score_file import MISSING, ScoreTable, ends_of, read_scores
from tamis.observe.commits import Commit, commits
from tamis.observe.verdicts import (
    AT_LEAST,
    AT_MOST,
    PlannedRule,
    Sides,
    holds,
    input_paths,
    is_number,
    plain_json,
    rules_of,
    run_folder,
    side_of_name,
    verdict_tables,
)

Array = np.ndarray[Any, Any]
_LANGUAGE = re.compile(r"\[([0-9]+(?:\.[0-9]*)?(?:e-?[0-9]+)?), '([^']*)'\]")  # the score of FastTextLangId


@dataclass(frozen=True)
class Rethreshold:
    """The effect of another limit of one rule. Bytes are those of the input records."""

    rule: str
    name: str
    old: float
    new: float
    n_dropped: int  # by this rule, with the old limit
    n_back: int  # of these, documents that would pass this rule with the new one
    dropped_bytes: int = 0
    back_bytes: int = 0
    n_written: int | None = None  # documents in the output with a score of this rule; None: their scores are not stored
    n_lost: int = 0  # of these, documents that the rule would drop with the new limit, at least
    n_unsure: int = 0  # and documents so close to the new limit that their stored score leaves it open
    lost_bytes: int = 0
    unsure_bytes: int = 0
    later_rules: list[str] | None = None  # those that follow: they have not seen the `n_back`. None: not recorded
    parameter: str = ""  # what a recipe calls the limit
    stage: str = ""


@dataclass(frozen=True)
class RuleLimits:
    """When a rule keeps a score: inside its limits, or outside of them."""

    limits: dict[str, float]
    sides: Sides
    inverted: bool = False

    def keeps(self, value: float) -> bool:
        inside = all(holds(self.sides[n], limit, value) for n, limit in self.limits.items())
        return inside != self.inverted

    @property
    def ends(self) -> tuple[float, float]:
        least = max((x for n, x in self.limits.items() if self.sides[n] == AT_LEAST), default=-np.inf)
        return least, min((x for n, x in self.limits.items() if self.sides[n] == AT_MOST), default=np.inf)

    def kept_part(self, low: Array, high: Array) -> tuple[Array, Array]:
        """Return the intervals of documents that this rule kept, without what it would have dropped of them."""
        least, most = self.ends
        if not self.inverted:
            return np.maximum(low, least), np.minimum(high, most)
        if least == -np.inf:
            return np.maximum(low, np.nextafter(most, np.inf)), high
        return (low, np.minimum(high, np.nextafter(least, -np.inf))) if most == np.inf else (low, high)

    def keep_all(self, low: Array, high: Array) -> tuple[Array, Array]:
        """Return, for each interval, whether everything in it stays, and whether something does."""
        least, most = self.ends
        within, touching = (low >= least) & (high <= most), (high >= least) & (low <= most)
        return (~touching, ~within) if self.inverted else (within, touching)


def rethreshold(output: str, rule: str, name: str | None, new: float) -> Rethreshold:
    """Judge dropped documents at another limit. `rule`: its name, or STAGE:NAME if several stages have it.

    `name`: which of its limits, the first if none.
    """
    if not math.isfinite(new):
        raise UsageError(f"a limit is a finite number, got {new}; give {rule} one that documents may have")
    folder = run_folder(output)
    planned_rules = rules_of(folder) or ()
    planned = _planned_rule(planned_rules, rule)
    dropped, limits, stage = _dropped(folder, *((planned.name, planned.stage) if planned is not None else (rule, None)))
    if planned is None and not dropped:
        names = _rule_names(folder, planned_rules)
        raise UsageError(f"no rule named {rule!r}; rules of this run: {', '.join(names) or 'none'}")
    limits = limits or (planned.limits if planned is not None else {})
    name = _limit_name(rule, name, limits, planned)
    before = _limits_of_run(planned, limits)
    after = replace(before, limits={**before.limits, name: new})
    back = _sizes_kept(dropped, limits, after)
    result = Rethreshold(
        rule,
        name,
        before.limits[name],
        new,
        len(dropped),
        len(back),
        sum(size for _, size in dropped),
        sum(back),
        later_rules=_later_rules(planned_rules, planned, stage),
        parameter=planned.parameter(name) if planned is not None else name,
        stage=stage or (planned.stage if planned is not None else ""),
    )
    return _with_kept(result, folder, planned, before, after) if planned is not None and planned.sides else result


def _sizes_kept(dropped: Sequence[tuple[Any, int]], limits: Mapping[str, Any], after: RuleLimits) -> list[int]:
    """Return the bytes of each dropped document that the rule keeps with the limits `after`."""
    numbers = [(_number(value, limits), size) for value, size in dropped]
    return [size for value, size in numbers if value is not None and after.keeps(value)]


Position = tuple[str, int]
"""A document: its input file, and its position there."""


def passing(output: str, result: Rethreshold) -> list[Position]:
    """Return the documents that would pass the rule with the new limit (`Rethreshold.n_back`)."""
    folder = run_folder(output)
    planned = _planned_rule(rules_of(folder) or (), result.rule)
    name, stage = (planned.name, planned.stage) if planned is not None else (result.rule, None)
    paths, positions = input_paths(folder), []
    limits = planned.limits if planned is not None else {}
    before = _limits_of_run(planned, limits or {result.name: result.old})
    after = replace(before, limits={**before.limits, result.name: result.new})
    for table in verdict_tables(folder, ["stage", "rule", "value", "file", "offset"]):
        for row in table.to_pylist():
            if row["rule"] != name or stage not in (None, row["stage"]):
                continue
            value = _number(plain_json(row["value"]), limits)
            if value is not None and after.keeps(value) and 0 <= row["file"] < len(paths):
                positions.append((paths[row["file"]], int(row["offset"])))
    return positions


def find_limit(output: str, name: str) -> tuple[str, str | None]:
    """Return the rule (as `rethreshold` takes it) and the limit that a name refers to.

    `name`: RULE, STAGE:RULE, RULE.LIMIT, or what a recipe calls a limit, PARAMETER or STEP.PARAMETER.
    """
    rules = rules_of(run_folder(output)) or ()
    if any(name in (r.name, f"{r.stage}:{r.name}") for r in rules):
        return name, None
    head, _, limit = name.rpartition(".")
    if any(head in (r.name, f"{r.stage}:{r.name}") and limit in r.limits for r in rules):
        return head, limit
    set_by = [(r, n) for r in rules for n in r.sides if name in (p := r.parameter(n), f"{r.stage}.{p}")]
    if len(set_by) > 1:
        raise UsageError(
            f"{name} is the limit of several rules: say {' or '.join(f'{r.stage}:{r.name}' for r, _ in set_by)}"
        )
    if set_by:
        rule, limit = set_by[0]
        return f"{rule.stage}:{rule.name}", limit
    return (head, limit) if head else (name, None)


def _planned_rule(planned_rules: Iterable[PlannedRule], rule: str) -> PlannedRule | None:
    """Return the rule of this name (or STAGE:NAME) in the plan of the run, or None."""
    matching = [r for r in planned_rules if r.name and rule in (r.name, f"{r.stage}:{r.name}")]
    if len(matching) > 1:
        raise UsageError(
            f"several stages have a rule {rule!r}: say {' or '.join(f'{r.stage}:{r.name}' for r in matching)}"
        )
    return matching[0] if matching else None


def _later_rules(
    planned_rules: Sequence[PlannedRule], planned: PlannedRule | None, stage: str | None
) -> list[str] | None:
    """Return the rules (and stages without) that follow a rule, or its stage; None if the order was not recorded."""
    positions = [i for i, r in enumerate(planned_rules) if r == planned or (planned is None and r.stage == stage)]
    return [r.name or r.stage for r in planned_rules[positions[-1] + 1 :]] if positions else None


def _rule_names(folder: Path, planned_rules: Iterable[PlannedRule]) -> list[str]:
    """Return the names of all rules in the plan and in the verdicts."""
    noted = {r for table in verdict_tables(folder, ["rule"]) for r in table["rule"].to_pylist()}
    return sorted(noted | {r.name for r in planned_rules if r.name})


def _limit_name(rule: str, name: str | None, limits: Mapping[str, Any], planned: PlannedRule | None) -> str:
    """Return the name of the limit to change: `name`, or that of the first number among the limits."""
    name = name or next((n for n, limit in limits.items() if is_number(limit)), None)
    if name is None or not is_number(limits.get(name)):
        raise UsageError(f"rule {rule!r} has no limit named {name!r}; it has {', '.join(limits) or 'none'}")
    if planned is not None and planned.name and name not in planned.sides:
        raise UsageError(
            f"rule {rule!r} does not compare its score with {name!r}: what another value would do is not known"
        )
    return name


def _limits_of_run(planned: PlannedRule | None, limits: Mapping[str, Any]) -> RuleLimits:
    """Return the limits that the run used; without a planned rule, their sides follow from their names."""
    sides = planned.sides if planned is not None and planned.sides else {n: side_of_name(n) for n in limits}
    bounds = {n: float(x) for n, x in limits.items() if n in sides and is_number(x)}
    return RuleLimits(bounds, sides, planned is not None and planned.inverted)


def _number(value: Any, limits: Mapping[str, Any]) -> float | None:
    """Return the number that the limits of a rule are compared with.

    Return None if another limit would not bring the document back.

    >>> _number("[0.61, 'en']", {"lang": "en"}), _number("[0.61, 'fr']", {"lang": "en"})
    (0.61, None)
    >>> _number("[0.61, 'fr']", {"lang": None})
    0.61
    """
    if is_number(value):
        return float(value)
    match = _LANGUAGE.fullmatch(value) if isinstance(value, str) else None
    if match is None or "lang" not in limits:
        return None
    language, detected = str(limits["lang"] or "").casefold(), match[2].casefold()
    same = not language or detected == language or ("_" not in language and detected.partition("_")[0] == language)
    return float(match[1]) if same else None


def _dropped(folder: Path, rule: str, stage: str | None) -> tuple[list[tuple[Any, int]], dict[str, Any], str | None]:
    """Return the value and bytes of every document that a rule dropped, its limits then, and its stage."""
    dropped: list[tuple[Any, int]] = []
    label = stage
    limits: dict[str, Any] = {}
    for table in verdict_tables(folder, ["stage", "rule", "value", "threshold", "bytes"]):
        for row in table.to_pylist():
            if row["rule"] == rule and stage in (None, row["stage"]):
                threshold = plain_json(row["threshold"]) if not limits else None
                limits = threshold if isinstance(threshold, dict) else limits
                dropped.append((plain_json(row["value"]), int(row["bytes"] or 0)))
                label = row["stage"]
    return dropped, limits, label


def _with_kept(
    result: Rethreshold, folder: Path, rule: PlannedRule, before: RuleLimits, after: RuleLimits
) -> Rethreshold:
    n = n_lost = n_unsure = lost_bytes = unsure_bytes = 0
    if not (folder / "scores").is_dir():
        return result
    for table, codes, is_whole in _scores_of(folder, rule):
        low, high = before.kept_part(*ends_of(codes))
        if is_whole:
            low, high = np.ceil(low), np.floor(high)
        stays, some = after.keep_all(low, high)  # NaN is never inside
        lost, unsure = ~some, some & ~stays
        n, n_lost, n_unsure = n + len(codes), n_lost + int(lost.sum()), n_unsure + int(unsure.sum())
        lost_bytes += int(table.n_bytes[lost].sum())
        unsure_bytes += int(table.n_bytes[unsure].sum())
    return replace(
        result, n_written=n, n_lost=n_lost, n_unsure=n_unsure, lost_bytes=lost_bytes, unsure_bytes=unsure_bytes
    )


def _scores_of(folder: Path, rule: PlannedRule) -> Iterator[tuple[ScoreTable, Array, bool]]:
    """Yield the tables of the documents that were written, with the codes of one rule."""
    files = (
        (folder / "scores" / file.name, commit) for commit in commits(folder) for file in commit.of(FileKind.SCORES)
    )
    # Rules that only an earlier pass of a curation applied, without what later ones dropped (curation/scores.py).
    remembered = ((path, None) for path in sorted((folder / "remembered_scores").glob("*.bin")))
    for path, commit in chain(files, remembered):
        table = read_table(path, {(rule.stage, rule.score)})
        for key, codes in table.codes.items():
            keep = codes != MISSING
            if commit is not None and not table.is_last:
                keep &= ~_dropped_later(folder, commit, table)
            yield ScoreTable(table.file[keep], table.offset[keep], table.n_bytes[keep]), codes[keep], key.is_whole


def read_table(path: Path, rules: set[tuple[str, str]] | None = None) -> ScoreTable:
    try:
        return read_scores(str(path), rules)
    except FormatError as exc:
        raise UsageError(f"{exc}; the run directory is damaged") from None


def _dropped_later(folder: Path, commit: Commit, table: ScoreTable) -> Array:
    """Return a mask of the documents of a table that a later segment dropped.

    These are the documents that some verdict of their partition names.
    """
    import pyarrow.parquet as pq

    later: set[tuple[int, int]] = set()
    for file in commit.of(FileKind.VERDICTS):
        rows = pq.ParquetFile(folder / "verdicts" / file.name).read(columns=["file", "offset"], use_threads=False)
        later |= set(zip(rows["file"].to_pylist(), rows["offset"].to_pylist(), strict=True))
    pairs = zip(table.file.tolist(), table.offset.tolist(), strict=True)
    return np.fromiter((p in later for p in pairs), bool, len(table))
