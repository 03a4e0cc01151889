"""The passes of a deduplication, one after the other, each resumable: keys, decision, removal.

Everything lies in `<output>/_tamis/dedup` (or under the scratch folder) and is removed at the end, but for the tables that
people read. Passes over documents are runs of the engine with all its promises; the decision between them is a process of its own
(solver.py). The process that drives this stays small: it imports neither numpy nor Arrow.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from typing import Any

from tamis import files
from tamis.backends.alerting import summary_of
from tamis.dedup.expected import DedupExpectation
from tamis.dedup.passes import DedupResult
from tamis.dedup.planning import check_room, solver_room
from tamis.dedup.progress_files import read_json, write_json
from tamis.dedup.range_passes import ranges
from tamis.dedup.range_passes.passes import Spreading
from tamis.dedup.record_writer import RecordWriter
from tamis.dedup.removal import RemoveDuplicates
from tamis.dedup.work_folder import WorkFolder
from tamis.engine.ledger import Ledger
from tamis.engine.run.output.directory import RunDir
from tamis.errors import ConservationError, Incomplete, UsageError, WorkerError
from tamis.formats.input_files.names import ends_in
from tamis.memory.sampler import watching
from tamis.pipeline import Pipeline
from tamis.pipeline.passes import seen_by, tell
from tamis.sizes import parse_size
from tamis.stages.base import ProcessingStage
from tamis.stages.file_partitioning import JSONL_SUFFIXES
from tamis.stages.io import ReadHints, with_hints
from tamis.stores import options
from tamis.stores.scratch_files import bytes_below
from tamis.stores.urls import is_bucket, is_remote

_THREAD_BYTES = 64_000_000  # of the room, for each thread that compares texts


class Workflow(WorkFolder):
    """Call `run` once. `settings` are those of a run: memory, workers, scratch, timeout, fresh, ...; `watch` sees every sample."""

    def run(self) -> DedupResult:
        """Run all passes, and the removal.

        Progress goes to the given function, or is shown (True) with a sentence at the end.
        """
        if (self.shard is not None or self.merge) and not self.passes.keys and self.passes.choose is None:
            raise UsageError(
                f"{self.passes.name} is done as a whole and not by shards; leave {'merge' if self.merge else 'shard'} out"
            )
        with seen_by(self._asked) as self.progress, self._alerted(self.passes.name, self._asked is True):
            result = self._all_passes() if self.shard is None else self.run_shard()
        result.leaks, result.alerts = self.leaks, summary_of(self.watch)
        if self._asked is True:
            tell(f"{self.passes.name}: {result.in_one_line(self.passes.writer is not None)}")
        return result

    def _all_passes(self) -> DedupResult:
        began_s = time.monotonic()
        with watching(bool(self.settings.get("count_caller"))) as self._mark, self._locked(), self._processes():
            done = self._done()
            if done is not None:
                self._same(done["identity"])
                self._write_ids(done)
                if self.passes.step is None:
                    self.remove_work()
                return DedupResult(
                    "already", self.output, self.duplicates, done["summary"], counted=self.passes.counted
                )
            self._same(self._told("identity.json"))
            write_json(os.path.join(self.work, "identity.json"), self._identity())
            expectation = DedupExpectation(self)
            expectation.begin()
            self._pin_index()
            summary = self._decided()
            scratch_bytes = self.scratch_bytes
            self._check_loss(summary)
            removed = self._remove() if self.passes.writer is not None else None
            summary.update(self._counted(summary, removed))
            summary["passed_over"] = self._told("passed_over.json") or []
            summary.update(self._set_aside(removed))
            expectation.end(time.monotonic() - began_s, summary, removed)
            self._add_to_index()
            about = {k: v for k, v in summary.items() if not k.endswith("_by_file")}
            done = {"identity": self._identity(), "summary": about}
            if removed is None and (reference := self.guard.reference()) is not None:
                done["inputs"] = reference.to_dict()
            RunDir(self.output).keep_files("duplicates", *(() if removed is not None else ("quarantine",)))
            self._note(done)
            self._write_ids(done)
            if self.passes.step is None:
                self.remove_work()
        seconds = time.monotonic() - began_s
        return DedupResult(
            "finished",
            self.output,
            self.duplicates,
            about,
            seconds,
            self.peak_bytes,
            scratch_bytes,
            removed,
            self.passes.counted,
            expectation.prediction,
        )

    def run_shard(self) -> DedupResult:
        """Compute the keys of one part of the input.

        They are written to a folder of the output where `merge` reads them. Nothing is decided yet.
        """
        began_s = time.monotonic()
        ((stage, _),) = self._keys(everything=True)
        pipeline = Pipeline(f"{self.passes.name}: keys-0", stages=self._stages("keys-0", stage, self._shards))
        self.settings |= {"shard": self.shard, "fresh": self.fresh}
        result = self._execute(pipeline, "keys-0")
        counted = {"n_documents": result.ledger.written.n, "n_duplicates": 0}
        return DedupResult(
            "shard",
            result.output,
            "",
            counted,
            time.monotonic() - began_s,
            result.peak_bytes,
            counted=self.passes.counted,
        )

    @property
    def _shards(self) -> str:
        """The folder of what shards make."""
        output = self.passes.step.output if self.passes.step is not None else self.output
        return f"{output}/shard-keys-0" if is_bucket(output) else os.path.join(output, "shard-keys-0")

    def _keys(self, everything: bool = False) -> list[tuple[ProcessingStage[Any, Any], list[int]]]:
        """Return the stages that compute keys, each with its bands.

        `everything`: in one pass, as shards do it.
        """
        if self.passes.choose is None:
            return self.passes.keys
        chosen = _ALL_BANDS if everything else self._told("chosen.json") or self.passes.choose(self.far or self.work)
        if not everything or self.merge:
            write_json(os.path.join(self.work, "chosen.json"), chosen)  # a resumed run must not choose again
        return self.passes.keys_of(chosen)

    def _stages(self, name: str, stage: ProcessingStage[Any, Any], folder: str) -> list[Any]:
        before = self.passes.step.before(name) if self.passes.step is not None else self.passes.before
        return [self._source(), *before, stage, RecordWriter(folder)]

    def _counted(self, summary: dict[str, Any], removed: Any) -> dict[str, Any]:
        """Check after the removal that exactly the intended documents were removed.

        A document may be quarantined in one pass (a worker crashed on it) and not in the other: the number of
        documents that each pass met must be the same, and those that were to be removed and were not must be in
        quarantine. Documents that were written without having been compared are reported.
        """
        if removed is None or self.passes.remove is not None:
            return {}
        ledger, n_aside = removed.ledger, int(self._told("n_quarantined.json") or 0)
        n_gone = sum(t.n for book in ledger.stages for t in book.dropped.values())
        n_seen = ledger.written.n + n_gone + ledger.quarantined.n
        n_found = summary["n_documents"] + n_aside
        if n_seen != n_found or not 0 <= summary["n_duplicates"] - n_gone <= ledger.quarantined.n:
            raise ConservationError(
                f"{n_found:,} documents were read to be compared and {summary['n_duplicates']:,} found to be duplicates, but the pass that "
                f"removes them met {n_seen:,} and removed {n_gone:,}; do not use {self.output}, start over with fresh (--fresh)"
            )
        n_unseen = max(0, n_aside - ledger.quarantined.n)
        return {"n_not_compared": n_unseen} if n_unseen else {}

    def _set_aside(self, removed: Any) -> dict[str, int]:
        """Documents in quarantine, and stretches of input without any, by the pass that removes; where none does, by the first one, whose
        quarantine is copied out of the work folder then: it would go with that."""
        if removed is not None:
            return {"n_quarantined": removed.ledger.quarantined.n, "n_bad_ranges": removed.ledger.n_bad_ranges}
        first = RunDir(self._output_of("keys-0"))
        done, entries = first.read_json("manifest.json"), first.quarantine
        ledger = Ledger() if done is None else Ledger.from_dict(done["ledger"], histograms=False)
        found = {"n_quarantined": ledger.quarantined.n, "n_bad_ranges": ledger.n_bad_ranges}
        if any(found.values()) and self.passes.step is None and os.path.isdir(entries):
            kept = os.path.join(self.run_dir, "quarantine")
            files.own_folder(kept, "start over with fresh (--fresh)", 0o755)
            for name in sorted(os.listdir(entries)):
                target = os.path.join(kept, name)
                with open(os.path.join(entries, name), "rb") as entry, files.replacing(target, files.OWN) as copy:
                    shutil.copyfileobj(entry, copy)
        return found

    @property
    def peak_bytes(self) -> int:
        """The most in use so far, all processes together."""
        return self._mark.peak_bytes

    # -- the index ------------------------------------------------------------------------------------------------------
    def _pin_index(self) -> None:
        """Record at the start what is compared with, so that an index changing meanwhile does not change any numbers."""
        from tamis.dedup.index import index

        p = self.passes
        if p.index is not None and p.index != p.against:
            index.refuse_existing(p.index, p.output)
        if p.against is None:
            return
        pins = self._told("older.json")
        if pins is None:
            pins = index.pinned(p.against, p.index_kind, p.index_parameters, p.output)
            write_json(os.path.join(self.work, "older.json"), pins)
        elif self._told("summary.json") is None:
            index.check_pins(p.against, pins)

    def _add_to_index(self) -> None:
        p = self.passes
        if p.index is None:
            return
        about = {"path": p.index, "kind": p.index_kind, "parameters": p.index_parameters, "output": p.output}
        folder = self._output_of("keys-0")
        files = sorted(os.path.join(folder, f["name"]) for f in RunDir(folder).files().written())
        self._solve(["index"], records=files, index=about | {"input": p.identity.get("input")})

    @contextlib.contextmanager
    def _processes(self) -> Iterator[None]:
        keys = self.passes.keys or self.passes.keys_of(1)
        with self._forking(["tamis.dedup.solver", "tamis.dedup.removal"], [stage for stage, _ in keys], at_once=True):
            yield

    # -- the passes -----------------------------------------------------------------------------------------------------
    def _decided(self) -> dict[str, Any]:
        """Run all passes up to the decision; what an earlier call finished is not done again."""
        if self._told("summary.json") is None:
            shutil.rmtree(self.duplicates, ignore_errors=True)
            self._same_room()
            first = self._link_bands()
            if self.passes.texts is not None and self._told("summary.json") is None:
                candidates = self.table_of("candidates")
                texts = self._pass("texts", self.passes.texts(candidates)) if self._told("candidates.json") else []
                self._solve(["decide"], records=first, texts=texts)
        self._note_scratch()
        summary = self._told("summary.json")
        if summary is None:
            raise WorkerError("the deciding process ended without a result; run the same command again")
        return dict(summary)

    def _same_room(self) -> None:
        """Discard earlier decisions if the memory or the file layout has changed, so that they are taken again.

        Decisions so far are stored in files cut for the memory of that time, in the layout of that version.
        """
        room, earlier = {"room_bytes": self._solver_room(), "layout": _LAYOUT}, self._told("room.json")
        if earlier not in (None, room):
            for name in os.listdir(self.work):
                if name not in _NOT_DECIDED and not name.startswith("keys-"):
                    self._drop(name)
        write_json(os.path.join(self.work, "room.json"), room)

    def _link_bands(self) -> list[str]:
        """Run the passes that compute keys, each followed by its step of the decision; return the files of the first."""
        first: list[str] = []
        keys = self._keys(everything=self.merge)
        last = len(keys) - 1
        for i, (stage, bands) in enumerate(keys):
            folder = f"keys-{i}"
            if i and self._told(f"linked-{i}.json") is not None:
                continue
            files = self._pass(folder, stage)
            first = first or files
            if self._told(f"linked-{i}.json") is None:
                steps = ["link"] if bands else [self.passes.decide]
                if self.passes.step is not None and not i:
                    steps = [*self.passes.step.first_decisions, *steps]
                if i == last and bands:
                    steps += ["candidates"] if self._needs_texts() else ["candidates", "decide"]
                self._note_scratch()
                spread = self._spread(steps, i, first, files, bands)
                self._solve(steps, records=first, linked=files, bands=bands, **spread)
                write_json(os.path.join(self.work, f"linked-{i}.json"), {})
            if i:
                self._drop(folder)
        return first

    def _note_scratch(self) -> None:
        n_bytes = _size_of(self.work) + (bytes_below(self.far) if self.far else 0)
        self.scratch_bytes = max(self.scratch_bytes, n_bytes)

    def _spread(self, steps: list[str], i: int, first: list[str], paths: list[str], bands: list[int]) -> dict[str, Any]:
        """Ranges of keys looked at by all workers of a cluster, where one process would be the bottleneck; what the deciding process is told of it."""
        n = int(self._told("n_records.json") or 0)
        is_by_key = "link" in steps or "exact" in steps
        if not (is_by_key and getattr(self.executor, "is_cluster", False) and n >= ranges.SPREAD_DOCUMENTS):
            return {}
        if self._told("older.json"):  # documents of an index are numbered with the new ones; they are read here alone
            return {}
        n_workers = int(self.settings.get("workers") or len(os.sched_getaffinity(0)))
        # As it was at first: a run that goes on with other workers looks at the ranges that are left, not at others.
        room = self._told("spread.json") or ranges.worker_room(self.budget_bytes(), n_workers)
        write_json(os.path.join(self.work, "spread.json"), room)
        return {
            "spread": Spreading(self.passes.name, self.work, n, int(room), self._execute).look(i, first, paths, bands)
        }

    def _needs_texts(self) -> bool:
        """Return True if texts must be collected to be compared.

        They need not be where each can be read from the input by its position.
        """
        p = self.passes
        plain = all(ends_in(path, JSONL_SUFFIXES) and not is_remote(path) for path in self._told("paths.json") or [""])
        as_read = p.step is None or p.step.is_as_read
        return p.texts is not None and not (plain and as_read and p.against is None)

    def _pass(self, folder: str, stage: ProcessingStage[Any, Any]) -> list[str]:
        """Run one pass over the documents into work/folder and return its files."""
        stages = self._stages(folder, stage, self._output_of(folder))
        pipeline = Pipeline(f"{self.passes.name}: {folder}", stages=stages)
        more = {"merge": self._shards} if self.merge and folder == "keys-0" else {}
        result = self._execute_guarded(pipeline, folder, **more)
        if self._told("checked.json") is None:
            plan = read_json(os.path.join(result.run_dir, "plan.json")) or {}
            write_json(os.path.join(self.work, "paths.json"), plan["inputs"]["paths"])
            write_json(os.path.join(self.work, "passed_over.json"), result.passed_over)
            write_json(os.path.join(self.work, "n_records.json"), result.ledger.written.n)
            write_json(os.path.join(self.work, "n_quarantined.json"), result.ledger.quarantined.n)
            is_clean = not result.ledger.quarantined.n and not result.ledger.n_bad_ranges
            write_json(os.path.join(self.work, "checked.json"), is_clean)  # last: it says that the others are there
        return self._paths_of(result)

    def _paths_of(self, result: Any) -> list[str]:
        """Return the files of a pass, and register their checksums, which the next decision compares."""
        found = {os.path.join(result.output, f["name"]): str(f.get("check", "")) for f in result.files}
        self._unchecked.update(found)
        return list(found)

    def _solver_room(self) -> int:
        return solver_room(self.budget_bytes(), bool(self.far))

    def _n_threads(self) -> int:
        """Return the number of threads of the deciding process.

        As many as workers, each with memory for the texts that it compares.
        """
        n = int(self.settings.get("workers") or len(os.sched_getaffinity(0)))
        return max(1, min(n, self._solver_room() // _THREAD_BYTES))

    def _gpu_bytes(self) -> int:
        """Return how many bytes of GPU memory the deciding process may take; 0: all there is."""
        told = self.settings.get("gpu_memory")
        return 0 if told is None else parse_size(told, "gpu_memory")

    def _checks_of(self, files: Mapping[str, Any]) -> dict[str, str]:
        """Checksums of those files that no decision has compared yet."""
        paths = [path for name in ("records", "linked", "texts") for path in files.get(name) or ()]
        return {path: check for path in paths if (check := self._unchecked.pop(path, ""))}

    def _solve(self, steps: list[str], **files: Any) -> None:
        check_room(self.budget_bytes(), bool(self.far))
        task = {
            "far": self.far, "stores": options.settings(),
            **self.passes.task, **files, "steps": steps, "paths": os.path.join(self.work, "paths.json"),
            "duplicates": self.duplicates, "checks": self._checks_of(files), "older": self._told("older.json") or [], "room_bytes": self._solver_room(),
            "threads": self._n_threads(), "gpu_bytes": self._gpu_bytes(),
        }  # fmt: skip
        self.do_apart(self.work, task, self.progress, "tamis.dedup.solver")

    def _check_loss(self, summary: dict[str, Any]) -> None:
        """Stop before anything is removed when a whole source is about to go."""
        self._refuse_loss(summary, self.passes.max_source_loss, self.duplicates)

    def _refuse_loss(self, summary: dict[str, Any], limit: float, duplicates: str, step: str = "") -> None:
        """Incomplete where a source would lose more than `limit`. `duplicates`: the tables to look at; `step`: of a curation."""
        if (self.passes.writer is None and self.passes.step is None) or limit >= 1.0:
            return
        paths = self._told("paths.json") or []
        totals: dict[str, list[int]] = {}
        for path, n, gone in zip(paths, summary["documents_by_file"], summary["duplicates_by_file"], strict=True):
            entry = totals.setdefault(source_of(path, paths), [0, 0])
            entry[0] += n
            entry[1] += gone
        lost = {s: g / n for s, (n, g) in totals.items() if n >= MIN_SOURCE_DOCUMENTS and g / n > limit}
        if lost:
            worst = max(lost, key=lambda s: lost[s])
            how = (
                "with max_source_loss=1 (--max-source-loss 100%)"
                if self.passes.step is None
                else f"with `max_source_loss: 1` in step {step} of the recipe (a preset: tamis recipe show NAME > mine.yaml, then --preset ./mine.yaml)"
            )
            raise Incomplete(
                f"{step and f'{step}: '}nothing was removed: {len(lost)} of {len(totals)} sources would lose more than {limit:.0%} of their {self.passes.counted} "
                f"({worst}: {lost[worst]:.1%} of {totals[worst][0]:,}). Look at {duplicates}; if that is right, run the same "
                f"{how}: it goes on from here"
            )

    def _remove(self) -> Any:
        assert self.passes.writer is not None
        table = self.table_of("removal")
        names = "paths.json" if self.passes.against is None or not self._told("older.json") else "all_paths.json"
        remove: ProcessingStage[Any, Any] = (
            self.passes.remove(table)
            if self.passes.remove is not None
            else RemoveDuplicates(table, os.path.join(self.work, names), threshold=self.passes.threshold)
        )
        hints = ReadHints(all_valid=bool(self._told("checked.json")), record_index=self.known_records())
        source = with_hints(self._source(), hints)
        pipeline = Pipeline(f"{self.passes.name}: removal", stages=[source, remove, self.passes.writer()])
        return self._execute_guarded(pipeline, "removal")

    def _execute_guarded(self, pipeline: Pipeline, label: str, **more: Any) -> Any:
        """Run a pass over the input, which must be that of the first pass, before it and behind it."""
        self.guard.check(self._files())
        result = self._execute(pipeline, label, **more)
        plan = read_json(os.path.join(result.run_dir, "plan.json")) or {}
        self.guard.confirm(plan["inputs"], result.ledger)
        return result

    def known_records(self) -> str | None:
        """Return the folder that lists the positions of the input's records, or None if it was not written.

        See formats/jsonl/known_records.py.
        """
        folder = os.path.join(self.work, "known")
        return folder if os.path.exists(os.path.join(folder, "kept-runs.npy")) else None


_ALL_BANDS = 1 << 30
# Of files between the steps of a decision; without a number they were 00000.bin where they are 00000.0.bin now.
_LAYOUT = 2
_NOT_DECIDED = {
    "identity.json",
    "inputs.json",
    "checked.json",
    "n_records.json",
    "n_quarantined.json",
    "passed_over.json",
    "paths.json",
    "chosen.json",
    "older.json",
}
MIN_SOURCE_DOCUMENTS = 100  # a handful of documents says nothing about a source


def source_of(path: str, paths: list[str]) -> str:
    """Return the source of a file: its folder, or the file itself if all files are in one folder.

    >>> source_of("s3://b/in/1.jsonl", ["s3://b/in/1.jsonl", "s3://b/in/2.jsonl"])
    's3://b/in/1.jsonl'
    """
    folder = os.path.dirname(path)
    # As they are in a bucket, two slashes would become one.
    common = os.path.commonpath([os.path.dirname(p).replace("://", ":/") for p in paths])
    return path if folder.replace("://", ":/") == common else folder


def _size_of(folder: str) -> int:
    total = 0
    for where, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.path.getsize(os.path.join(where, name))
    return total
