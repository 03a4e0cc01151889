"""Configurations of a recipe, tried one after the other on a sample of its input. Nothing is written but to a temporary folder."""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tamis.cli.jobs.request import Request, file_source, reader_formats
from tamis.cli.plan.apart import ask, beginnings
from tamis.cli.plan.probe import spread
from tamis.errors import TamisError, UsageError
from tamis.observe.profiling import Row
from tamis.sizes import format_size, parse_fraction, parse_size

_MIN_SAMPLE_BYTES = 64_000_000
_MAX_SAMPLE_BYTES = 2_000_000_000
_MAX_FILES = 64
_MAX_CONFIGURATIONS = 200


@dataclass(frozen=True)
class Configurations:
    """Budgets and block sizes to combine. A block size of None is "auto"."""

    budgets: list[int]
    blocksizes: list[str | None]
    repeat: int = 1

    def __len__(self) -> int:
        return len(self.budgets) * len(self.blocksizes) * self.repeat

    def pairs(self) -> Iterator[tuple[int, str | None]]:
        yield from ((budget, block) for budget in self.budgets for block in self.blocksizes)


def configurations(budgets: str, blocksizes: str, repeat: int = 1) -> Configurations:
    """
    >>> configurations("512MB,1GB", "auto, 32MB")
    Configurations(budgets=[512000000, 1000000000], blocksizes=[None, '32MB'], repeat=1)
    """
    found = sorted({parse_size(b.strip(), "--budgets") for b in budgets.split(",") if b.strip()})
    blocks: dict[str | None, None] = {}
    for text in (b.strip() for b in blocksizes.split(",") if b.strip()):
        if text.lower() != "auto":
            parse_size(text, "--blocksizes")
        blocks[None if text.lower() == "auto" else text] = None
    if not found or not blocks:
        raise UsageError("give at least one budget and one block size, e.g. --budgets 512MB,1GB --blocksizes auto,32MB")
    made = Configurations(found, list(blocks), repeat)
    if len(made) > _MAX_CONFIGURATIONS:
        raise UsageError(
            f"{len(made)} runs are too many; give fewer budgets and block sizes (at most {_MAX_CONFIGURATIONS})"
        )
    return made


def try_all(
    request: Request,
    tried: Configurations,
    sample: str | None,
    limit_bytes: str | None,
    on_row: Callable[[int, str], None] = lambda _n, _text: None,
) -> tuple[list[Row], int]:
    """A row for every configuration, in order, and the decoded bytes of the sample."""
    with tempfile.TemporaryDirectory(prefix="tamis-profile-") as folder:
        on_row(0, "taking a sample of the input")
        paths, n_bytes = _sample(request, tried, sample, limit_bytes, folder)
        _compile(request)
        rows = []
        n = 0
        for budget, block in tried.pairs():
            found = []
            for _ in range(tried.repeat):
                n += 1
                on_row(n, f"{format_size(budget)}, {block or 'auto'} on {format_size(n_bytes)}")
                found.append(_try_one(request, paths, os.path.join(folder, f"out-{n}"), budget, block))
                if found[-1]["status"] != "ok":
                    break
            rows.append(_row(found, budget, block))
        return rows, n_bytes


def _sample(
    request: Request, tried: Configurations, sample: str | None, limit_bytes: str | None, folder: str
) -> tuple[list[str], int]:
    from tamis.engine.run.inputs import files_of
    from tamis.forecast.shipped_table import decoded_bytes
    from tamis.stages.io import Writer

    pipeline, _ = request.build()
    flat = pipeline.build()
    source, last = file_source(flat, "profile"), flat[-1]
    files = files_of(source, last.path if isinstance(last, Writer) else None)
    if limit_bytes is not None:
        wanted = parse_size(limit_bytes, "--limit-bytes")
    elif sample is not None:
        wanted = max(1, int(decoded_bytes(files.paths, files.sizes) * parse_fraction(sample, "--sample")))
    else:  # enough for a few of the largest partitions on every core
        largest = max((parse_size(b) for b in tried.blocksizes if b is not None), default=0)
        wanted = min(max(_MIN_SAMPLE_BYTES, 3 * largest * len(os.sched_getaffinity(0))), _MAX_SAMPLE_BYTES)
    _check_room(folder, wanted)
    readable = [p for p, size in zip(files.paths, files.sizes, strict=True) if size > 0]
    found = beginnings(spread(readable, _MAX_FILES), folder, wanted, reader_formats(pipeline), packed=True)
    return [one["copy"] for one in found], sum(one["n_bytes"] for one in found)


def _check_room(folder: str, wanted: int) -> None:
    stat = os.statvfs(folder)
    free = stat.f_bavail * stat.f_frsize
    if free < 3 * wanted:  # the sample, its output, and blocks between processes
        raise TamisError(
            f"{folder} has {format_size(free)} free, a sample of {format_size(wanted)} needs three times its size; give a smaller "
            "--limit-bytes, or set TMPDIR to a larger disk"
        )


def _compile(request: Request) -> None:
    """Before the first run: compiling happens once, and would count as slowness of the first configuration."""
    from tamis.engine.job import make_job
    from tamis.engine.run.compiling import compile_missing
    from tamis.memory.budget import find_budget

    pipeline, settings = request.build()
    job = make_job(pipeline.name, pipeline.build(), str(settings.get("mode", "streaming")))
    compile_missing(job.kernel_groups(), find_budget(None, os.environ).bytes, count_caller=False)


def _try_one(request: Request, paths: list[str], output: str, budget: int, block: str | None) -> dict[str, Any]:
    from tamis.cli.jobs.request import find_recipe

    asked = {
        "recipe": os.path.abspath(find_recipe(request.recipe)), "set": request.overrides, "allow": list(request.allow),
        "settings": request.settings, "paths": paths, "output": output, "memory": budget, "blocksize": block, "parent": os.getpid(),
    }  # fmt: skip
    # Each starts with small partitions and no experience: what one configuration learns must not help the next.
    try:
        found: dict[str, Any] = ask("tamis.cli.profile.child", asked, TAMIS_PROFILES="off")
    except TamisError as exc:
        return {"status": "failed", "message": str(exc)}
    return found


def _row(found: Sequence[dict[str, Any]], budget: int, block: str | None) -> Row:
    last = found[-1]
    name = block or "auto"
    if last["status"] != "ok":
        return Row(budget, name, str(last["status"]), message=str(last["message"]))
    middle = statistics.median_low([float(f["seconds"]) for f in found])
    one = next(f for f in found if float(f["seconds"]) == middle)
    return Row(
        budget, name, "ok", max(int(f["peak_bytes"]) for f in found), round(middle, 3), round(one["read_bytes"] / 1e6 / one["work_s"], 2),
        round(one["cpu_s"], 3), one["n_workers"], one["n_partitions"], max(f["splits"] for f in found),
        max(f["recycled"] for f in found), max(f["failures"] for f in found), "", [round(float(f["seconds"]), 3) for f in found],
    )  # fmt: skip
