"""What happens to a unit that failed: every answer changes something."""

from __future__ import annotations

import copy

import pytest

from tamis.engine.messages import Failure, FailureKind
from tamis.engine.supervisor.retry_policy import (
    FEW_MISFITS,
    MANY_MISFITS,
    Misfit,
    RetryPolicy,
    SetupDeathAction,
    judge_death,
)
from tamis.engine.supervisor.state import KillReason
from tamis.engine.units import TO_END, Mode, Piece, PieceKind, Unit, can_split, halves, remaining_pieces

decide = RetryPolicy().decide


def unit(
    kind: PieceKind = PieceKind.BYTES,
    start: int = 0,
    end: int = 100,
    n_records: int = -1,
    cut: int = -1,
    mode: Mode = Mode.RUN,
) -> Unit:
    made = Unit(1, [Piece(0, kind, "in", start, end)], mode=mode, max_bytes=1 << 20)
    made.n_records, made.cut = n_records, cut
    return made


def after(made: Unit, *kinds: str, had_all: bool = False) -> tuple[list[str], Unit]:
    """Return the decisions after these consecutive failures, and the resulting unit."""
    found = []
    for kind in kinds:
        decision = decide(made, Failure(FailureKind(kind), "e", "s"), had_all)
        found.append(decision.action)
        made = decision.unit
    return found, made


def decisions(made: Unit, *kinds: str) -> list[str]:
    return after(made, *kinds)[0]


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("kind", ["memory", "error", "crash", "timeout", "setup", "killed", "replaced"])
@pytest.mark.parametrize("where", list(PieceKind))
def test_nothing_that_is_given_is_changed(kind: str, mode: Mode, where: PieceKind) -> None:
    for n_records, had_all in ((1, False), (1, True), (7, False), (-1, True)):
        made = unit(
            where,
            end=TO_END if where in (PieceKind.STREAM, PieceKind.ROWS) else 100,
            n_records=n_records,
            cut=50,
            mode=mode,
        )
        for _ in range(8):
            before, failed = copy.deepcopy(made), Failure(FailureKind(kind), "e", "s")
            decision = decide(made, failed, had_all)
            assert (made, failed) == (before, Failure(FailureKind(kind), "e", "s"))
            assert decision.unit is not made or decision.unit == before
            made = decision.unit


@pytest.mark.parametrize(
    ("why", "signal", "used", "kind"),
    [
        (KillReason.TIMEOUT, 9, 0, "timeout"),
        (KillReason.OVER_CAP, 9, 0, "memory"),
        (KillReason.REPLACED, 0, 0, "replaced"),
        (KillReason.PRESSURE, 9, 0, "killed"),
        (None, 9, 0, "killed"),
        (None, 11, 81, "memory"),
        (None, 11, 80, "crash"),
        (None, 0, 10, "crash"),
        (None, 0, 99, "crash"),  # an exit by itself is no failed allocation
    ],
)
def test_what_a_death_says(why: KillReason | None, signal: int, used: int, kind: str) -> None:
    assert judge_death(why, "exit status 1", signal, used, 100).kind == kind


def test_what_a_worker_held_before_its_unit_is_no_sign_of_a_lack_of_memory() -> None:
    assert judge_death(None, "signal SIGSEGV", 11, 85, 100, retained_bytes=80).kind == "crash"
    assert judge_death(None, "signal SIGSEGV", 11, 97, 100, retained_bytes=80).kind == "memory"


def test_a_death_without_a_cap_is_never_called_memory() -> None:
    assert judge_death(None, "exit status 1", 0, 10**9, 0) == Failure(
        FailureKind.CRASH, "the worker process died: exit status 1"
    )


def test_memory_splits_then_runs_alone_then_gives_up() -> None:
    assert decisions(unit(n_records=4, cut=50), "memory") == ["split"]
    single = unit(n_records=1)
    found, single = after(single, "memory")
    assert (found, single.alone) == (["alone"], True)
    single.largest_record = 97
    decision = decide(single, Failure(FailureKind.MEMORY, stage="s"))
    assert (decision.action, decision.note) == (
        "infeasible",
        "one record of in (at 0, 97 bytes) does not fit the memory budget even alone, in stage 's'",
    )


def test_a_record_that_had_the_whole_pool_is_not_tried_again() -> None:
    single = unit(n_records=1)
    decision = decide(single, Failure(FailureKind.MEMORY), had_all=True)
    assert (decision.action, decision.note) == (
        "infeasible",
        "one record of in (at 0) does not fit the memory budget even alone",
    )
    assert decide(unit(n_records=2, cut=50), Failure(FailureKind.MEMORY), had_all=True).action == "split"


def test_an_error_is_tried_again_then_cut_then_quarantined() -> None:
    assert decisions(unit(n_records=4, cut=50), "error", "error") == ["retry", "split"]
    single = unit(n_records=1)
    single.n_failures = 1  # cut from a unit that failed
    found, single = after(single, "error", "error")
    assert found == ["retry", "quarantine"]
    assert (single.mode, single.reason, single.stage) == (Mode.QUARANTINE, "error: e", "s")


def test_a_crash_on_one_record_is_tried_with_all_memory_before_it_is_called_bad() -> None:
    single = unit(n_records=1)
    single.n_failures = 1
    found, single = after(single, "crash")
    assert (found, single.alone) == (["alone"], True)
    found, single = after(single, "crash")
    assert (found, single.alone) == (["quarantine"], False)


def test_one_failure_of_its_own_never_condemns_a_record() -> None:
    single = unit(n_records=1)
    single.n_failures = 1
    assert decisions(single, "timeout", "timeout") == ["retry", "quarantine"]


def test_innocent_kills_do_not_count_until_there_are_too_many() -> None:
    victim = unit(n_records=4, cut=50)
    found, victim = after(victim, *["killed"] * 5)
    assert (found, victim.n_failures) == (["retry"] * 5, 0)
    assert decisions(victim, "killed", "killed") == ["retry", "split"]


def test_making_room_never_counts() -> None:
    feeder = unit(PieceKind.STREAM, end=TO_END, mode=Mode.FEED)
    found, feeder = after(feeder, *["replaced"] * 50)
    assert (found, feeder.n_failures) == (["retry"] * 50, 0)


@pytest.mark.parametrize("kinds", [["memory"], ["error", "error"], ["crash", "crash"]])
def test_a_stream_that_fails_is_fed_and_never_quarantined_whole(kinds: list[str]) -> None:
    assert decisions(unit(PieceKind.STREAM, end=TO_END), *kinds)[-1] == "feed"
    assert decisions(unit(PieceKind.STREAM, end=TO_END, n_records=7, cut=50), *kinds)[-1] == "feed"


@pytest.mark.parametrize("kinds", [["memory"], ["crash", "crash"]])
def test_a_parquet_file_of_unknown_rows_is_described_first(kinds: list[str]) -> None:
    found, made = after(unit(PieceKind.ROWS, end=TO_END), *kinds)
    assert (found[-1], made.describe, made.max_bytes) == ("describe", True, 1 << 18)
    assert decisions(unit(PieceKind.ROWS, end=TO_END, n_records=7, cut=3), *kinds)[-1] == "split"


def test_a_feeder_gets_more_memory_until_it_had_everything_and_then_its_file_is_refused() -> None:
    feeder = unit(PieceKind.STREAM, end=TO_END, mode=Mode.FEED)
    found, feeder = after(feeder, *["memory"] * 20)
    assert found == ["retry"] * 20
    refused = decide(feeder, Failure(FailureKind.MEMORY), had_all=True)
    assert (refused.action, refused.note) == ("infeasible", "in cannot be decoded in the memory that the budget leaves")


def test_a_feeder_of_rows_reads_smaller_batches_before_its_file_is_refused() -> None:
    feeder = unit(PieceKind.ROWS, end=100, mode=Mode.FEED)
    found, feeder = after(feeder, *["memory"] * 6, had_all=True)
    assert (found, feeder.max_rows) == (["retry"] * 5 + ["infeasible"], 1)


def test_a_feeder_that_crashes_gets_everything_and_is_given_up_by_name() -> None:
    feeder = unit(PieceKind.STREAM, end=TO_END, mode=Mode.FEED)
    found, feeder = after(feeder, *["crash"] * 5)
    assert found == ["retry"] * 4 + ["unreadable"]
    assert feeder.need_bytes > 1 << 50


def test_rows_that_could_not_be_read_are_fed_and_not_cut() -> None:
    """Half of a row group takes as much to decode as the whole."""
    assert decisions(unit(PieceKind.ROWS, end=100), "memory") == ["feed"]
    assert decisions(unit(PieceKind.ROWS, end=100, n_records=7, cut=50), "memory") == ["split"]


def test_recasts_and_quarantining_end_after_a_few_failures() -> None:
    assert decisions(unit(mode=Mode.REWRITE), *["error"] * 3) == ["retry", "retry", "fail"]
    assert decisions(unit(n_records=1, mode=Mode.QUARANTINE), *["error"] * 5) == ["retry"] * 4 + ["fail"]


def test_later_segments_are_cut_by_rows() -> None:
    made = Unit(1, [Piece(0, PieceKind.STREAM, "in", 0)], segment=1, handover="h", handover_rows=(10, 20))
    assert can_split(made)
    assert [h.rows for h in halves(made)] == [(15, 20), (10, 15)]
    made.cut = 12
    assert [h.rows for h in halves(made)] == [(12, 20), (10, 12)]
    made.handover_rows = (3, 4)
    assert decisions(made, "memory") == ["alone"]  # not "feed": its records have been through stages


def test_halves_of_a_range_come_last_half_first() -> None:
    assert [(p.start, p.end) for h in halves(unit(n_records=2, cut=70)) for p in h.pieces] == [(70, 100), (0, 70)]


def test_remaining_pieces_are_what_a_feeder_has_not_handed_out() -> None:
    def left(pieces: list[tuple[int, int]], start: int, end: int) -> list[tuple[int, int]]:
        made = [Piece(0, PieceKind.STREAM, "in", a, b) for a, b in pieces]
        return [(p.start, p.end) for p in remaining_pieces(made, Piece(0, PieceKind.BLOCK, "b", start, end))]

    assert left([(0, TO_END)], 0, 100) == [(100, TO_END)]
    assert left([(0, TO_END)], 40, 100) == [(0, 40), (100, TO_END)]
    assert left([(0, 50), (80, TO_END)], 0, 60) == [(80, TO_END)]
    assert left([(0, 50), (80, TO_END)], 0, 90) == [(90, TO_END)]
    assert left([(5, 9)], 5, 9) == []


def test_a_stage_that_cannot_be_set_up_ends_the_run_at_once():
    unit = Unit(1, [Piece(0, PieceKind.BYTES, "a.jsonl", 0, 100)])
    assert decide(unit, Failure(FailureKind.SETUP, "RuntimeError: no model", in_setup=True)).action == "fail"


def test_a_setup_that_needs_more_memory_is_tried_alone_and_never_split():
    unit = Unit(1, [Piece(0, PieceKind.BYTES, "a.jsonl", 0, 100)], n_records=10, cut=50)
    report = Failure(FailureKind.MEMORY, "MemoryError", "model (its setup)", in_setup=True)
    alone = decide(unit, report)
    assert (alone.action, decide(alone.unit, report).action) == ("alone", "unfit")
    fresh = Unit(1, [Piece(0, PieceKind.BYTES, "a.jsonl", 0, 100)], n_records=10, cut=50)
    decision = decide(fresh, report, had_all=True)
    assert (decision.action, decision.note) == (
        "unfit",
        "stage 'model (its setup)' cannot be set up in the memory that the budget leaves",
    )


def test_pressure_is_the_fault_of_a_worker_that_was_alone_and_full() -> None:
    assert judge_death(KillReason.PRESSURE, "signal SIGKILL", 9, 90, 100, was_alone=True).kind == "memory"
    assert judge_death(KillReason.PRESSURE, "signal SIGKILL", 9, 70, 100, was_alone=True).kind == "killed"
    assert judge_death(KillReason.PRESSURE, "signal SIGKILL", 9, 90, 100).kind == "killed"


@pytest.mark.parametrize("kind", ["descriptors", "threads"])
def test_what_a_worker_had_used_up_before_is_no_fault_of_its_unit(kind: str) -> None:
    victim = unit(n_records=4, cut=50)
    for _ in range(5):
        decision = decide(victim, Failure(FailureKind(kind), "OSError: [Errno 24]", "s"), was_fresh=False)
        victim = decision.unit
        assert (decision.action, victim.n_failures) == ("retry", 0)
    assert "on a fresh one: OSError: [Errno 24]" in decision.note


def test_a_fresh_worker_that_runs_out_of_descriptors_failed_for_its_stage() -> None:
    assert decisions(unit(n_records=4, cut=50), "descriptors", "descriptors") == ["retry", "split"]
    found, single = after(unit(n_records=1), *["descriptors"] * 2)
    assert found == ["retry", "quarantine"]
    assert single.reason.startswith("descriptors: ")


def test_a_fresh_worker_without_room_for_threads_needs_memory() -> None:
    assert decisions(unit(n_records=4, cut=50), "threads") == ["split"]


def test_deaths_during_setup_end_the_run_unless_one_setup_succeeds() -> None:
    policy = RetryPolicy()
    assert policy.after_setup_death() is SetupDeathAction.RETRY
    policy.setup_succeeded()
    actions = [policy.after_setup_death() for _ in range(3)]
    assert actions == [SetupDeathAction.RETRY, SetupDeathAction.ALONE, SetupDeathAction.FAIL]


def misfit(size_bytes: int = 100) -> Misfit:
    return Misfit("s", size_bytes, 0, 80, 200_000_000)


def test_a_stage_is_blamed_after_a_few_small_documents_where_none_ever_fitted() -> None:
    policy = RetryPolicy()
    assert [policy.add_misfit(misfit(), False) for _ in range(FEW_MISFITS)] == [False] * (FEW_MISFITS - 1) + [True]
    assert "--memory 200MB or more" in policy.blame_stage()
    policy.unit_succeeded()
    assert not policy.add_misfit(misfit(), False)


def test_a_stage_is_blamed_after_many_documents_in_any_case() -> None:
    for size_bytes, has_succeeded in ((100, True), (10 << 20, False)):
        policy = RetryPolicy()
        blamed = [policy.add_misfit(misfit(size_bytes), has_succeeded) for _ in range(MANY_MISFITS)]
        assert blamed == [False] * (MANY_MISFITS - 1) + [True]


def test_a_record_goes_to_quarantine_after_a_failure_in_a_clean_worker() -> None:
    made, failed = unit(n_records=1), Failure(FailureKind.ERROR, "e", "s")
    for is_clean, action in ((True, "retry"), (False, "retry"), (False, "retry"), (True, "quarantine")):
        decision = decide(made, failed, is_clean=is_clean)
        assert decision.action == action
        made = decision.unit


def test_fail_fast_ends_the_run_at_faults_and_recovers_from_the_rest() -> None:
    policy = RetryPolicy(fail_fast=True)
    kinds = ("error", "crash", "timeout", "memory", "killed", "replaced")
    actions = [policy.decide(unit(n_records=7, cut=50), Failure(FailureKind(kind), "e", "s")).action for kind in kinds]
    assert actions == ["fail", "fail", "fail", "split", "retry", "retry"]
    assert policy.decide(unit(mode=Mode.FEED), Failure(FailureKind.ERROR, "e")).action == "fail"


def test_a_worker_continues_with_halves_only_after_an_exception() -> None:
    policy, first, later = RetryPolicy(), unit(n_records=7, cut=50), unit(n_records=7, cut=50)
    later.n_failures, last = 1, unit(n_records=1)
    last.n_failures = 1
    error, crash = Failure(FailureKind.ERROR, "e", "s"), Failure(FailureKind.CRASH, "e", "s")
    reused = [policy.may_reuse_worker(u, f) for u in (first, later, last) for f in (error, crash)]
    assert reused == [False, False, True, False, False, False]
