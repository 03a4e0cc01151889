"""The plan of a recipe with stages: what its run would take, as intervals.

Where the figures come from, best first: earlier runs of the same pipeline on this machine (the machine profile); a
probe, which runs the recipe's stages on the beginning of some input files with real workers under the real budget; the
shipped table.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tamis.cli.jobs.request import Request, file_source, output_of
from tamis.cli.plan.machine import ClusterFigures, Dataset, PlannedMachine, cluster_figures, cluster_lines
from tamis.cli.plan.probe import Probe, kind_of, probe
from tamis.cli.plan.show import (
    budget_words,
    format_time,
    free_words,
    guide_line,
    range_words,
    sizes,
    times,
    too_small_line,
)
from tamis.cli.terminal.show import count
from tamis.engine.job import Job, make_job
from tamis.engine.run.budget.expectation import profile_key, stage_names
from tamis.engine.run.budget.shares import budget_to_name, share_pool
from tamis.engine.run.identity import describe_job
from tamis.engine.run.inputs import DEFAULT_PARTITION_BYTES, files_of, kinds_of, largest_whole_file
from tamis.engine.run.settings import output_settings
from tamis.errors import UsageError
from tamis.forecast import ranges, shipped_table
from tamis.forecast.experience import Experience, models_of
from tamis.forecast.prediction import Conditions, Prediction, RunMeasurement
from tamis.formats.input_files.listing import FileList
from tamis.formats.input_files.skipped import SkippedEntry, skipped_lines
from tamis.memory.budget import find_budget
from tamis.pipeline import Pipeline
from tamis.sizes import format_size, parse_size
from tamis.stages.file_partitioning import FilePartitioningStage
from tamis.stores.run_locations import free_space, local_output_dir

_PLAIN = ("jsonl", "json")  # kinds of files that are read without being handed on


@dataclass
class Plan:
    """Sizes in bytes. Everything but the files is an estimate; `forecast` holds the intervals."""

    n_files: int
    kinds: dict[str, int]
    input_bytes: int
    decoded_bytes: int
    output: str
    budget_bytes: int
    smallest_budget_bytes: int
    smallest_is_measured: bool
    fits: bool
    n_workers: int
    block_bytes: int
    n_partitions: int
    peak_bytes: int
    output_bytes: int
    free_bytes: int | None  # None: it is another machine's disk, or a bucket
    scratch_free_bytes: int | None
    seconds: float
    kept_share: float | None
    probe_bytes: int
    probe_documents: int
    basis: str
    machine: str
    nodes: int
    gpu_seconds: float
    forecast: Prediction
    guide: dict[str, str]  # by the size of the data; empty where the guide has none, as for images
    skipped_files: list[SkippedEntry] = field(default_factory=list)
    cluster: ClusterFigures | None = None  # for several nodes
    guide_stages: list[str] = field(default_factory=list)  # the guide's figures of stages with models
    added_stages: list[str] = field(default_factory=list)  # that the input needs and the recipe does not name

    def lines(self) -> list[str]:
        """Return the plan as human-readable lines."""
        lines = [f"{name:<12} {value}" for name, value in self._rows()]
        if self.cluster and self.fits:
            lines += cluster_lines(self.cluster, f"rates: from {self.basis}")
        probed = (
            f" ({format_size(self.probe_bytes)}, {count(self.probe_documents, 'document')})" if self.probe_bytes else ""
        )
        lines += [
            "",
            f"from {self.basis}{probed}",
            range_words(self.forecast),
            *([guide_line(self.guide["size"], self.guide)] if self.guide else []),
            *self.guide_stages,
        ]
        return [*lines, *skipped_lines(self.skipped_files), *self._shortages()]

    def _rows(self) -> list[tuple[str, str]]:
        """Return the figures; of a run that does not fit only those that do not depend on it."""
        each = " on each node" if self.nodes > 1 else ""
        kinds = ", ".join(f"{n:,} {kind}" for kind, n in sorted(self.kinds.items()))
        files = (
            f"{count(self.n_files, 'file')} ({kinds}), {format_size(self.input_bytes)}, about " if self.n_files else ""
        )
        rows = [
            ("input", f"{files}{format_size(self.decoded_bytes)} decoded"),
            ("machine", self.machine),
            ("budget", budget_words(self.budget_bytes, self.smallest_budget_bytes, self.smallest_is_measured) + each),
        ]
        if self.added_stages:
            rows.insert(1, ("added", f"{', '.join(self.added_stages)}: the input has WARC files"))
        return rows + self._run_rows(each) if self.fits else rows

    def _run_rows(self, each: str) -> list[tuple[str, str]]:
        """Return the figures of a run that fits; `each`: the words after a figure of one node among several."""
        share = f"; {self.kept_share:.1%} of the documents" if self.kept_share is not None else ""
        location = f" in {self.output}{free_words(self.free_bytes)}" if self.free_bytes is not None else ""
        scratch = each + free_words(self.scratch_free_bytes) if self.forecast["scratch_bytes"]["high"] else ""
        time = times(self.forecast["seconds"])
        # A driver that is slower than all workers together: its time counts.
        if self.cluster is not None and self.cluster.limited_by == "driver":
            time = f"about {format_time(self.seconds)}, which one driver takes (the workers: {time})"
        workers = f"on {count(self.n_workers, 'worker')}{each}"
        cpu_s = self.forecast["cpu_s"]
        assert not isinstance(cpu_s, dict), "nothing has been measured yet"
        rows = [
            ("partitions", f"about {self.n_partitions:,} of {format_size(self.block_bytes)}, {workers}"),
            ("peak memory", sizes(self.forecast["peak_bytes"]) + each),
            ("scratch", sizes(self.forecast["scratch_bytes"]) + scratch),
            ("output", sizes(self.forecast["output_bytes"]) + share + location),
            ("time", f"{time}; {format_time(cpu_s)} of CPU"),
        ]
        if self.gpu_seconds:
            rows.append(("GPU time", f"about {format_time(self.gpu_seconds)} of one GPU (starting table)"))
        return rows

    def _shortages(self) -> list[str]:
        """Return a line for each thing of which there is too little: the budget, the disks."""
        lines = []
        if not self.fits:
            lines.append(too_small_line(self.smallest_budget_bytes))
        if self.free_bytes is not None and self.output_bytes > self.free_bytes:
            lines.append("the disk is too small for the output: make room, or use --sample")
        scratch_bytes = self.forecast["scratch_bytes"]["expected"]
        if self.scratch_free_bytes is not None and scratch_bytes > self.scratch_free_bytes:
            lines.append("the disk is too small for scratch: make room, or give another folder with --scratch")
        return lines


def make_plan(
    request: Request, probe_bytes: int, where: PlannedMachine, dataset: Dataset | None, may_probe: bool | None
) -> Plan:
    """Plan a run. `dataset`: the data, if only described; `may_probe`: None probes only what has not run here."""
    pipeline, settings = request.build()
    flat = pipeline.build()
    source, output = file_source(flat, "plan"), output_of(pipeline, settings)
    job = make_job(pipeline.name, flat, str(settings.get("mode", "streaming")))
    stages = describe_job(job, output_settings(settings))
    names = stage_names(stages)
    local_budget = find_budget(settings.get("memory"), os.environ).bytes
    budget = local_budget if where.is_this_machine or settings.get("memory") else where.budget_bytes

    experience = Experience(profile_key(stages))
    files = FileList() if dataset is not None else files_of(source, output, settings.get("scratch"))
    block = _max_partition_bytes(settings.get("blocksize"), source, files, job)
    models, from_profile = models_of(experience.profile, len(job.segments), block)
    tried: Probe | None = None
    if _needs_probe(may_probe, dataset, experience.past):
        tried = probe(
            request, files, probe_bytes, budget if where.is_this_machine else min(budget, local_budget), block
        )
        experience.probed(tried.measured)
        models = [tried.model] if experience.kind == ranges.PROBE else models
    data = dataset or _dataset(files, tried, experience.past)
    conditions = _conditions(job, settings, data, experience.past, budget, where, block)
    estimate = experience.forecast(
        conditions,
        models,
        shipped_table.seconds_per_byte(names),
        elsewhere=not where.is_this_machine,
        nodes=where.nodes,
        learned=any(from_profile),
    )
    ranges_by_figure = (
        experience.remember_planned(conditions, estimate) if where.is_this_machine else estimate.to_dict()
    )
    smallest = budget_to_name(conditions.fixed_bytes, conditions.worker_bytes)
    fits = budget >= smallest
    if tried is not None and where.is_this_machine:
        fits, smallest = tried.fits, tried.smallest_bytes
    gpu = shipped_table.gpu_seconds_per_document(names) * data.decoded_bytes / _document_bytes(data, experience.past)
    seconds = _seconds_on(where, float(ranges_by_figure["seconds"]["expected"]), gpu)
    cluster: ClusterFigures | None = None
    if where.nodes > 1:
        cluster = cluster_figures(where.nodes, seconds, data.decoded_bytes, estimate.n_partitions)
        seconds = cluster.seconds
    scratch = str(settings.get("scratch") or local_output_dir(output))
    return Plan(
        n_files=data.n_files,
        kinds=data.kinds,
        input_bytes=data.input_bytes,
        decoded_bytes=data.decoded_bytes,
        output=output,
        budget_bytes=budget,
        smallest_budget_bytes=smallest,
        smallest_is_measured=bool(tried or experience.past),
        fits=fits,
        n_workers=conditions.n_workers,
        block_bytes=estimate.block_bytes,
        n_partitions=max(estimate.n_partitions, data.n_files if source.files_apart else 0),
        peak_bytes=int(estimate.peak_bytes.expected),
        output_bytes=int(estimate.output_bytes.expected),
        free_bytes=_free_bytes(where, output),
        scratch_free_bytes=_free_bytes(where, scratch),
        seconds=round(seconds, 1),
        **_probe_figures(tried),
        basis=experience.basis,
        machine=str(where),
        nodes=where.nodes,
        gpu_seconds=round(gpu, 1),
        forecast=ranges_by_figure,
        guide=_guide(job, data),
        guide_stages=shipped_table.stage_lines(names),
        skipped_files=files.skipped.entries(),
        cluster=cluster,
        added_stages=_added_stages(pipeline),
    )


def _guide(job: Job, data: Dataset) -> dict[str, str]:
    """Return the row of the published guide for this data; none for images, of which it has no table."""
    formats = job.reader.formats if job.reader is not None else ()
    if "images" in formats:
        return {}
    if "video" in formats:
        video = shipped_table.video_sizing(data.n_files)
        return {"size": video.size, "nodes": video.nodes, "gpus": video.gpus, "notes": video.notes}
    row = shipped_table.text_sizing(data.decoded_bytes)
    return {
        "size": f"{row.size} of text",
        "nodes": row.nodes,
        "gpus": row.gpus,
        "memory": row.memory,
        "notes": row.notes,
    }


def _added_stages(pipeline: Pipeline) -> list[str]:
    """Return the stages that readers of any documents add for the files that they found."""
    from tamis.stages.text.io.reader import DocumentReader

    readers = [stage for stage in pipeline.stages if isinstance(stage, DocumentReader)]
    return [stage.name for reader in readers for stage in reader.taking_extraction()[1]]


def _needs_probe(may_probe: bool | None, dataset: Dataset | None, past: Sequence[RunMeasurement]) -> bool:
    """Return True if the recipe is to be tried; raise UsageError for a probe without data."""
    if dataset is not None:
        if may_probe:
            raise UsageError("--probe needs data, and --dataset-bytes plans without: leave one of them out")
        return False
    return may_probe if may_probe is not None else not past


def _max_partition_bytes(size: str | int | None, source: FilePartitioningStage, files: FileList, job: Job) -> int:
    """Return the largest decoded size of a partition."""
    if chosen := size or source.blocksize:
        return parse_size(chosen)
    return largest_whole_file(files.sizes, kinds_of(files, job)) if source.files_apart else DEFAULT_PARTITION_BYTES


def _seconds_on(where: PlannedMachine, cpu_seconds: float, gpu_seconds: float) -> float:
    """Return how long a run takes with the GPUs: their work and that of the CPUs overlap, the slower one decides."""
    if not gpu_seconds or not where.gpus:
        return cpu_seconds
    return max(cpu_seconds, gpu_seconds / (where.gpus * where.nodes))


def _free_bytes(where: PlannedMachine, location: str) -> int | None:
    return free_space(location) if where.is_this_machine else None


def _probe_figures(tried: Probe | None) -> dict[str, Any]:
    """Return the fields of a plan that come from a probe alone."""
    if tried is None:
        return {"kept_share": None, "probe_bytes": 0, "probe_documents": 0}
    n_documents = tried.measured.n_documents
    return {
        "kept_share": round(tried.n_written / max(n_documents, 1), 4),
        "probe_bytes": tried.measured.conditions.decoded_bytes,
        "probe_documents": n_documents,
    }


def _dataset(files: FileList, tried: Probe | None, past: Sequence[RunMeasurement]) -> Dataset:
    """Return the dataset, with the decoded size from the probe, else the last run, else the shipped table."""
    kinds = Counter(kind_of(path) for path in files.paths)
    last = past[-1].conditions if past else None
    sizes = [max(size, 0) for size in files.sizes]
    stored = sum(sizes)
    if tried is not None:
        ratios = [tried.ratios.get(kind_of(path), 1.0) for path in files.paths]
        decoded = sum(size * ratio for size, ratio in zip(sizes, ratios, strict=True))
    elif last is not None and last.decoded_bytes > last.input_bytes and any(kind not in _PLAIN for kind in kinds):
        decoded = stored * last.decoded_bytes / last.input_bytes
    else:
        decoded = shipped_table.decoded_bytes(files.paths, sizes)
    return Dataset(len(files), dict(kinds), stored, int(decoded))


def _conditions(
    job: Job,
    settings: dict[str, Any],
    data: Dataset,
    past: Sequence[RunMeasurement],
    budget: int,
    where: PlannedMachine,
    block: int,
) -> Conditions:
    last = past[-1].conditions if past else None
    fixed = last.fixed_bytes if last else shipped_table.FIXED_BYTES
    worker = last.worker_bytes if last else shipped_table.WORKER_BYTES
    shares, _ = share_pool(budget, fixed, worker, job, settings.get("workers"), where.cores)
    streams = any(kind not in _PLAIN for kind in data.kinds)
    queue = data.decoded_bytes if settings.get("mode") == "batch" else parse_size(settings.get("queue", "256MB"))
    return Conditions(
        budget,
        shares.n_workers,
        fixed,
        worker,
        shares.cap_bytes,
        data.input_bytes,
        data.decoded_bytes,
        block,
        queue if streams or len(job.segments) > 1 else 0,
    )


def _document_bytes(data: Dataset, past: Sequence[RunMeasurement]) -> float:
    means = [m.conditions.decoded_bytes / m.n_documents for m in past if m.n_documents and m.conditions.decoded_bytes]
    return data.document_bytes or (means[-1] if means else shipped_table.DOCUMENT_BYTES)
