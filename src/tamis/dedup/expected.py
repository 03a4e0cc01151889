"""The forecast of a deduplication, its comparison with what was measured, and the record of its settings.

Imports nothing heavy. As for a run (engine/run/budget/expectation.py), with the plan's own formulas instead of
partition models: `fixed_bytes` of the conditions is the planned peak, `handover_bytes` the planned scratch. Stored in
`<run dir>/dedup_prediction.json`; measured runs go to the machine profile under a key made of the parameters.
Observing must never hurt: what cannot be read or written is left out.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tamis.dedup.kinds import ShippedFigures
from tamis.dedup.planning import SOLVER_BASE_BYTES, DedupPlan, make_plan
from tamis.errors import TamisError
from tamis.files import read_json, write_json
from tamis.forecast import shipped_table
from tamis.forecast.experience import Experience, compared
from tamis.forecast.prediction import Conditions, Forecast, Interval, RunMeasurement

if TYPE_CHECKING:
    from tamis.dedup.state import Summary
    from tamis.dedup.workflow import Workflow
    from tamis.engine.run.run_result import RunResult

FILE = "dedup_prediction.json"
# What decides how much work there is; the rest changes little.
_IN_KEY = ("sketch", "threshold", "perform_removal", "min_bytes")
# A pass over documents: supervisor, forking server and two workers with their partitions, measured
# (docs/explanation/benchmarks-dedup.md).
_PASS_BYTES = 200_000_000
_WORKER_BYTES = 25_000_000
_MORE_PASSES = 0.6  # of the whole, for each further pass that makes keys


def profile_key(name: str, identity: Mapping[str, Any]) -> str:
    """Return a key for the parameters; the data that is deduplicated does not count."""
    parameters = {k: identity[k] for k in _IN_KEY if k in identity}
    text = json.dumps([name, parameters], sort_keys=True, default=str)
    return "dedup-" + hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def conditions(plan: DedupPlan, n_workers: int, decoded_bytes: int) -> Conditions:
    peak = max(_PASS_BYTES + _WORKER_BYTES * n_workers, SOLVER_BASE_BYTES + plan.decision_bytes)
    return Conditions(
        budget_bytes=plan.budget_bytes,
        n_workers=n_workers,
        fixed_bytes=min(peak, plan.budget_bytes),
        worker_bytes=0,
        cap_bytes=plan.budget_bytes,
        input_bytes=plan.input_bytes,
        decoded_bytes=decoded_bytes,
        max_block_bytes=32 << 20,
        handover_bytes=plan.scratch_bytes,
    )


def forecast(
    plan: DedupPlan, figures: ShippedFigures, request: Conditions, experience: Experience, **more: Any
) -> Forecast:
    """Return the forecast. `more`: as `predict` takes it."""
    passes = 1 + _MORE_PASSES * (plan.n_key_passes - 1)
    s_per_byte = passes / figures.mb_per_s / 1e6
    prediction = experience.forecast(request, [], s_per_byte, start_s=figures.start_s, **more)
    if experience.past:
        return prediction
    expected = float(plan.scratch_bytes)
    return prediction._replace(scratch_bytes=Interval(expected / 2, expected, expected * 2))


class DedupExpectation(Experience):
    """`begin` before the first pass, `end` after the last."""

    def __init__(self, workflow: Workflow) -> None:
        super().__init__(profile_key(workflow.passes.name, workflow.passes.identity))
        self._workflow = workflow
        self._plan: DedupPlan | None = None
        self._conditions: Conditions | None = None

    def begin(self) -> None:
        with contextlib.suppress(TamisError, OSError, KeyError, ValueError, TypeError):
            self._predict()

    def _predict(self) -> None:
        w = self._workflow
        sketch = w.passes.identity.get("sketch") or {}
        files = w.files()
        if w.passes.plan is not None:
            self._plan = w.passes.plan(files, w.settings.budget_bytes(), w.work.path)
        else:
            self._plan = make_plan(
                files,
                int(sketch.get("bands", 0)),
                int(sketch.get("rows", 0)),
                w.passes.identity.get("bands_per_iteration"),
                w.settings.budget_bytes(),
                w.work.path,
            )
        self._conditions = conditions(
            self._plan, w.settings.n_workers(), shipped_table.decoded_bytes(files.paths, files.sizes)
        )
        self.expect(self._conditions, forecast(self._plan, w.passes.figures, self._conditions, self))
        write_json(os.path.join(w.output.run_dir, FILE), self.prediction)

    def end(self, seconds: float, summary: Summary, removed: RunResult | None) -> None:
        """Compare the forecast with what was measured, and record the settings.

        `removed`: the result of the last pass, None where nothing is removed.
        """
        with contextlib.suppress(TamisError, OSError, KeyError, ValueError, TypeError):
            self._compare(seconds, summary, removed)
        with contextlib.suppress(TamisError, OSError, KeyError, ValueError, TypeError):
            self._note(summary)

    def _compare(self, seconds: float, summary: Summary, removed: RunResult | None) -> None:
        if self._conditions is None:
            return
        w = self._workflow
        read = removed.ledger.read_bytes if removed is not None else self._conditions.decoded_bytes
        written = removed.ledger.written_bytes if removed is not None else 0
        took = RunMeasurement(
            self._conditions._replace(decoded_bytes=read),
            w.peak_bytes,
            round(seconds, 3),
            0.0,
            0.0,
            w.scratch_bytes,
            written,
            int(summary.get("n_documents", 0)),
            0,
            time.time(),
            True,
        )
        self.prediction = compared(self.prediction, took)
        write_json(os.path.join(w.output.run_dir, FILE), self.prediction)
        self.keep({"name": w.passes.name, "segments": []}, took)

    def _note(self, summary: Summary) -> None:
        """Add the settings of the deduplication itself to settings.json of the last pass."""
        from tamis.engine.run.settings import SettingsLog

        w, plan = self._workflow, self._plan
        path = os.path.join(w.output.run_dir, "settings.json")
        record = SettingsLog(list((read_json(path) or {}).get("settings", [])))
        room = w.solver.room_bytes()
        record.note(
            "room of the deciding process",
            room,
            "default",
            "for keys and groups: a fixed share of the budget once the process itself is in memory; larger sets are "
            "decided in parts",
            {"budget_bytes": w.settings.budget_bytes(), "process_bytes": SOLVER_BASE_BYTES},
        )
        n = int(summary.get("n_documents", 0))
        if plan is not None:
            record.note(
                "parts of the key space",
                plan.n_parts_per_band,
                "adaptation",
                "so many that the keys of one part of one band fit into that room",
                {"n_documents": n, "planned_documents": plan.n_documents, "decision_bytes": plan.decision_bytes},
            )
        chosen = w.work.state.band_choice.read()
        if plan is not None and plan.n_bands:
            requested = w.passes.identity.get("bands_per_iteration")
            record.note(
                "bands per pass",
                chosen.bands_per_pass if chosen is not None else plan.bands_per_pass,
                "user" if requested else "adaptation",
                "as asked for; fewer save disk and no memory, and take more passes over the input"
                if requested
                else "as many as half of the free disk can hold: fewer take more passes over the input",
                {
                    "bands": plan.n_bands,
                    "passes": plan.n_key_passes,
                    "scratch_bytes": w.scratch_bytes,
                    "free_bytes": plan.free_bytes,
                },
            )
        record.note(
            "scratch of the keys",
            w.scratch_bytes,
            "adaptation",
            "the most that keys and candidates took on the disk at once",
        )
        write_json(path, {"settings": record.entries})
