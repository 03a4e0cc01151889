"""Margins of kept documents: their stored scores compared with the limits of the rules."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tamis.engine.schema import FileKind
from tamis.formats.hive import name_in_output
from tamis.formats.scratch.score_file import MISSING, ScoreTable, ends_of
from tamis.observe.commits import Commit, commit_of, commits_at, written_row
from tamis.observe.thresholds import read_table
from tamis.observe.verdicts import AT_LEAST, PlannedRule, is_number, rules_of

Place = tuple[int, int]  # number of the input file, offset in it


@dataclass(frozen=True)
class Margin:
    """A limit that the document met. `low`, `high`: bounds of its score (equal where the stored code is exact)."""

    rule: str
    name: str
    limit: float
    side: str
    low: float
    high: float

    @property
    def distance(self) -> float:
        """Distance from the limit, as a share of it (of 1, where the limit is 0)."""
        near = self.low if self.side == AT_LEAST else self.high
        return abs(near - self.limit) / (abs(self.limit) or 1.0)


def margins_at(folder: Path, place: Place) -> list[Margin]:
    """Return the margins of the document at an input position, the closest first."""
    rules = {(r.stage, r.score): r for r in rules_of(folder) or () if r.sides and not r.inverted}
    margins: list[Margin] = []
    for table in (t for c in commits_at(folder, *place) for t in _tables(folder, c)):
        rows = np.flatnonzero((table.file == place[0]) & (table.offset == place[1]))
        for key, codes in table.codes.items() if len(rows) else ():
            rule, code = rules.get((key.stage, key.score)), codes[rows[:1]]
            if rule is not None and code[0] != MISSING:
                low, high = (float(e[0]) for e in ends_of(code))
                margins += _of_rule(rule, *((np.ceil(low), np.floor(high)) if key.is_whole else (low, high)))
    return sorted(set(margins), key=lambda m: m.distance)


def margins_of_row(folder: Path, path: str, row: int) -> list[Margin]:
    """Return the margins of the document in a row of an output file.

    Score files list documents in the order in which they were written.
    """
    written = written_row(folder, name_in_output(path), row)
    commit = commit_of(folder, written[0]) if written is not None else None
    if written is None or commit is None:
        return []
    name, row = written
    for file in commit.of(FileKind.OUTPUT):
        if file.name == name:
            break
        row += file.rows
    for table in (t for t in _tables(folder, commit) if t.is_last):
        if row < len(table):
            return margins_at(folder, (int(table.file[row]), int(table.offset[row])))
        row -= len(table)
    return []


def _tables(folder: Path, commit: Commit) -> Iterator[ScoreTable]:
    for file in commit.of(FileKind.SCORES):
        yield read_table(folder / "scores" / file.name)


def _of_rule(rule: PlannedRule, low: float, high: float) -> list[Margin]:
    return [
        Margin(rule.name, rule.parameter(name), float(rule.limits[name]), side, float(low), float(high))
        for name, side in rule.sides.items()
        if is_number(rule.limits.get(name)) and low == low
    ]
