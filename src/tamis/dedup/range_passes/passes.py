"""The passes over ranges of keys, between those that make keys and the decision: engine runs like any other, resumed like any other."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tamis.dedup.planning import BYTES_PER_HASH, BYTES_PER_KEY
from tamis.dedup.range_passes import ranges
from tamis.dedup.solver_task import RangeResults
from tamis.errors import FormatError
from tamis.files import write_json
from tamis.pipeline import Pipeline

_LEAST_RANGES = 16  # of a column of keys, so that there is something for everybody


@dataclass
class Spreading:
    """`work`: the folder of the deduplication, which all nodes see. `room_bytes`: for the keys of one range, in a worker. `execute(pipeline, label)`
    runs a pass. Called by workflow.py."""

    name: str
    work: str
    n_documents: int
    room_bytes: int
    execute: Callable[[Pipeline, str], Any]

    def look(self, i: int, first: list[str], paths: list[str], bands: list[int]) -> RangeResults:
        """Folders of what was found in the record files of pass `i`: "equal" texts (in those of the `first` pass) and, where there are any, shared
        "bands". Equal texts are looked for once: with the first pass, or later where that one was decided in another way."""
        equal = self._found_in("equal", BYTES_PER_HASH)
        if ranges.not_found(f"{self._folder('equal', BYTES_PER_HASH)}-in", equal):
            self._pass("equal", first, [0], BYTES_PER_HASH)
        return RangeResults(equal, self._pass(f"bands-{i}", paths, bands, BYTES_PER_KEY, equal) if bands else None)

    def _ranges(self, columns: list[int], key_bytes: int) -> list[ranges.KeyRange]:
        return ranges.ranges_of(self.n_documents, columns, key_bytes, self.room_bytes, _LEAST_RANGES)

    def _folder(self, name: str, key_bytes: int) -> str:
        """Named after the number of ranges, too: a run that goes on with other memory or other workers must not find what was cut otherwise."""
        return os.path.join(self.work, f"ranges-{name}-{len(self._ranges([0], key_bytes))}")

    def _found_in(self, name: str, key_bytes: int) -> str:
        return f"{self._folder(name, key_bytes)}-found"

    def _pass(self, name: str, paths: list[str], columns: list[int], key_bytes: int, equal: str | None = None) -> str:
        from tamis.dedup.range_passes.stage import LookAtRanges, RangeWriter
        from tamis.stages.text.io import JsonlReader

        here, found = self._folder(name, key_bytes), self._found_in(name, key_bytes)
        os.makedirs(found, exist_ok=True)
        ranges.write_ranges(f"{here}-in", self._ranges(columns, key_bytes))
        write_json(f"{here}.json", paths)
        fills_room = self.n_documents * key_bytes > self.room_bytes  # with few documents nothing is asked for
        memory_gb = (1.25 * self.room_bytes + self.n_documents / 8) / 1e9 if fills_room else 0.1
        stages: list[Any] = [JsonlReader(f"{here}-in", files_per_partition=1)]
        stages += [LookAtRanges(f"{here}.json", found, equal, round(memory_gb, 3)), RangeWriter(here)]
        self.execute(Pipeline(f"{self.name}: ranges of {name}", stages=stages), f"ranges-{name}")
        missing = ranges.not_found(f"{here}-in", found)
        if missing:  # one that failed is in quarantine; or a disk lost files. Without them duplicates would stay, and nobody would know
            raise FormatError(
                f"{found}: {missing} ranges of keys were not looked at, or what was found there is gone; `tamis report {here}` tells "
                "more. Mend the cause and start over (--fresh)"
            )
        return found
