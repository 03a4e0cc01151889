"""Running a curation: its deduplications are decided one after the other, then one pass writes.

Each group of deduplications is a workflow of its own (tamis.dedup.workflow), kept in `<output>/_tamis/curation/N`; the last pass is
an ordinary run into the output, whose ledger, verdicts and report tell of every step. Finished parts are not done
again. `<output>/_tamis/curation.json` is written last, and what lies between passes is removed then.
"""

from __future__ import annotations

import contextlib
import copy
import json
import os
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tamis import files
from tamis.backends.alerting import summary_of
from tamis.curation.describe import Describe
from tamis.curation.group import GroupWorkflow, decided, make_group, without_limit
from tamis.curation.mixing import Draw, Mix
from tamis.curation.output import drop_card, finish_output, forget_output, tidy_output
from tamis.curation.replay import Replay
from tamis.curation.result import CurationResult, pass_facts
from tamis.curation.steps import Deduplication
from tamis.dedup.held_output import HeldOutput
from tamis.dedup.progress_files import read_json, write_json
from tamis.dedup.record_writer import RecordWriter
from tamis.engine.job import make_job
from tamis.engine.run.identity import describe_job, differences
from tamis.engine.run.input_identity import InputGuard
from tamis.engine.run.inputs import find_inputs
from tamis.engine.run.output.directory import RunDir, remove_own_folder
from tamis.errors import ConservationError, RunConflict, UsageError
from tamis.memory.sampler import watching
from tamis.pipeline import Pipeline
from tamis.pipeline.passes import Progress
from tamis.stages.base import ProcessingStage
from tamis.stages.io import ReadHints, with_hints
from tamis.stores import options as stores
from tamis.stores.told_scratch import remove_below

if TYPE_CHECKING:
    from tamis.curation.curation import Curation

_FORKED = [
    "tamis.dedup.solver",
    "tamis.dedup.removal",
    "tamis.dedup.replay_tables.stages",
    "tamis.curation.scores",
    "tamis.curation.share_of_source",
    "tamis.curation.packer",
]


class CurationRun(HeldOutput):
    """Call `run` once."""

    called = "curation or deduplication"
    noted_in = "curation.json"
    instead_of_sample = "use a step that samples"

    def __init__(
        self, curation: Curation, settings: Mapping[str, Any], progress: Progress | None, executor: Any
    ) -> None:
        super().__init__(curation.output_path, settings, executor)
        self.curation = curation
        self.progress = progress or self.progress
        options = (curation.writer().write_kwargs or {}).get("storage_options")
        stores.use(self.output, options, "write_kwargs: storage_options")  # it is looked at before the last pass
        if self.home != self.output and curation.writing.is_packed:
            raise UsageError(
                "shard_size, split and shuffle put files together on this machine; give a local output and copy it, or leave them out"
            )
        self.work = os.path.join(self.run_dir, "curation")
        self.guard = InputGuard(os.path.join(self.work, "inputs.json"))
        self.plan = curation.plan()
        self.replay = Replay(curation.steps)
        self.groups = [make_group(self, k) for k in range(len(self.plan.groups))]
        self.took: list[dict[str, Any]] = []

    def run(self, is_shown: bool = False) -> CurationResult:
        """Run all passes. `is_shown`: alerts are printed, too."""
        with self._alerted(self.curation.name, is_shown):
            for group in self.groups:
                group.watch = self.watch
            result = self._run_passes() if self.shard is None else self._run_shard()
        result.leaks = [leak for part in (*self.groups, self) for leak in part.leaks]
        result.alerts = summary_of(self.watch)
        return result

    def _run_passes(self) -> CurationResult:
        if self.groups:
            self.groups[0].merge = self.merge
        began_s = time.monotonic()
        with watching(bool(self.settings.get("count_caller"))) as mark, self._locked(), self._processes():
            identity = self._identity()
            done = self._done()
            self._same((done or {}).get("identity") or read_json(os.path.join(self.work, "identity.json")), identity)
            if done is not None:
                tidy_output(self.home, done.get("made") or {})
                self.remove_work()
                return CurationResult("already", self.output, None, done["deduplications"], about=done["about"])
            write_json(os.path.join(self.work, "identity.json"), identity)
            summaries: dict[str, dict[str, Any]] = {}
            scratch_bytes = 0
            for group in self.groups:
                summaries |= self._decide(group)
                scratch_bytes = max(scratch_bytes, group.scratch_bytes)
            written = self._write(**({"merge": True} if self.merge and not self.groups else {}))
            self._check_counts(written, summaries)
            self._keep_duplicates()
            self._keep_scores()
            made = finish_output(self, written)
            about = self._about(written, mark.peak_bytes, time.monotonic() - began_s)
            write_json(
                os.path.join(self.run_dir, self.noted_in),
                {"identity": identity, "deduplications": summaries, "plan": self.plan.to_dict(), "passes": self.took, "about": about, "made": made},
            )  # fmt: skip
            # Where the output lies in a bucket, another machine knows by these that all is done.
            RunDir(self.output).keep_files("duplicates", "scores", self.noted_in)
            self.remove_work()
            tidy_output(self.home, made)
        seconds = time.monotonic() - began_s
        return CurationResult(
            "finished", self.output, written, summaries, seconds, mark.peak_bytes, scratch_bytes, self.took, about
        )

    def _run_shard(self) -> CurationResult:
        """Process one part of the input.

        Goes up to the keys of the first deduplication, or does everything if there is none.
        """
        began_s = time.monotonic()
        if self.groups:
            self.groups[0].shard, self.groups[0].fresh = self.shard, self.fresh
            made = self.groups[0].run_shard()
            output, n, peak = made.output, made.n_documents, made.peak_bytes
        else:
            written = self._write(shard=self.shard, fresh=self.fresh)
            output, n, peak = written.output, written.ledger.written.n, written.peak_bytes
        about = {"n_documents": n}
        return CurationResult("shard", output, seconds=time.monotonic() - began_s, peak_bytes=peak, about=about)

    # -- the folder -------------------------------------------------------------------------------------------------------
    def _check_output(self, place: RunDir) -> None:
        place.check_foreign("ignore")
        if not len(self.curation.files()):
            raise UsageError(f"{self.curation.name}: no input files in {self.curation.file_list_paths()}")

    def _forget(self) -> None:
        drop_card(self.output)
        forget_output(self.home, (self._done() or {}).get("made"), self.work)
        self.remove_work()

    def _open_work(self) -> None:
        files.own_folder(self.work, "give another output, or start over with fresh (--fresh)")
        self._keep_dear_results()
        self.progress({"phase": "opened"})

    def _keep_dear_results(self) -> None:
        """Steps before a deduplication run again in later passes: those that can keep what they made get a folder for it."""
        for i in (i for group in self.plan.groups for i in group.before):
            step = self.curation.steps[i]
            if isinstance(step, ProcessingStage) and step.traits.keeps_results:
                folder = os.path.join(self.work, f"kept-{i}")
                files.own_folder(folder, "start over with fresh (--fresh)")
                step.keep_between_passes(folder)

    @contextlib.contextmanager
    def _processes(self) -> Iterator[None]:
        stages = [*self.curation.steps, *(s for g in self.groups for s, _ in g.passes.keys or g.passes.keys_of(1))]
        with self._forking(_FORKED, stages, at_once=self.executor is None):
            yield

    def has_commits(self) -> bool:
        return RunDir(self.output).has_commits() or any(group.has_commits() for group in self.groups)

    def remove_work(self) -> None:
        if remove_below(self.work):  # also of deduplications that this curation no longer has
            remove_own_folder(self.work)

    def _identity(self) -> dict[str, Any]:
        """Describe this curation, so that another one is not mixed with it; inputs are compared by each pass."""
        steps = self.curation.steps
        plain = [s for s in steps if isinstance(s, ProcessingStage)]
        stages = Pipeline("", stages=[self.curation.source(), *plain, self.curation.writer()]).build()
        return {
            "steps": [s.name for s in steps],
            "text_field": next((s.text_field for s in steps if isinstance(s, Deduplication)), "text"),
            "deduplications": {g.name: g.passes.identity for g in self.groups},
            "writing": self.curation.writing.to_dict()
            | {"weights": [s.weight for s in self.curation.sources], **self._most()},
            "stages": describe_job(make_job("", stages, on_cluster=getattr(self.executor, "is_cluster", False)), {}),
        }

    def _most(self) -> dict[str, Any]:
        """Return what sources request in addition to their weights.

        Empty where they request nothing, like the identity of versions that do not know these options.
        """
        sources = self.curation.sources
        most, each = [s.max_documents for s in sources], [s.upsample for s in sources]
        return ({"max_documents": most} if any(most) else {}) | (
            {"upsample": each} if any(n != 1 for n in each) else {}
        )

    def _same(self, earlier: dict[str, Any] | None, now: dict[str, Any]) -> None:
        now = json.loads(json.dumps(now))
        if earlier is None or earlier == now or (not self.has_commits() and self._done() is None):
            return
        if earlier.get("steps") != now["steps"]:
            changed = (
                f"its steps were {earlier.get('steps')} and are {now['steps']}; a recipe that has the earlier ones goes on with it "
                "(presets may change from version to version)"
            )
        elif found := differences(earlier["stages"], now["stages"]):
            changed = found[0]
        elif {k: without_limit(v) for k, v in (earlier.get("deduplications") or {}).items()} != now["deduplications"]:
            changed = "a parameter of a deduplication differs"
        elif earlier.get("text_field") != now["text_field"]:
            changed = f"its text field was {earlier.get('text_field')!r} and is {now['text_field']!r}"
        elif earlier.get("writing") != now["writing"]:
            changed = f"it was written with {earlier.get('writing')} and is to be with {now['writing']}"
        else:  # stages of Tamis that another version has in other modules
            return
        raise RunConflict(
            f"{self.output} holds another curation: {changed}; give another output, or start over with fresh (--fresh)"
        )

    # -- the passes ---------------------------------------------------------------------------------------------------------
    def _decide(self, group: GroupWorkflow) -> dict[str, dict[str, Any]]:
        result = group.run()
        self.took += group.took
        found = decided(group, result.summary)
        self.replay.add(group)
        return found

    def _execute(self, pipeline: Pipeline, label: str, **more: Any) -> Any:
        began_s = time.monotonic()
        result = super()._execute(pipeline, label, **more)
        self.took.append(pass_facts(label, result, time.monotonic() - began_s))
        return result

    def _execute_guarded(self, pipeline: Pipeline, label: str, **more: Any) -> Any:
        """Run a pass over the input, which must be that of the first pass of this curation, before it and behind it."""
        if more.get("shard") is not None:  # its only pass
            return self._execute(pipeline, label, **more)
        job = make_job(self.curation.name, Pipeline(self.curation.name, stages=[self.curation.source()]).build())
        self.guard.check(find_inputs(job, None, None, self.work, scratch=self.settings.get("scratch")).files)
        result = self._execute(pipeline, label, **more)
        self.guard.confirm((read_json(os.path.join(result.run_dir, "plan.json")) or {})["inputs"], result.ledger)
        return result

    def _write(self, **more: Any) -> Any:
        source: Any = self.curation.source()
        if self.groups:
            record_index = next((k for g in self.groups if (k := g.known_records()) is not None), None)
            source = with_hints(source, ReadHints(all_valid=self.groups[0].is_clean(), record_index=record_index))
        last = [self.curation.steps[i] for i in self.plan.last]
        if (mix := self.curation.mix()) is not None:
            if any(mix.most):
                mix.limits = self._choose_documents(source, list(last), mix, **more)
            last.append(mix)
        told = [Describe(self.curation.text_field)] if self.curation.writing.card else []
        stages: list[Any] = [source, *self.replay.stages(), *last, *told, self.curation.writer()]
        return self._execute_guarded(Pipeline(self.curation.name, stages=stages), "write", **more)

    def _choose_documents(self, source: Any, last: list[Any], mix: Mix, **more: Any) -> str:
        """Choose the documents to write where a source has max_documents.

        One pass draws a number for each document that is left; then the number up to which documents are written is
        decided.
        """
        if more.get("shard") is not None or more.get("merge"):
            raise UsageError("sources: max_documents chooses among all documents, so that it cannot be done by shards")
        folder = os.path.join(self.work, "mix")
        files.own_folder(folder, "start over with fresh (--fresh)")
        limits = os.path.join(folder, "limits.json")
        if not os.path.exists(limits):
            stages = [copy.deepcopy(source), *self.replay.stages(), *copy.deepcopy(last)]
            draw = Draw(mix.first_files, mix.text_field)
            drawn = os.path.join(folder, "draws")
            pipeline = Pipeline(f"{self.curation.name}: numbers", stages=[*stages, draw, RecordWriter(drawn)])
            result = self._execute_guarded(pipeline, "numbers for sources", keep_rejected=False)
            paths = [os.path.join(drawn, f["name"]) for f in result.files]
            task = {"records": paths, "most": mix.most, "limits": limits}
            self.do_apart(folder, task, self.progress, "tamis.curation.share_of_source")
        return limits

    def _check_counts(self, written: Any, summaries: Mapping[str, Mapping[str, Any]]) -> None:
        """Check that the last pass removed as many documents as were decided, except for those in quarantine."""
        ledger = written.ledger
        for group in self.groups:
            if group.kind.changes_text:
                continue
            for name in group.step_names:
                n_found = int(summaries[name]["n_duplicates"])
                n_gone = sum(t.n for b in ledger.stages if b.name == name for t in b.dropped.values())
                if not 0 <= n_found - n_gone <= ledger.quarantined.n:
                    raise ConservationError(
                        f"{name}: {n_found:,} documents were found to be duplicates, but the pass that removes them removed {n_gone:,}; do not "
                        f"use {self.output}, start over with fresh (--fresh)"
                    )

    # -- what stays ---------------------------------------------------------------------------------------------------------
    def _keep_duplicates(self) -> None:
        """Move the tables for people into the run directory, named after their step."""
        target = os.path.join(self.run_dir, "duplicates")
        for group in self.groups:
            for name, folder in group.tables_of_duplicates().items():
                for file in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
                    os.makedirs(target, exist_ok=True)
                    files.move(os.path.join(folder, file), os.path.join(target, f"{name}-{file}"))

    def _keep_scores(self) -> None:
        """Scores of the rules that only earlier passes asked, for those who ask what another limit would do."""
        if not self.groups:
            return
        folder = os.path.join(self.work, "scores")
        files.own_folder(folder, "start over with fresh (--fresh)")
        passes = [os.path.join(group.work, "keys-0", "_tamis") for group in self.groups]
        self.do_apart(folder, {"passes": passes, "run_dir": self.run_dir}, lambda _: None, "tamis.curation.scores")

    def _about(self, written: Any, peak_bytes: int, seconds: float) -> dict[str, Any]:
        ledger = written.ledger
        return {
            "n_records": ledger.records.n, "n_written": ledger.written.n, "n_dropped": ledger.n_dropped, "n_quarantined": ledger.quarantined.n,
            "content_hash": f"{ledger.content.identity:032x}", "peak_bytes": peak_bytes, "seconds": round(seconds, 3),
        }  # fmt: skip
