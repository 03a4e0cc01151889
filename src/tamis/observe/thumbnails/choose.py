"""Choose the images of a run that are shown: some that were kept, and some that each rule dropped.

Bounded, whatever the run holds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from tamis._dataclasses import dataclass
from tamis._lazy import pa
from tamis.errors import TamisError
from tamis.observe.verdicts import input_paths, read_plan
from tamis.stores.opening import open_arrow
from tamis.stores.run_locations import default_local_dir, output_of_run_dir
from tamis.stores.urls import is_bucket, split_s3

MAX_KEPT = 24
MAX_PER_RULE = 8
MAX_RULES = 16
_MAX_TARS = 6
_MAX_TABLES = 32
MAX_ROWS = 16_384  # of one table that are looked at
_ROWS_AT_ONCE = 1024
_COLUMNS = ("file", "offset", "id", "stage", "rule", "value")
_READER = "tamis.stages.image.io.image_reader."
T = TypeVar("T")


class ChosenImage(NamedTuple):
    """An image by its file and the number of its row there; `partner`: the one it was found to repeat."""

    path: str
    row: int
    name: str = ""
    value: str = ""
    partner: tuple[str, int] | None = None


@dataclass
class Sheet:
    """Images of one rule ("": those that were kept)."""

    stage: str = ""
    rule: str = ""
    images: list[ChosenImage] = field(default_factory=list)


def is_about_images(folder: Path, reader: str = _READER) -> bool:
    """Return True if a stage in the plan of a run is a reader of images, or the given reader."""
    try:
        return any(stage.stage.startswith(reader) for stage in read_plan(folder).stages)
    except TamisError:
        return False


def choose(folder: Path) -> list[Sheet]:
    """Return the sheets of the run directory `folder`: kept ones first, then rule by rule as they are met."""
    try:
        paths = input_paths(folder)
    except TamisError:
        paths = []
    sheets = {("", ""): list(_kept(outputs(folder, ".tar"))), **by_rule(_dropped(folder, paths))}
    return [Sheet(*key, images) for key, images in sheets.items() if images]


def spread(items: Sequence[T], n: int) -> list[T]:
    """Return at most `n` of the items, evenly spread.

    >>> spread("abcdefgh", 3), spread("ab", 3)
    (['a', 'c', 'f'], ['a', 'b'])
    """
    return list(items) if len(items) <= n else [items[i * len(items) // n] for i in range(n)]


def outputs(folder: Path, suffix: str) -> list[str]:
    """Return the output files of the run directory `folder`, in order; those in a bucket if the output is there."""
    output = Path(output_of_run_dir(folder))
    try:
        stages = read_plan(folder).stages
        places = {v for stage in stages for v in stage.params.values() if isinstance(v, str)}
    except TamisError:
        places = set()
    for url in places:
        if is_bucket(url) and default_local_dir(url) == str(output):
            return _in_bucket(url, suffix)
    return sorted(str(p) for p in output.glob(f"*{suffix}") if p.is_file())


def _in_bucket(url: str, suffix: str) -> list[str]:
    from tamis.stores.s3 import Bucket

    name, prefix = split_s3(url)
    bucket = Bucket(name)
    try:
        keys = [paths.key for paths in islice(bucket.objects(f"{prefix}/part-"), MAX_ROWS)]
    except OSError:
        return []
    return sorted(bucket.url(key) for key in keys if key.endswith(suffix))


def _kept(files: Sequence[str]) -> Iterator[ChosenImage]:
    tars = spread(files, _MAX_TARS)
    for path in tars:
        for row in range(-(-MAX_KEPT // max(1, len(tars)))):
            yield ChosenImage(path, row)


def first_rows(path: str | Path, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield the first rows of a Parquet file, a few at a time; nothing if it cannot be read.

    A table of a run may hold millions of rows.
    """
    import pyarrow.parquet as pq

    try:
        with open_arrow(path) as source, pq.ParquetFile(source, pre_buffer=False) as file:
            n_rows = [name for name in file.schema_arrow.names if name in columns]
            for number, batch in enumerate(file.iter_batches(_ROWS_AT_ONCE, columns=n_rows)):
                if number * _ROWS_AT_ONCE >= MAX_ROWS:
                    return
                yield from batch.to_pylist()
    except (OSError, pa.ArrowException):
        return


def by_rule(found: Iterable[tuple[tuple[str, str], T]]) -> dict[tuple[str, str], list[T]]:
    """Group by stage and rule: the first few of each of the first rules."""
    some: dict[tuple[str, str], list[T]] = {}
    for key, one in found:
        if (key in some or len(some) < MAX_RULES) and len(some.setdefault(key, [])) < MAX_PER_RULE:
            some[key].append(one)
    return some


def _dropped(folder: Path, paths: list[str]) -> Iterator[tuple[tuple[str, str], ChosenImage]]:
    for path in spread(sorted((folder / "verdicts").glob("*.parquet")), _MAX_TABLES):
        for row in first_rows(path, _COLUMNS):
            if len(row) < len(_COLUMNS):
                break  # no table of verdicts
            file = row["file"]
            if isinstance(file, int) and 0 <= file < len(paths):
                chosen = ChosenImage(paths[file], int(row["offset"]), str(row["id"] or ""), *_value(row["value"]))
                yield (str(row["stage"]), str(row["rule"])), chosen


def _value(stored: Any) -> tuple[str, tuple[str, int] | None]:
    """Return the measured value, and the image that it names as the one that was kept instead."""
    text = "" if stored is None else str(stored)
    try:
        plain = json.loads(text)
    except ValueError:
        return text, None
    if isinstance(plain, dict) and isinstance(plain.get("kept"), str):
        path, _, row = plain["kept"].rpartition(":")
        alike = plain.get("similarity")
        shown = "" if alike is None else f"similarity {alike}"
        return shown, (path, int(row)) if row.isdigit() else None
    return f"{plain:.4g}" if isinstance(plain, float) else text, None
