"""Configurations of a recipe, tried one after the other on a sample of its input. Nothing is written but to a temporary folder."""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
from collections.abc import Callable

from tamis.cli.jobs.request import Request, file_source
from tamis.cli.plan.trial import Trial, copied, spread, tried
from tamis.errors import TamisError, UsageError
from tamis.observe.profiling import Row
from tamis.sizes import format_size, parse_fraction, parse_size

_MIN_SAMPLE_BYTES = 64_000_000
_MAX_SAMPLE_BYTES = 2_000_000_000
_MAX_FILES = 64
_MAX_CONFIGURATIONS = 200

Configuration = tuple[int, str | None]  # a budget and a block size; None is "auto"


def configurations(budgets: str, blocksizes: str, repeat: int = 1) -> list[Configuration]:
    """
    >>> configurations("512MB,1GB", "auto, 32MB")
    [(512000000, None), (512000000, '32MB'), (1000000000, None), (1000000000, '32MB')]
    """
    found = sorted({parse_size(b.strip(), "--budgets") for b in budgets.split(",") if b.strip()})
    blocks: dict[str | None, None] = {}
    for text in (b.strip() for b in blocksizes.split(",") if b.strip()):
        if text.lower() != "auto":
            parse_size(text, "--blocksizes")
        blocks[None if text.lower() == "auto" else text] = None
    if not found or not blocks:
        raise UsageError("give at least one budget and one block size, e.g. --budgets 512MB,1GB --blocksizes auto,32MB")
    made = [(budget, block) for budget in found for block in blocks]
    if len(made) * repeat > _MAX_CONFIGURATIONS:
        raise UsageError(
            f"{len(made) * repeat} runs are too many; give fewer budgets and block sizes (at most {_MAX_CONFIGURATIONS})"
        )
    return made


def try_all(
    request: Request,
    asked: list[Configuration],
    repeat: int,
    sample: str | None,
    limit_bytes: str | None,
    tell: Callable[[str], None],
) -> tuple[list[Row], int]:
    """A row for every configuration, in order, and the decoded bytes of the sample. `tell` gets a line before each run."""
    with tempfile.TemporaryDirectory(prefix="tamis-profile-") as folder:
        tell("taking a sample of the input")
        paths, n_bytes = _sample(request, asked, sample, limit_bytes, folder)
        _compile(request)
        rows, n = [], 0
        for budget, block in asked:
            found: list[Trial] = []
            while len(found) < repeat and (not found or found[-1].status == "ok"):
                n += 1
                tell(f"[{n}/{len(asked) * repeat}] {format_size(budget)}, {block or 'auto'} on {format_size(n_bytes)}")
                # Not 100%: that would also switch off the early end of a run whose stage fails on everything.
                how = {"memory": budget, "blocksize": block, "quarantine_limit": "5%"}
                found.append(tried(request, paths, os.path.join(folder, f"out-{n}"), **how))
            rows.append(_row(found, budget, block or "auto"))
        return rows, n_bytes


def _sample(
    request: Request, asked: list[Configuration], sample: str | None, limit_bytes: str | None, folder: str
) -> tuple[list[str], int]:
    from tamis.engine.run.inputs import files_of
    from tamis.forecast.shipped_table import decoded_bytes
    from tamis.stages.io import Writer

    pipeline, _ = request.build()
    flat = pipeline.build()
    files = files_of(file_source(flat, "profile"), flat[-1].path if isinstance(flat[-1], Writer) else None)
    if limit_bytes is not None:
        wanted = parse_size(limit_bytes, "--limit-bytes")
    elif sample is not None:
        wanted = max(1, int(decoded_bytes(files.paths, files.sizes) * parse_fraction(sample, "--sample")))
    else:  # enough for a few of the largest partitions on every core
        largest = max((parse_size(block) for _, block in asked if block is not None), default=0)
        wanted = min(max(_MIN_SAMPLE_BYTES, 3 * largest * len(os.sched_getaffinity(0))), _MAX_SAMPLE_BYTES)
    free = shutil.disk_usage(folder).free
    if free < 3 * wanted:  # the sample, its output, and blocks between processes
        raise TamisError(
            f"{folder} has {format_size(free)} free, a sample of {format_size(wanted)} needs three times its size; give a smaller "
            "--limit-bytes, or set TMPDIR to a larger disk"
        )
    readable = [p for p, size in zip(files.paths, files.sizes, strict=True) if size > 0]
    found = copied(pipeline, spread(readable, _MAX_FILES), folder, wanted, packed=True)
    return [one["copy"] for one in found], sum(one["n_bytes"] for one in found)


def _compile(request: Request) -> None:
    """Before the first run: compiling happens once, and would count as slowness of the first configuration."""
    from tamis.engine.job import make_job
    from tamis.engine.run.compiling import compile_missing
    from tamis.memory.budget import find_budget

    pipeline, settings = request.build()
    job = make_job(pipeline.name, pipeline.build(), str(settings.get("mode", "streaming")))
    compile_missing(job.kernel_groups(), find_budget(None, os.environ).bytes, count_caller=False)


def _row(found: list[Trial], budget: int, block: str) -> Row:
    last = found[-1]
    if last.status != "ok":
        return Row(budget, block, last.status, message=last.message)
    middle = statistics.median_low([f.seconds for f in found])
    one = next(f for f in found if f.seconds == middle)

    def most(*names: str) -> int:
        """Of what went wrong, the worst run counts."""
        return max(sum(f.counters.get(name, 0) for name in names) for f in found)

    n_workers = one.prediction.get("conditions", {}).get("n_workers", 0)
    return Row(
        budget, block, "ok", max(f.peak_bytes for f in found), round(middle, 3), round(one.read_bytes / 1e6 / one.work_s, 2),
        round(one.cpu_s, 3), n_workers, one.counters.get("committed", 0), most("splits"), most("recycled"),
        most("memory_failures", "kills", "crashes"), repeats=[round(f.seconds, 3) for f in found],
    )  # fmt: skip
