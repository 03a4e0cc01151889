"""Compare two runs over the same input: documents whose verdict changed, the rules involved, and different settings.

Reads the run directories only. A document is identified by the path of its input file and its offset, so the runs must
have read the same files; documents of files that only one run read are excluded and counted, and a document that one of
them did not read, quarantined or may have left out of its sample is reported as such.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tamis._lazy import pa, pc
from tamis.engine.run.identity import comparable, differences, shown
from tamis.engine.run_record import RunRecord
from tamis.engine.schema import RecordedRule, StageDescription
from tamis.errors import UsageError
from tamis.files import read_json
from tamis.observe.document_status import DocumentStatus
from tamis.observe.gpu_figures import figures
from tamis.observe.series import SeriesError, open_series
from tamis.observe.snapshot import read_record
from tamis.observe.verdicts import input_paths, read_plan, run_folder, verdict_tables
from tamis.stores.urls import path_text

_EXAMPLES = 3
_COUNTS = ("records", "written", "dropped", "duplicates", "quarantined", "read_bytes", "written_bytes")


@dataclass
class Change:
    """Documents whose verdict was `before` in the first run and is `after` in the second."""

    before: str
    after: str
    n_documents: int
    n_bytes: int
    examples: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Figure:
    """One figure of both runs (of their records, and gpu_figures.py); None where a run does not have it."""

    name: str
    before: float | None
    after: float | None


@dataclass
class RunDiff:
    settings: list[str]  # what is set differently, as sentences
    changes: list[Change]
    n_same: int  # dropped by the same rule in both
    only_first: list[str]  # input files that one of the runs did not read
    only_second: list[str]
    figures: list[Figure] = field(default_factory=list)  # of how the runs went
    remarks: list[str] = field(default_factory=list)  # on runs that did not see all documents, as sentences


def compare(first: str, second: str) -> RunDiff:
    """Compare the second run with the first; raise UsageError if they have no input file in common."""
    folders = [run_folder(first), run_folder(second)]
    paths = [input_paths(folder) for folder in folders]
    common = sorted(set(paths[0]) & set(paths[1]))
    if not common:
        raise UsageError(f"{first} and {second} read no file in common; runs are compared by the places of documents")
    number = {path: i for i, path in enumerate(common)}
    sides, runs = [], [DocumentStatus(f, names, number) for f, names in zip(folders, paths, strict=True)]
    for folder, names, suffix in zip(folders, paths, ("_before", "_after"), strict=True):
        ours = pa.array([number.get(p) for p in names], pa.int32())
        parts = [_renumbered(t, ours, suffix) for t in verdict_tables(folder, None)]
        sides.append(pa.concat_tables(parts) if parts else _renumbered(_nothing(), ours, suffix))
    joined = sides[0].join(sides[1], keys=["file", "offset"], join_type="full outer", use_threads=False)
    joined = joined.combine_chunks()
    before, after = (_states(joined, f"rule_{side}", run) for side, run in zip(("before", "after"), runs, strict=True))
    moved = pc.not_equal(before, after)
    names = pc.binary_join_element_wise(before, after, pa.scalar("\0", pa.large_string()))
    size = pc.coalesce(joined["bytes_before"], joined["bytes_after"], pa.scalar(0, pa.int64()))
    label = pc.coalesce(joined["id_before"], joined["id_after"], _places(joined, common))
    table = pa.table({"change": names, "bytes": size, "label": label}).filter(moved)
    changes = []
    for change in pc.unique(table["change"]).to_pylist():
        mine = table.filter(pc.equal(table["change"], change))
        old, _, new = change.partition("\0")
        n_bytes = int(pc.sum(mine["bytes"]).as_py() or 0)
        changes.append(Change(old, new, len(mine), n_bytes, sorted(mine["label"].slice(0, _EXAMPLES).to_pylist())))
    changes.sort(key=lambda c: (-c.n_documents, c.before, c.after))
    return RunDiff(
        _all_changes(*folders),
        changes,
        len(joined) - len(table),
        sorted(set(paths[0]) - set(paths[1])),
        sorted(set(paths[1]) - set(paths[0])),
        run_figures(*folders),
        [
            f"the {which} run {run.remark()}"
            for which, run in zip(("first", "second"), runs, strict=True)
            if run.remark()
        ],
    )


def _states(joined: Any, column: str, run: DocumentStatus) -> Any:
    """Return the rule that dropped each document or, for a document without a verdict, its state."""
    rules = joined[column].combine_chunks()
    missing = rules.is_null()
    places = joined.select(["file", "offset"]).filter(missing)
    states = run.states(*(places[name].to_numpy() for name in ("file", "offset")))
    return pc.replace_with_mask(rules, missing, pa.array(states.tolist(), rules.type))


def run_figures(first: Path, second: Path) -> list[Figure]:
    """Return figures on how the runs went.

    These are the figures of the whole runs, the seconds to the first output and, if there were GPUs, how busy and how
    full they were.
    """
    both = []
    for folder in (first, second):
        rows = _whole_run(read_record(folder, []))
        try:
            with open_series(folder) as series:
                rows |= figures(series.about)
        except SeriesError:  # its figures are lost, its verdicts are not
            pass
        both.append(rows)
    return [Figure(name, both[0].get(name), both[1].get(name)) for name in dict.fromkeys([*both[0], *both[1]])]


def _whole_run(record: RunRecord | None) -> dict[str, float]:
    """Return the figures of a whole run by name."""
    if record is None:
        return {}
    cost = record.cost()
    rows: dict[str, float] = {name: cost[name] for name in ("seconds", "peak_bytes", "mb_per_s")}
    if record.counts is not None:
        counts = {name: getattr(record.counts, name) for name in _COUNTS}
        rows |= {name: n for name, n in counts.items() if n is not None}
    return rows


def setting_changes(
    before: Sequence[StageDescription],
    after: Sequence[StageDescription],
    is_reported: Callable[[tuple[str, Any, Any]], bool] = lambda leaf: False,
) -> list[str]:
    """Return the settings that differ, value by value; if the stages themselves differ, only that.

    `is_reported`: whether a value (its name, before and after) is in the answer already.
    """
    before, after = comparable(before), comparable(after)
    if [s.stage for s in before] != [s.stage for s in after]:
        return differences(before, after)
    changes: dict[str, None] = {}
    for old, new in zip(before, after, strict=True):
        name = new.stage.rpartition(".")[2]
        for path, a, b in _leaves("", old.params, new.params):
            if not is_reported((path, a, b)):
                changes[f"{name}: {path} {shown(a)} -> {shown(b)}"] = None
        if old.source != new.source:
            changes[f"{name}: its source code changed"] = None
    return list(changes)


def _all_changes(first: Path, second: Path) -> list[str]:
    """Return what was set differently: limits of rules by the names that recipes have for them, then the rest."""
    plans = [read_plan(folder) for folder in (first, second)]
    limits = limit_changes(plans[0].rules, plans[1].rules)
    reported = {(change.limit, str(change.before), str(change.after)) for change in limits}
    identities = [_curation_identity(folder) for folder in (first, second)]
    stages = [_described(identity) or plan.stages for identity, plan in zip(identities, plans, strict=True)]
    sentences = [str(change) for change in limits]
    sentences += setting_changes(stages[0], stages[1], lambda leaf: tuple(map(str, leaf)) in reported)
    for part in ("deduplications", "writing"):
        for path, a, b in _leaves(part, identities[0].get(part, {}), identities[1].get(part, {})):
            sentences.append(f"{part}: {path} {shown(a)} -> {shown(b)}")
    return list(dict.fromkeys(sentences))


@dataclass(frozen=True)
class LimitChange:
    """A limit of a rule that two runs set differently; None in a run without it."""

    stage: str
    rule: str
    limit: str
    parameter: str
    before: Any
    after: Any

    def __str__(self) -> str:
        stage = f" (stage {self.stage})" if self.stage != self.rule else ""
        return f"{self.rule}: {self.parameter} {self.before} -> {self.after}{stage}"


def limit_changes(before: Sequence[RecordedRule], after: Sequence[RecordedRule]) -> list[LimitChange]:
    """Return the limits that differ between rules of the same stage and name."""
    earlier = {(rule.stage, rule.name): rule for rule in before if rule.name}
    changes = []
    for rule in after:
        old = earlier.get((rule.stage, rule.name))
        for limit in sorted({*old.limits, *rule.limits}) if old is not None else ():
            a, b = old.limits.get(limit) if old is not None else None, rule.limits.get(limit)
            if a != b:
                changes.append(LimitChange(rule.stage, rule.name, limit, rule.parameter(limit), a, b))
    return changes


def _curation_identity(folder: Path) -> dict[str, Any]:
    """Return the identity of a curation, whose last pass alone has a plan; empty for any other run."""
    record = read_json(str(folder / "curation.json")) or {}
    identity = record.get("identity")
    return identity if isinstance(identity, dict) else {}


def _described(identity: Mapping[str, Any]) -> list[StageDescription]:
    try:
        return [StageDescription(**stage) for stage in identity.get("stages", [])]
    except TypeError:
        return []  # of another version


def _leaves(path: str, a: Any, b: Any) -> list[tuple[str, Any, Any]]:
    """Return the differing values, each by its innermost name: stages may hold the same value under two names."""
    if isinstance(a, dict) and isinstance(b, dict):
        return [leaf for key in sorted({*a, *b}) for leaf in _leaves(str(key), a.get(key), b.get(key))]
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        return [leaf for x, y in zip(a, b, strict=True) for leaf in _leaves(path, x, y)]
    return [] if a == b else [(path, a, b)]


def _nothing() -> Any:
    text = pa.large_string()
    kinds = {"file": pa.int32(), "offset": pa.int64(), "id": text, "rule": text, "bytes": pa.int64()}
    return pa.schema(kinds).empty_table()


def _renumbered(table: Any, ours: Any, suffix: str) -> Any:
    """Return rows of files that both runs read, with the number of the file among those."""
    table = table.filter(pc.greater_equal(table["file"], 0))
    file = ours.take(table["file"].combine_chunks()) if len(table) else pa.array([], pa.int32())
    rows = pa.table(
        {
            "file": file,
            "offset": table["offset"],
            f"id{suffix}": table["id"],
            f"rule{suffix}": table["rule"],
            f"bytes{suffix}": table["bytes"],
        }
    )
    return rows.filter(pc.is_valid(rows["file"]))


def _places(joined: Any, common: list[str]) -> Any:
    names = pa.array([path_text(p) for p in common], pa.large_string()).take(joined["file"].combine_chunks())
    return pc.binary_join_element_wise(
        names, joined["offset"].cast(pa.large_string()), pa.scalar(":", pa.large_string())
    )
