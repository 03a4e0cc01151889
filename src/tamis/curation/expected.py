"""The forecast of a curation, all of its passes together, and the comparison with what was measured.

As for a deduplication (dedup/expected.py): `fixed_bytes` of the conditions is the planned peak, `handover_bytes` what
the keys take on the disk. The output is that of the files, compressed as they are. Measured runs go to the machine
profile under a key made of the steps. Observing must never hurt: what cannot be read or written is left out.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tamis._dataclasses import dataclass
from tamis.curation.costs import PassCost, pass_costs
from tamis.curation.steps import CorpusStep
from tamis.dedup.planning import SOLVER_BASE_BYTES
from tamis.engine.job import make_job
from tamis.engine.run.budget.expectation import profile_key
from tamis.engine.run.identity import describe_job
from tamis.errors import TamisError
from tamis.forecast import shipped_table
from tamis.forecast.experience import Experience, compared
from tamis.forecast.prediction import Conditions, Forecast, Interval, RunMeasurement
from tamis.formats.compression.codecs import codec_of
from tamis.pipeline import Pipeline

if TYPE_CHECKING:
    from tamis.curation.curation import Curation
    from tamis.curation.result import CurationSizes

_BLOCK_BYTES = 32 << 20
_START_S = 0.4  # of the whole: processes, the record, the report
_PASS_S = 0.25  # of each pass: loading of its stages
_OTHER_LEVEL = 1.5  # output larger than the same text was as input, compressed less


def curation_key(curation: Curation) -> str:
    """Return the key of a machine profile: the steps and their parameters; input and output do not count."""
    plain = [step for step in curation.steps if not isinstance(step, CorpusStep)]
    stages = Pipeline("", stages=[curation.source(), *plain, curation.writer()]).build()
    decided = [[s.name, s.kind.name, s.parameters()] for s in curation.steps if isinstance(s, CorpusStep)]
    writing = {name: value for name, value in curation.writing.to_dict().items() if value}
    text = json.dumps(
        [profile_key(describe_job(make_job("", stages), {})), decided, writing, curation.extension],
        default=str,  # keys in their order: those of a step's parameters may be of several types
    )
    return "curation-" + hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def conditions(costs: Sequence[PassCost], sizes: CurationSizes, budget_bytes: int, n_workers: int) -> Conditions:
    """Return the conditions under which a curation is predicted."""
    peak = max(cost.held_bytes for cost in costs)
    if sizes["key_bytes"]:
        peak = max(peak, SOLVER_BASE_BYTES)
    return Conditions(
        budget_bytes=budget_bytes,
        n_workers=n_workers,
        fixed_bytes=min(peak, budget_bytes),
        worker_bytes=0,
        cap_bytes=budget_bytes,
        input_bytes=sizes["input_bytes"],
        decoded_bytes=sizes["decoded_bytes"],
        max_block_bytes=_BLOCK_BYTES,
        handover_bytes=max(sizes["key_bytes"].values(), default=0),
    )


def forecast(
    curation: Curation,
    costs: Sequence[PassCost],
    sizes: CurationSizes,
    request: Conditions,
    experience: Experience,
    **more: Any,
) -> Forecast:
    """Return the forecast. `more`: as `predict` takes it."""
    s_per_byte = sum(cost.cpu_s for cost in costs) / max(1, sizes["decoded_bytes"])
    start_s = _START_S + _PASS_S * len(costs)
    prediction = experience.forecast(request, [], s_per_byte, start_s=start_s, **more)
    if experience.past:
        return prediction
    stored, keys = _stored_bytes(curation, sizes), float(request.handover_bytes)
    return prediction._replace(
        output_bytes=Interval(0.0, stored, stored * _OTHER_LEVEL),
        scratch_bytes=Interval(keys / 2, keys, keys * 2),
    )


def _stored_bytes(curation: Curation, sizes: CurationSizes) -> float:
    """Return what the output takes if every document stays, compressed as its suffix says."""
    suffix = "." + curation.extension
    codec, paths = codec_of(suffix), curation.files().paths
    if sizes["n_files"] and all(codec_of(path) == codec for path in paths[:1]) and codec is not None:
        return float(sizes["input_bytes"])
    ratio = next((r for end, r in shipped_table.PACKED.items() if suffix.endswith(end)), 1.0)
    return sizes["decoded_bytes"] / ratio


@dataclass(frozen=True)
class RunTotals:
    """Measured costs of a curation. `read_bytes`: of the decoded input; `output_bytes`: of files as they are stored."""

    seconds: float
    peak_bytes: int
    scratch_bytes: int
    read_bytes: int
    output_bytes: int
    n_documents: int


class CurationExpectation(Experience):
    """`begin` before the first pass, `end` after the last."""

    def __init__(self, curation: Curation, budget_bytes: int, n_workers: int) -> None:
        super().__init__(curation_key(curation))
        self._curation, self._budget_bytes, self._n_workers = curation, budget_bytes, n_workers
        self._conditions: Conditions | None = None

    def begin(self) -> None:
        with contextlib.suppress(TamisError, OSError, KeyError, ValueError, TypeError):
            sizes = self._curation.sizes()
            costs = pass_costs(self._curation, sizes, self._budget_bytes, self._n_workers)
            request = conditions(costs, sizes, self._budget_bytes, self._n_workers)
            self.expect(request, forecast(self._curation, costs, sizes, request, self))
            self._conditions = request

    def end(self, totals: RunTotals) -> None:
        """Compare the forecast with what was measured, and learn from it."""
        if self._conditions is None or not totals.read_bytes:
            return
        took = RunMeasurement(
            self._conditions._replace(decoded_bytes=totals.read_bytes),
            peak_bytes=totals.peak_bytes,
            seconds=totals.seconds,
            busy_s=0.0,
            cpu_s=0.0,
            scratch_bytes=totals.scratch_bytes,
            written_bytes=totals.output_bytes,
            n_documents=totals.n_documents,
            n_partitions=0,
            at=time.time(),
            learned=True,
        )
        self.prediction = compared(self.prediction, took)
        with contextlib.suppress(TamisError, OSError):
            self.keep({"name": self._curation.name[:1000], "segments": []}, took)
