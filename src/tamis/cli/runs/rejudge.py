"""Judge documents that another limit lets pass: a sample of them goes through the rules again.

The command of the run is loaded again (`command.json`), the limit changed, and a sample of the documents, read from the
input, taken through its stages in this process. Deduplications judge documents by others, and are left out.
"""

from __future__ import annotations

import contextlib
import copy
import math
import os
import random
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tamis.cli.jobs.jobs import Consent, RecipeJob
from tamis.cli.jobs.request import Request
from tamis.cli.jobs.resume import find_request
from tamis.errors import FormatError, TamisError, UsageError
from tamis.observe.records import records_at
from tamis.observe.thresholds import Position, Rethreshold, passing

if TYPE_CHECKING:
    from tamis.stages.base import ProcessingStage

_Z = 1.96  # of a 95 % interval


@dataclass(frozen=True)
class Estimate:
    """Estimate of how many documents that pass a rule the whole run keeps, with a 95 % interval."""

    n_judged: int
    n_kept: int  # of those judged
    low: int
    high: int
    left_out: list[str] = field(default_factory=list)  # steps that cannot judge a document alone


def estimate(output: str, result: Rethreshold, n: int, consent: Consent | None = None, seed: int = 0) -> Estimate:
    """Judge up to `n` of the documents that would pass; raise UsageError that says why that is not possible."""
    positions = passing(output, result)
    chosen = random.Random(seed).sample(positions, min(n, len(positions)))
    n_kept, left_out = judge(output, result, chosen, consent or Consent())
    low, high = interval(n_kept, len(chosen), len(positions))
    return Estimate(len(chosen), n_kept, low, high, left_out)


def interval(k: int, n: int, n_all: int) -> tuple[int, int]:
    """Return the bounds of a count in `n_all` documents, `k` in `n` of which were seen: 95 %, by Wilson's score.

    The sample was drawn without replacement: the larger it is, the less is left to chance.

    >>> interval(5, 10, 100), interval(10, 10, 10), interval(0, 20, 1000)
    ((24, 76), (10, 10), (0, 159))
    """
    if n >= n_all or not n:
        return (k, k) if n else (0, n_all)
    z2 = _Z**2 * (n_all - n) / (n_all - 1)
    share = k / n
    middle, spread = share + z2 / (2 * n), math.sqrt(z2) * math.sqrt(share * (1 - share) / n + z2 / (4 * n**2))
    low, high = ((middle - spread) / (1 + z2 / n), (middle + spread) / (1 + z2 / n))
    return max(k, math.floor(low * n_all + 1e-9)), min(n_all - (n - k), math.ceil(high * n_all - 1e-9))


def judge(output: str, result: Rethreshold, positions: Sequence[Position], consent: Consent) -> tuple[int, list[str]]:
    """Return how many of these documents the run would keep, and the names of steps that were left out."""
    from tamis.backends.local import InProcessExecutor
    from tamis.pipeline import Pipeline
    from tamis.stages.text.io import JsonlReader, JsonlWriter

    folder = os.getcwd()
    try:
        request = find_request(output, Request(RecipeJob(output, {}), {}, consent=consent))
        stages, left_out = _stages(request)
        _set_limit(stages, result)
        records = [line for path, offsets in _by_file(positions) for line in records_at(path, offsets)]
        with tempfile.TemporaryDirectory(prefix="tamis-") as work:
            source = os.path.join(work, "in.jsonl")
            with open(source, "wb") as file:
                file.writelines(line + b"\n" for line in records)
            pipeline = Pipeline("again", stages=[JsonlReader(source), *stages, JsonlWriter(os.path.join(work, "out"))])
            done = pipeline.execute(InProcessExecutor(report=False), quarantine_limit="100%", no_samples=True)
            return done.ledger.written.n, left_out
    except (OSError, ValueError, FormatError, TamisError) as exc:
        raise UsageError(f"the documents cannot be judged again: {exc}") from None
    finally:
        with contextlib.suppress(OSError):
            os.chdir(folder)


def _stages(request: Request) -> tuple[list[Any], list[str]]:
    """Return copies of the stages between reader and writer, and the names of the steps that are left out."""
    from tamis.pipeline import Pipeline
    from tamis.stages.base import ProcessingStage
    from tamis.stages.file_partitioning import FilePartitioningStage
    from tamis.stages.io import Reader, Writer

    workflow = request.workflow()
    if workflow is None:
        flat = request.build()[0].build()
        left_out: list[str] = []
    else:
        steps = getattr(workflow[0], "steps", None)
        if steps is None:
            raise UsageError("this run has no rules that judge a document alone")
        left_out = [step.name for step in steps if not isinstance(step, ProcessingStage)]
        flat = Pipeline("", stages=[step for step in steps if isinstance(step, ProcessingStage)]).build()
    plain = [s for s in flat if not isinstance(s, (FilePartitioningStage, Reader, Writer))]
    return copy.deepcopy(plain), left_out


def _set_limit(stages: Sequence[ProcessingStage[Any, Any]], result: Rethreshold) -> None:
    """Give the rule its other limit; raise UsageError if that is no attribute of its filter."""
    from tamis.engine.job import labels_of

    labels = labels_of(s.name for s in stages)
    rule = result.rule.rpartition(":")[2]
    for label, stage in zip(labels, stages, strict=True):
        names = [r.name for r in stage.rules()]
        filters = getattr(stage, "filter_obj", None)
        if label != result.stage or rule not in names or not isinstance(filters, list):
            continue
        one = filters[names.index(rule)]
        if hasattr(one, result.name):
            setattr(one, result.name, type(getattr(one, result.name))(result.new))
            if stage.rules()[names.index(rule)].limits.get(result.name) == result.new:
                return
    raise UsageError(f"the limit {result.name} of {result.rule} cannot be changed from here")


def _by_file(positions: Sequence[Position]) -> list[tuple[str, list[int]]]:
    by_file: dict[str, list[int]] = {}
    for path, offset in positions:
        by_file.setdefault(path, []).append(offset)
    return [(path, sorted(offsets)) for path, offsets in sorted(by_file.items())]
