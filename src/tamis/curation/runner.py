"""Running a curation: its deduplications are decided one after the other, then one pass writes.

Each group of deduplications is decided by a workflow (group.py), whose files are in `<output>.tamis/curation/N`; the
last pass is an ordinary run into the output, whose ledger, verdicts and report describe every step. Finished parts are
not done again. `<output>.tamis/curation.json` is written last, and the files between passes are removed then.
"""

from __future__ import annotations

import contextlib
import copy
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from tamis import files
from tamis.backends.alerting import summary_of
from tamis.backends.execution import leave_report
from tamis.curation.card import Describe
from tamis.curation.expected import CurationExpectation, RunTotals
from tamis.curation.group import Group
from tamis.curation.mixing import Draw, SourceMix
from tamis.curation.output import CARD, drop_card, finish_output, forget_output, stored_bytes, tidy_output
from tamis.curation.planner import DecisionGroup
from tamis.curation.replay import Replay
from tamis.curation.result import CurationFacts, CurationResult
from tamis.curation.state import ChoiceTask, CurationRecord, ScoresTask
from tamis.curation.steps import Buckets, CorpusStep
from tamis.dedup import state
from tamis.dedup.output_directory import OutputDirectory
from tamis.dedup.pass_runner import PassRunner, PassSession, WorkflowInput, WorkflowSettings
from tamis.dedup.stages import RecordWriter
from tamis.dedup.state import Summary
from tamis.engine.job import make_job
from tamis.engine.monitor.database import RunDatabase
from tamis.engine.progress import Progress
from tamis.engine.run.identity import describe_job, differences
from tamis.engine.run.input_identity import InputGuard
from tamis.engine.run.output.directory import RunDir, remove_own_folder
from tamis.engine.run.run_result import RunResult
from tamis.engine.run_record import RunCounts, RunRecorder, load_run_record
from tamis.engine.schema import Manifest, StageDescription
from tamis.errors import ConservationError, RunConflict, UsageError
from tamis.memory.sampler import Mark, record_peak
from tamis.pipeline import Pipeline
from tamis.stages.base import ProcessingStage
from tamis.stages.io import ReadHints, with_hints
from tamis.stages.text.tokens.stages import Tokenize
from tamis.stores import options as stores
from tamis.stores.run_locations import run_dir_of
from tamis.stores.scratch_references import remove_referenced_below

if TYPE_CHECKING:
    from tamis.curation.curation import Curation

_FORKED = [
    "tamis.dedup.solver",
    "tamis.dedup.stages",
    "tamis.dedup.replay_tables.stages",
    "tamis.curation.scores",
    "tamis.curation.source_limits",
    "tamis.curation.packer",
    "tamis.curation.token_packer",
]
_WRITE_WEIGHT, _STEP_WEIGHT = 0.5, 0.25  # of the last pass and of each step in it, in units of a first pass
_FRESH = "start over with fresh (--fresh)"


class CurationRun:
    """One run of a curation. Call `run` once.

    `settings`: those of a run (memory, workers, scratch, timeout, fresh, ...).
    """

    def __init__(
        self, curation: Curation, settings: Mapping[str, Any], progress: Progress | None, executor: Any
    ) -> None:
        self.curation = curation
        self.output = OutputDirectory(curation.output_path, "curation or deduplication", "curation.json")
        self.settings = WorkflowSettings.parse(settings, curation.output_path, "use a step that samples")
        self.session = PassSession(executor, self.settings)
        self.runner = PassRunner(self.session, self.settings, progress or (lambda _: None))
        options = (curation.writer().write_kwargs or {}).get("storage_options")
        # The output is looked at before the last pass.
        stores.remember(self.output.path, options, "write_kwargs: storage_options")
        if self.output.home != self.output.path and curation.writing.is_packed:
            raise UsageError(
                "shard_size, split and shuffle join files on this machine; give a local output and copy it, or leave "
                "them out"
            )
        self.work_path = os.path.join(self.output.run_dir, "curation")
        self.guard = InputGuard(os.path.join(self.work_path, "inputs.json"))
        self.input = WorkflowInput(curation.name, curation.source, lambda: self.guard)
        self.plan = curation.plan()
        self.replay = Replay(curation.steps)
        self.groups = [Group(self, k) for k in range(len(self.plan.groups))]

    @cached_property
    def _left_out(self) -> list[str]:
        """Return a sentence on each step and each source that this run does without."""
        return [*map(str, self.curation.left_out), *self.curation.ignored_sources()]

    def run(self, is_shown: bool = False) -> CurationResult:
        """Run all passes. `is_shown`: alerts are printed, too."""
        with self.session.watch_alerts(self.curation.name, self.output.run_dir, is_shown):
            result = self._run_passes() if self.settings.shard is None else self._run_shard()
        runners = [*(group.workflow.runner for group in self.groups), self.runner]
        result.leaks = [leak for runner in runners for leak in runner.leaks]
        result.alerts = summary_of(self.session.watch)
        result.left_out = self._left_out
        return result

    def _run_passes(self) -> CurationResult:
        started_s = time.monotonic()
        with (
            record_peak(self.settings.counts_caller) as mark,
            self.output.locked(self, self.settings.fresh),
            self._processes(),
        ):
            identity = self._identity()
            record = self._read_record()
            identity_file = os.path.join(self.work_path, "identity.json")
            self._check_identity(files.read_json(identity_file) if record is None else record.identity, identity)
            if record is not None:
                self.output.check_input(self.input.files(self.work_path, self.settings.scratch))
                tidy_output(self.output.home, record.output_files)
                self.remove_work()
                deduplications = cast("dict[str, Summary]", record.deduplications)
                facts = cast("CurationFacts", record.about)
                whole = load_run_record(self.output.run_dir)
                return CurationResult("already", self.output.path, None, deduplications, about=facts, record=whole)
            files.write_json(identity_file, identity)
            with self.session.recorded(
                self.curation.name, self.output.run_dir, mark, started_s, self.has_commits()
            ) as recorder:
                return self._run_recorded(recorder, identity, mark, started_s)

    def _run_recorded(
        self, recorder: RunRecorder, identity: dict[str, Any], mark: Mark, started_s: float
    ) -> CurationResult:
        self._plan_passes()
        expectation = CurationExpectation(self.curation, self.settings.budget_bytes(), self.settings.n_workers())
        is_whole = not self.has_commits()  # in this session; nothing is learned from the rest of a run
        expectation.begin()
        summaries: dict[str, Summary] = {}
        scratch_bytes = 0
        for group in self.groups:
            summaries |= group.decide()
            self.replay.add(group)
            scratch_bytes = max(scratch_bytes, group.workflow.scratch_bytes)
        written = self._write(**({"merge": True} if self.settings.merge and not self.groups else {}))
        self._check_counts(written, summaries)
        self._keep_duplicates()
        self._keep_scores()
        self._complete_manifest()
        output_files = finish_output(self, written)
        facts = self._facts(written, mark.peak_bytes, time.monotonic() - started_s)
        if self.curation.writing.tokens is not None:
            facts |= self._token_facts(written, output_files.numbers)
        output_bytes = stored_bytes(self.output.home, written, output_files)
        if output_files.replaced:
            facts |= {"n_files": sum(name != CARD for name in output_files.files), "written_bytes": output_bytes}
        record = CurationRecord(
            identity,
            {name: dict(summary) for name, summary in summaries.items()},
            self.plan.to_dict(),
            dict(facts),
            output_files,
        )
        # Where the output is in a bucket, another machine knows by these that all is done.
        self.output.write_record(state.to_dict(record), "duplicates", "scores")
        self.remove_work()
        tidy_output(self.output.home, output_files)
        labels = written.duplicate_labels
        whole = recorder.finish(RunCounts.of_ledger(written.ledger, labels), duplicate_stages=labels)
        written.report = leave_report(self.output.run_dir)
        self.output.keep_end()
        if is_whole:
            expectation.end(
                RunTotals(
                    facts["seconds"],
                    mark.peak_bytes,
                    scratch_bytes,
                    written.ledger.read_bytes,
                    output_bytes,
                    written.ledger.records.n,
                )
            )
        return CurationResult(
            "finished",
            self.output.path,
            written,
            summaries,
            time.monotonic() - started_s,
            mark.peak_bytes,
            scratch_bytes,
            facts,
            record=whole,
            prediction=expectation.prediction,
        )

    def _plan_passes(self) -> None:
        """Record which passes are to come, as far as that is known before the first one."""
        for group, planned in zip(self.groups, self.plan.groups, strict=True):
            group.plan_passes(len(planned.before))
        chosen = ["numbers", "decision-sources"] if any(s.max_documents for s in self.curation.sources) else []
        ends = ["scores"] if self.groups else []
        ends += ["packing"] if self.curation.writing.is_packed else []
        weight = (_WRITE_WEIGHT if self.groups else 1.0) + _STEP_WEIGHT * len(self.plan.last)
        self.runner.plan([*chosen, "write", *ends], {"write": weight})

    def _run_shard(self) -> CurationResult:
        """Process one part of the input.

        Goes up to the keys of the first deduplication, or does everything if there is none.
        """
        started_s = time.monotonic()
        if self.groups:
            part = self.groups[0].run_shard()
            output, n, peak = part.output, part.n_documents, part.peak_bytes
        else:
            written = self._write(shard=self.settings.shard, fresh=self.settings.fresh)
            output, n, peak = written.output, written.ledger.written.n, written.peak_bytes
        seconds = time.monotonic() - started_s
        return CurationResult("shard", output, seconds=seconds, peak_bytes=peak, about={"n_documents": n})

    # -- contents of the output (dedup/output_directory.py) -----------------------------------------------------------
    def check_output(self, run: RunDir) -> None:
        run.check_foreign(None)
        if not len(self.curation.files()):
            raise UsageError(f"{self.curation.name}: no input files in {self.curation.file_list_paths()}")

    def forget(self) -> None:
        drop_card(self.output.path)
        record = self._read_record()
        forget_output(self.output.home, None if record is None else record.output_files, self.work_path)
        self.remove_work()

    def open_work(self) -> str:
        files.own_folder(self.work_path, "give another output, or start over with fresh (--fresh)")
        self._provide_result_folders()
        self.runner.progress({"phase": "opened"})
        return self.work_path

    def has_commits(self) -> bool:
        return self.output.run.has_commits() or any(group.has_commits() for group in self.groups)

    def remove_work(self) -> None:
        if remove_referenced_below(self.work_path):  # also of deduplications that this curation no longer has
            remove_own_folder(self.work_path)

    def _read_record(self) -> CurationRecord | None:
        data = self.output.read_record()
        return None if data is None else state.from_dict(CurationRecord, data, self.output.record_path)

    def _provide_result_folders(self) -> None:
        """Give a folder to each expensive step before a deduplication, to store its results for later passes."""
        for i in (i for group in self.plan.groups for i in group.before):
            step = self.curation.steps[i]
            if isinstance(step, ProcessingStage) and step.traits.keeps_results:
                folder = os.path.join(self.work_path, f"kept-{i}")
                files.own_folder(folder, _FRESH)
                step.keep_between_passes(folder)
        if self.plan.text_keeper is not None:
            files.own_folder(self._records_folder, _FRESH)

    @contextlib.contextmanager
    def _processes(self) -> Iterator[None]:
        of_groups = [group.workflow.passes for group in self.groups]
        stages = [*self.curation.steps, *(s for p in of_groups for s, _ in p.keys or p.keys_of(1))]
        is_needed = self.session.executor is None and self.output.read_record() is None
        with self.session.processes(self.work_path, _FORKED, stages, start=is_needed):
            yield

    # -- identity -----------------------------------------------------------------------------------------------------
    def _identity(self) -> dict[str, Any]:
        """Describe this curation, so that another one is not mixed with it; inputs are compared by each pass."""
        steps = self.curation.steps
        plain = [s for s in steps if isinstance(s, ProcessingStage)]
        stages = Pipeline("", stages=[self.curation.source(), *plain, self.curation.writer()]).build()
        sources = self.curation.sources
        job = make_job("", stages, on_cluster=self.session.is_cluster)
        left_out = [step.name for step in self.curation.left_out]
        return {
            "steps": [s.name for s in steps],
            **({"left_out": left_out} if left_out else {}),
            "text_field": next((s.text_field for s in steps if isinstance(s, CorpusStep)), "text"),
            "deduplications": {group.name: group.workflow.passes.identity for group in self.groups},
            "writing": {
                **self.curation.writing.to_dict(),
                "weights": [s.weight for s in sources],
                "max_documents": [s.max_documents for s in sources],
                "upsample": [s.upsample for s in sources],
            },
            "stages": [s.to_dict() for s in describe_job(job, {})],
        }

    def _check_identity(self, earlier: dict[str, Any] | None, now: dict[str, Any]) -> None:
        """Raise RunConflict if the output has results of another curation."""
        now = json.loads(json.dumps(now))
        if earlier is None or earlier == now or (not self.has_commits() and self.output.read_record() is None):
            return
        if earlier.get("left_out", []) != now.get("left_out", []):
            changed = _left_out_change(earlier.get("left_out", []), now.get("left_out", []))
        elif earlier.get("steps") != now["steps"]:
            changed = (
                f"its steps were {earlier.get('steps')} and are {now['steps']}; a recipe that has the earlier ones "
                "resumes it (presets may change from version to version)"
            )
        elif changes := differences(
            *([StageDescription(**s) for s in identity["stages"]] for identity in (earlier, now))
        ):
            changed = changes[0]
        elif earlier.get("deduplications") != now["deduplications"]:
            changed = "a parameter of a deduplication differs"
        elif earlier.get("text_field") != now["text_field"]:
            changed = f"its text field was {earlier.get('text_field')!r} and is {now['text_field']!r}"
        elif earlier.get("writing") != now["writing"]:
            changed = f"it was written with {earlier.get('writing')} and is to be with {now['writing']}"
        else:  # the same stages, from other modules
            return
        raise RunConflict(
            f"{self.output.path} already contains another curation: {changed}; give another output, or start over "
            "with fresh (--fresh)"
        )

    # -- the passes ---------------------------------------------------------------------------------------------------
    def reader_for_replay(self) -> Any:
        """Return a fresh reader whose verdicts record the positions of records, for later passes."""
        return with_hints(self.curation.source(), ReadHints(keep_hashes=True))

    def hints_of(self, group: DecisionGroup, name: str) -> ReadHints:
        """Return how a pass of a group reads: its verdicts record the positions of records, for later passes."""
        runs_maker = name == "keys-0" and self.plan.text_keeper in group.before
        folder = None if self.plan.text_keeper is None else self._records_folder
        return ReadHints(
            keep_hashes=True,
            keep_records_in=folder if runs_maker else None,
            kept_records=None if runs_maker else folder,
        )

    @property
    def _records_folder(self) -> str:
        return os.path.join(self.work_path, "kept-records")

    def _execute_checked(self, pipeline: Pipeline, label: str, **more: Any) -> RunResult:
        if more.get("shard") is not None:  # the only pass
            return self.runner.execute(pipeline, label, **more)
        return self.runner.execute_checked(pipeline, label, self.input, self.work_path, **more)

    def _write(self, **more: Any) -> RunResult:
        """Run the last pass, which writes the output."""
        source: Any = self.curation.source()
        if self.groups:
            indexes = (group.workflow.known_records() for group in self.groups)
            index = next((folder for folder in indexes if folder is not None), None)
            all_valid = self.groups[0].workflow.is_clean()
            # Rejected documents are written as they were read, with all of their fields.
            has_all = self.plan.text_keeper is None or self.settings.of_passes.get("keep_rejected")
            kept = None if has_all else self._records_folder
            source = with_hints(source, ReadHints(all_valid=all_valid, record_index=index, kept_records=kept))
        last = [self.curation.steps[i] for i in self.plan.last]
        if (mix := self.curation.mix()) is not None:
            if any(mix.most):
                mix.limits = self._choose_documents(source, list(last), mix, **more)
            last.append(mix)
        describe = self._describe()
        stages: list[Any] = [source, *self.replay.stages(), *last, *describe, self.curation.writer()]
        pipeline = Pipeline(self.curation.name, stages=stages)
        return self._execute_checked(pipeline, "write", **self._of_output(), **more)

    def _describe(self) -> list[Describe]:
        """Return the stage that counts what is written: for the card, and the tables of buckets and tokens."""
        steps, count = self.curation.steps, self.curation.token_count()
        buckets = [step.bucket_field for step in steps if isinstance(step, Buckets)]
        if not (self.curation.writing.card or buckets or count is not None):
            return []
        field = None if count is None else count.count_field
        return [Describe(self.curation.text_field, tokens_field=field, bucket_fields=buckets)]

    def _of_output(self) -> dict[str, Any]:
        """Return the settings of the pass that writes: size of files, and folders by fields."""
        writing, of_output = self.curation.writing, self.settings.of_output
        if writing.is_packed:
            if of_output.get("partition_by"):
                raise UsageError(
                    "partition_by: folders by field do not go with split, shuffle, tokens, or shard_size in write; "
                    "leave those out; file_size is the size of files"
                )
            return {}
        size = {} if writing.file_bytes is None else {"file_size": writing.file_bytes}
        return {**of_output, **size}

    def _choose_documents(self, source: Any, last: list[Any], mix: SourceMix, **more: Any) -> str:
        """Choose the documents to write where a source has max_documents.

        One pass draws a number for each remaining document; then the number up to which documents are written is
        decided.
        """
        if more.get("shard") is not None or more.get("merge"):
            raise UsageError("sources: max_documents chooses among all documents, so that it cannot be done by shards")
        folder = os.path.join(self.work_path, "mix")
        files.own_folder(folder, _FRESH)
        limits = os.path.join(folder, "limits.json")
        if not os.path.exists(limits):
            counted = [step for step in last if not isinstance(step, Tokenize)]
            stages = [copy.deepcopy(source), *self.replay.stages(), *copy.deepcopy(counted)]
            draw = Draw(mix.first_files, mix.text_field)
            drawn = os.path.join(folder, "draws")
            pipeline = Pipeline(f"{self.curation.name}: numbers", stages=[*stages, draw, RecordWriter(drawn)])
            result = self._execute_checked(pipeline, "numbers", keep_rejected=False)
            paths = [os.path.join(drawn, f.name) for f in result.files]
            task = ChoiceTask(paths, mix.most, limits)
            self.runner.run_task(folder, task, "tamis.curation.source_limits", "decision-sources")
        return limits

    def _check_counts(self, written: RunResult, summaries: Mapping[str, Summary]) -> None:
        """Check that the last pass removed as many documents as were decided, except for those in quarantine."""
        ledger = written.ledger
        for group in self.groups:
            if group.kind.changes_text:
                continue
            for name in group.step_names:
                n_decided = summaries[name]["n_duplicates"]
                n_removed = sum(t.n for b in ledger.stages if b.name == name for t in b.dropped.values())
                if not 0 <= n_decided - n_removed <= ledger.quarantined.n:
                    raise ConservationError(
                        f"{name}: {n_decided:,} documents were found to be duplicates, but the pass that removes them "
                        f"removed {n_removed:,}; do not use {self.output.path}, start over with fresh (--fresh)"
                    )

    # -- results next to the output -----------------------------------------------------------------------------------
    def _keep_duplicates(self) -> None:
        """Move the tables for people into the run directory, named after their step."""
        target = os.path.join(self.output.run_dir, "duplicates")
        for group in self.groups:
            for name, folder in group.tables_of_duplicates().items():
                for file in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
                    os.makedirs(target, exist_ok=True)
                    files.move(os.path.join(folder, file), os.path.join(target, f"{name}-{file}"))

    def _complete_manifest(self) -> None:
        """Add what the last pass did not see: distributions of scores of earlier passes, and steps left out."""
        run = self.output.run
        manifest = run.read_manifest()
        if manifest is None or not (self.groups or self._left_out):
            return
        manifest.remarks = self._left_out
        tables = {(table["stage"], table["name"]) for table in manifest.histograms}
        for group in self.groups:
            earlier = RunDir(os.path.join(group.workflow.work.path, "keys-0")).read_manifest() or Manifest()
            for table in earlier.histograms:
                if table["kind"] == "score" and (key := (table["stage"], table["name"])) not in tables:
                    tables.add(key)
                    manifest.histograms.append(table)
        run.write_manifest(manifest)
        database = RunDatabase(os.path.join(run.path, "run.sqlite"))
        database.histograms(manifest.histograms)
        database.close()

    def _keep_scores(self) -> None:
        """Keep the scores of rules that only earlier passes applied, for `tamis rethreshold`."""
        if not self.groups:
            return
        folder = os.path.join(self.work_path, "scores")
        files.own_folder(folder, _FRESH)
        passes = [run_dir_of(os.path.join(group.workflow.work.path, "keys-0")) for group in self.groups]
        task = ScoresTask(passes, self.output.run_dir)
        self.runner.run_task(folder, task, "tamis.curation.scores", "scores")

    def _token_facts(self, written: RunResult, numbers: dict[str, int]) -> CurationFacts:
        metrics = next((dict(b.metrics) for b in written.ledger.stages if b.name == "tokenize"), {})
        facts: CurationFacts = {"n_tokens": int(metrics.get("tokens", 0))}
        if self.curation.writing.tokens is not None and self.curation.writing.tokens.sequence_length is not None:
            facts |= {"n_sequences": numbers.get("rows", 0), "n_padding": numbers.get("padding", 0)}
        return facts

    def _facts(self, written: RunResult, peak_bytes: int, seconds: float) -> CurationFacts:
        ledger = written.ledger
        return {
            "n_records": ledger.records.n,
            "n_written": ledger.written.n,
            "n_dropped": ledger.n_dropped,
            "n_quarantined": ledger.quarantined.n,
            "content_hash": f"{ledger.content.identity:032x}",
            "peak_bytes": peak_bytes,
            "seconds": round(seconds, 3),
        }


def _left_out_change(before: Sequence[str], now: Sequence[str]) -> str:
    """Describe which steps only one of two calls left out, because a package was missing."""
    names = ", ".join(map(repr, sorted(set(before) ^ set(now))))
    one = "only one of them" if before and now else f"the {'earlier' if before else 'present'} one alone"
    return f"{names} was left out by {one}, because a package that it needs is not installed everywhere"
