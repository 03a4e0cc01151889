"""Reading why documents went, from the verdicts that a run stored. Reads the run directory only, never the texts.

Covers: finding the verdict on one document; the rules of the run. What another threshold would do:
observe/thresholds.py.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import field
from pathlib import Path
from typing import Any, NamedTuple

from tamis._dataclasses import dataclass
from tamis._lazy import pa, pc
from tamis.engine import schema
from tamis.engine.schema import RecordedRule, RunPlan
from tamis.errors import UsageError
from tamis.stores.run_locations import fetch_run_dir, output_of_run_dir, run_dir_of

AT_LEAST, AT_MOST = "at least", "at most"
_OFFSET = re.compile("[0-9]{1,18}")
Sides = dict[str, str]
"""The direction of each limit, by name: AT_LEAST or AT_MOST."""


class Verdict(NamedTuple):
    """Why one document was dropped."""

    path: str  # its input file
    offset: int
    id: str | None
    stage: str
    rule: str
    value: Any
    threshold: Any

    def smallest_change(self, rule: PlannedRule | None = None) -> ThresholdChange | None:
        """Return the smallest change of a threshold with which its rule keeps the document.

        Return None if the rule is not a comparison.
        """
        named = rule is not None and bool(rule.name)  # it says itself which way its limits count
        if not is_number(self.value) or not isinstance(self.threshold, dict) or (rule is not None and rule.inverted):
            return None
        for name, limit in self.threshold.items():
            side = rule.sides.get(name) if rule is not None and named else side_of_name(name)
            if side is not None and is_number(limit) and not holds(side, limit, self.value):
                text = rule.recipe_text(name) if rule is not None else f"{name}: {{}}"
                return ThresholdChange(self.stage, name, side, limit, self.value, text)
        return None


class ThresholdChange(NamedTuple):
    """Another value of a limit, with which its rule keeps a document."""

    stage: str
    limit: str
    side: str  # AT_LEAST or AT_MOST
    before: float
    after: float
    text: str  # how a recipe sets the limit, with {} for the value

    @property
    def parameter(self) -> str:
        return self.text.partition(":")[0]

    @property
    def is_switch(self) -> bool:
        """True if the parameter is no limit, but switches the rule off."""
        return "{}" not in self.text

    @property
    def rounded(self) -> str:
        """The new value in three digits, rounded away from what drops the document.

        >>> change = ThresholdChange("web", "minimum", AT_LEAST, 0.12, 0.0909090909, "line_punct_thr: {}")
        >>> change.rounded, change.in_recipe
        ('0.0909', 'line_punct_thr: 0.0909')
        >>> ThresholdChange("web", "maximum", AT_MOST, 10, 12345, "max_words: {}").rounded
        '12345'
        """
        if isinstance(self.after, int) or float(self.after).is_integer() or not math.isfinite(self.after):
            return f"{self.after:.0f}" if math.isfinite(self.after) else repr(self.after)
        step = 10.0 ** (math.floor(math.log10(abs(self.after))) - 2)
        steps = math.floor(self.after / step) if self.side == AT_LEAST else math.ceil(self.after / step)
        short = float(f"{steps * step:.3g}")
        return repr(short if holds(self.side, short, self.after) else self.after)

    @property
    def in_recipe(self) -> str:
        """The parameter and its new value, as a recipe has them."""
        return self.text.replace("{}", self.rounded)

    def __str__(self) -> str:
        return f"{self.limit}={self.after!r} (it is {self.before!r})"


@dataclass(frozen=True)
class PlannedRule:
    """A rule of the run as its plan has it.

    `name` "": a stage that names no rules. `sides`: which way each limit counts.
    """

    stage: str
    name: str = ""
    score: str = ""
    limits: dict[str, Any] = field(default_factory=dict)
    sides: Sides = field(default_factory=dict)
    inverted: bool = False
    recorded: RecordedRule = field(default_factory=lambda: RecordedRule(""))

    @property
    def meaning(self) -> str:
        """The meaning of the score, in words."""
        return self.recorded.meaning

    def recipe_text(self, limit: str) -> str:
        return self.recorded.recipe_text(limit)

    def parameter(self, limit: str) -> str:
        """Return the name that a recipe has for a limit."""
        return self.recorded.parameter(limit)


def read_plan(folder: Path) -> RunPlan:
    """Return the plan of a run directory: its stages, rules and inputs; raise UsageError if it cannot be read."""
    try:
        return schema.read_plan(folder / "plan.json")
    except (OSError, ValueError, RecursionError) as exc:
        reason = type(exc).__name__
    raise UsageError(f"{folder / 'plan.json'} cannot be read ({reason}); the run directory is damaged")


def rules_of(folder: Path) -> list[PlannedRule] | None:
    """Return the rules that may drop documents, in order; None if the plan cannot be read."""
    try:
        return [_rule(r) for r in read_plan(folder).rules]
    except UsageError:
        return None


def _rule(rule: RecordedRule) -> PlannedRule:
    low, high = rule.at_least, rule.at_most
    sides: Sides = {n: AT_LEAST if n == low else AT_MOST for n in rule.limits if n in (low, high)}
    return PlannedRule(rule.stage, rule.name, rule.score or rule.name, rule.limits, sides, rule.inverted, rule)


def not_asked(verdict: Verdict, rules: list[PlannedRule] | None) -> list[str] | None:
    """Return rules (and stages without) that follow the one that dropped a document: they did not see it.

    None: they were not recorded.
    """
    at = None if rules is None else _index(verdict, rules)
    return None if rules is None or at is None else [r.name or r.stage for r in rules[at + 1 :]]


def rule_of(verdict: Verdict, rules: list[PlannedRule] | None) -> PlannedRule | None:
    at = None if rules is None else _index(verdict, rules)
    return None if rules is None or at is None else rules[at]


def _index(verdict: Verdict, rules: list[PlannedRule]) -> int | None:
    mine = [i for i, r in enumerate(rules) if r.stage == verdict.stage]
    return next((i for i in mine if rules[i].name == verdict.rule), mine[-1] if mine else None)


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def holds(side: str, limit: float, value: float) -> bool:
    return value <= limit if side == AT_MOST else value >= limit


def side_of_name(name: str) -> str:
    """Guess the direction of a limit, for stages that record a limit without its direction."""
    return AT_MOST if name.startswith("max") else AT_LEAST


def run_folder(output: str) -> Path:
    """Return the run directory of an output folder (or the folder itself, if it is one)."""
    path = Path(fetch_run_dir(output))
    for folder in (Path(run_dir_of(path)), path):
        if (folder / "plan.json").exists():
            return folder
    raise UsageError(f"{output} holds no run of Tamis; give the output folder of a run")


def find(output: str, document: str) -> list[Verdict]:
    """Find verdicts on a document by its id or by `FILE:OFFSET` (FILE: the end of its path)."""
    folder = run_folder(output)
    paths = input_paths(folder)
    name, _, position = document.rpartition(":")
    offset = offset_of(position)
    file_numbers = matching_files(paths, name) if offset is not None else set()
    verdicts = []
    for table in verdict_tables(folder, None):
        for row in _matches(table, document, file_numbers, -1 if offset is None else offset):
            verdicts.append(_verdict(row, paths))
    return verdicts


def offset_of(text: str) -> int | None:
    """Parse an offset (or row); return None for any other text.

    >>> offset_of("120"), offset_of("²"), offset_of("١٢"), offset_of("1" * 30)
    (120, None, None, None)
    """
    return int(text) if _OFFSET.fullmatch(text) else None


def matching_files(paths: list[str], name: str) -> set[int]:
    """Return the numbers of the input files that a name matches: whole names before ends of names."""
    ends = {i for i, p in enumerate(paths) if name and p.endswith(name)}
    return {i for i in ends if paths[i] == name or paths[i].endswith("/" + name.lstrip("/"))} or ends


class OutputRow(NamedTuple):
    """A document in the output: the file, and its row."""

    path: str
    row: int


def find_written(output: str, document: str, id_field: str = "id") -> OutputRow | None:
    """Return the document with this id in the output, reading ids, not texts.

    Return None if there is none, or if the output is stored in a bucket.
    """
    for path, ids in _written_ids(output, id_field):
        if ids is not None and document in ids:
            return OutputRow(path, ids.index(document))
    return None


def lacks_ids(output: str) -> bool:
    """Return True if documents were written without ids, as tokens are."""
    from tamis.formats.hive import output_entries

    entries = output_entries(output_of_run_dir(run_folder(output)))
    has_files = any(entry.is_file() and not entry.name.endswith(".md") for _, entry in entries)
    return has_files and all(ids is None for _, ids in _written_ids(output, "id"))


def _written_ids(output: str, id_field: str) -> Iterator[tuple[str, list[str] | None]]:
    """Yield the files of the output that hold documents, each with their ids, or None if they have none."""
    from tamis.formats.hive import output_entries
    from tamis.formats.registry import TABLES, codecs_of, suffixes, unasked_formats
    from tamis.formats.whole_file import read_whole_file

    # What Tamis writes; other .json files in the folder are foreign.
    tables = [name for name in unasked_formats() if name in TABLES]
    data = tuple(suffix + codec for suffix in (".jsonl", *suffixes(*tables)) for codec in codecs_of(suffix))
    entries = [entry for _, entry in output_entries(output_of_run_dir(run_folder(output)))]
    for path in sorted(entry.path for entry in entries if entry.is_file() and entry.name.endswith(data)):
        batch = read_whole_file(path)
        name = next((n for n in (id_field, "image_id") if n in batch.get_columns()), None)
        yield path, None if name is None else [str(v) for v in batch.values(name)]


def verdict_tables(folder: Path, columns: list[str] | None) -> Iterator[Any]:
    from tamis.formats.parquet import format as parquet

    for path in sorted((folder / "verdicts").glob("*.parquet")):
        try:
            yield parquet.open_file(path).read(columns=columns, use_threads=False)
        except (pa.ArrowException, OSError) as exc:
            raise UsageError(f"{path} cannot be read: {exc}") from None


def _matches(table: Any, document: str, files: set[int], offset: int) -> list[dict[str, Any]]:
    mask = pc.fill_null(pc.equal(table["id"], document), False)
    if files:
        in_files = pc.is_in(table["file"], value_set=pa.array(sorted(files), pa.int32()))
        mask = pc.or_(mask, pc.and_(in_files, pc.equal(table["offset"], offset)))
    rows: list[dict[str, Any]] = table.filter(mask).to_pylist()
    return rows


def _verdict(row: dict[str, Any], paths: list[str]) -> Verdict:
    path = paths[row["file"]] if 0 <= row["file"] < len(paths) else "made during the run"
    return Verdict(
        path,
        row["offset"],
        row["id"],
        row["stage"],
        row["rule"],
        plain_json(row["value"]),
        plain_json(row["threshold"]),
    )


def plain_json(text: str | None) -> Any:
    try:
        return None if text is None else json.loads(text)
    except ValueError:
        return text


def input_paths(folder: Path) -> list[str]:
    """Return the paths of the input files, by their numbers."""
    return read_plan(folder).inputs.paths
