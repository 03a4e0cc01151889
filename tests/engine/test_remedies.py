"""Remedies, driven by lists of events; and by seeded simulations, in which they come at any time and change no result."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from simulated import Simulation
from test_simulation import FAULTS, make_config, make_world

from tamis.engine.messages import Done
from tamis.engine.supervisor.actions import Action, Assign, Commit, Kill, Note, Start, Stop
from tamis.engine.supervisor.cursor import Cursor
from tamis.engine.supervisor.remedies import MIN_SHRUNK_BYTES, STOP_GRACE_S, Remedies
from tamis.engine.supervisor.state import Config
from tamis.engine.supervisor.supervisor import Supervisor
from tamis.engine.supervisor.units import Kind
from tamis.formats.input_files.listing import FileList
from tamis.memory.predictor import Predictor

MB = 1_000_000


def supervisor(size: int = 5 * MB, slots: int = 1, block: int = 1 * MB, remedies: Remedies | None = None) -> Supervisor:
    files = FileList()
    files.append("in0", size, 0)
    config = Config(200 * MB, 100 * MB, 20 * MB, slots, [None], max_block_bytes=block, timeout_s=1000.0)
    return Supervisor(config, Cursor(files, [Kind.BYTES]), [Predictor(block)], 0, remedies)


def report(**more: Any) -> Done:
    return Done(**more)


def only(actions: list[Action], kind: Any) -> Any:
    found = [a for a in actions if isinstance(a, kind)]
    assert len(found) == 1, actions
    return found[0]


def begin(s: Supervisor) -> Assign:
    start = only(s.tick(0.0), Start)
    return only(s.ready(start.worker, 0.0), Assign)


def test_a_pause_starts_nothing_new_and_ends_by_itself() -> None:
    s = supervisor()
    a = begin(s)
    assert only(s.remedy("pause:30", 10.0), Note).text == "nothing new starts for 30 s"
    s.remedy("pause:5", 10.0)  # a shorter one does not shorten it
    actions = s.done(a.worker, a.fence, report(), 12.0)
    assert [type(x) for x in actions] == [Commit]
    assert s.tick(39.9) == []
    assert only(s.tick(40.0), Assign).worker == a.worker


@pytest.mark.parametrize("argument", ["", "x", "-1", "0", "nan", "inf", "1e999"])
def test_a_pause_without_an_end_is_refused(argument: str) -> None:
    s = supervisor()
    s.remedy(f"pause:{argument}", 0.0)
    assert only(s.tick(0.0), Start)


def test_a_pause_is_an_hour_at_most() -> None:
    s = supervisor()
    s.remedy("pause:1e9", 0.0)
    assert s.tick(3599.0) == []
    assert only(s.tick(3600.0), Start)


def test_shrink_halves_partitions_until_they_are_small_enough() -> None:
    s = supervisor(size=500 * MB, block=16 * MB)
    sizes = []
    model = s.grants.predictors[0]
    for _ in range(8):  # what slow start does
        model.observe(int(model.next_size(80 * MB)), 100, 1000)
    for _ in range(6):
        note = only(s.remedy("shrink", 0.0), Note)
        sizes.append(s.grants.block_size(0, 80 * MB, may_grow=True))
    assert sizes == [8 * MB, 4 * MB, 2 * MB, MIN_SHRUNK_BYTES, MIN_SHRUNK_BYTES, MIN_SHRUNK_BYTES]
    assert note.text == "partitions are at most 1.05 MB from now on"


def test_shrink_never_makes_partitions_larger() -> None:
    s = supervisor(block=200_000)
    s.remedy("shrink", 0.0)
    assert s.grants.block_size(0, 80 * MB, may_grow=True) == 200_000


def test_a_busy_worker_is_replaced_after_its_unit_and_no_work_is_lost() -> None:
    s = supervisor()
    a = begin(s)
    note = only(s.remedy(f"recycle:{a.worker}", 1.0), Note)
    assert note.text == "worker 1 (0 B) is replaced after its partition"
    actions = s.done(a.worker, a.fence, report(), 2.0)
    assert only(actions, Stop).worker == a.worker
    assert only(actions, Commit)
    assert (s.counters["recycled"], s.counters["kills"]) == (1, 0)
    start = only(s.died(a.worker, "exit status 0", 0, 3.0), Start)
    b = only(s.ready(start.worker, 3.0), Assign)
    assert [type(x) for x in s.done(b.worker, b.fence, report(), 4.0)] == [Commit, Assign]  # once, not for ever


def test_an_idle_worker_is_replaced_at_once_and_the_largest_where_none_is_named() -> None:
    s = supervisor(slots=2)
    a = begin(s)
    s.remedy("pause:100", 0.0)
    s.measured(60 * MB, {a.worker: 30 * MB}, 1.0)
    s.done(a.worker, a.fence, report(), 2.0)
    other = next(w for w in s.workers if w != a.worker)
    s.ready(other, 2.0)
    assert only(s.remedy("recycle", 3.0), Stop).worker == a.worker
    assert only(s.remedy("recycle", 3.0), Stop).worker == other  # the first is going already
    assert only(s.remedy("recycle", 3.0), Note).text == "there is no worker to replace"


@pytest.mark.parametrize("argument", ["99", "x", "-1", "1.5"])
def test_a_worker_that_is_not_there(argument: str) -> None:
    s = supervisor()
    begin(s)
    assert only(s.remedy(f"recycle:{argument}", 0.0), Note).text == f"worker {argument} is gone already"


def test_stop_lets_busy_workers_end_and_commits_what_they_did() -> None:
    s = supervisor()
    a = begin(s)
    assert only(s.remedy("stop:disk is full: really", 1.0), Note)
    assert s.remedy("stop:again", 1.0) == []
    assert s.tick(2.0) == []
    assert not s.finished
    commit = only(s.done(a.worker, a.fence, report(), 3.0), Commit)
    assert only(s.tick(3.0), Kill).why == "stopping"
    assert s.stopping == "disk is full: really"
    s.died(a.worker, "signal SIGKILL", 9, 4.0)
    assert not s.finished  # the commit is under way
    s.committed(commit.partition, commit.covered, 0, 5.0)
    assert s.finished
    assert s.remedy("pause:5", 6.0) == []


def test_stop_does_not_wait_for_ever() -> None:
    s = supervisor()
    a = begin(s)
    s.remedy("stop:enough", 1.0)
    assert s.tick(0.9 + STOP_GRACE_S) == []
    assert only(s.tick(1.0 + STOP_GRACE_S), Kill).worker == a.worker
    assert s.stopping == "enough"


def test_stop_when_nothing_is_left_is_no_stop() -> None:
    s = supervisor(size=500)
    a = begin(s)
    s.remedy("stop:enough", 1.0)
    commit = only(s.done(a.worker, a.fence, report(), 2.0), Commit)
    s.tick(2.0)
    s.committed(commit.partition, commit.covered, 0, 3.0)
    assert (s.finished, s.stopping) == (True, "")


def test_a_stop_holds_for_the_next_sampling_step() -> None:
    remedies = Remedies()
    s = supervisor(remedies=remedies)
    s.remedy("stop:enough", 1.0)
    following = supervisor(remedies=remedies)
    following.tick(2.0)
    assert (following.stopping, following.finished) == ("enough", True)


def test_an_unknown_remedy_does_nothing() -> None:
    s = supervisor()
    assert only(s.remedy("explode:now", 0.0), Note).text == "unknown remedy 'explode:now': nothing is done"


def any_remedy(rng: random.Random) -> str:
    kind = rng.choice(["shrink", "recycle", "recycle:", "pause:", "stop:"])
    if kind == "recycle:":
        return f"recycle:{rng.randint(1, 6)}"
    return f"pause:{rng.uniform(0.1, 10)}" if kind == "pause:" else "stop:an alert" if kind == "stop:" else kind


def run_seed(seed: int, fired: Counter[str]) -> None:
    """As in test_simulation.py, with remedies in between; the last attempt has none, so that it ends."""
    rng = random.Random(seed)
    world = make_world(rng)
    for attempt in range(4):
        simulation = Simulation(world, make_config(rng, world), rng, dict(FAULTS), fired)
        s = simulation.supervisor
        for _ in range(rng.randint(1, 8) if attempt < 3 else 0):
            remedy = any_remedy(rng)
            fired[remedy.partition(":")[0]] += 1
            simulation.later(rng.uniform(0, 15), lambda r=remedy, on=simulation: on.supervisor.remedy(r, on.now))
        simulation.run()
        world.check_log()
        assert not s.fatal, s.fatal
        assert s.stopping in ("", "an alert")
        fired["stopped by an alert"] += bool(s.stopping)
        if not s.stopping:
            break
    assert world.everything() - world.written - world.quarantined - world.gone == set()
    assert world.quarantined == set(world.poison)
    assert world.gone == world.dropped
    assert world.ledger.problems() == []


@pytest.mark.timeout(300)
def test_remedies_at_any_time_lose_nothing() -> None:
    fired: Counter[str] = Counter()
    for seed in range(150):
        try:
            run_seed(seed, fired)
        except Exception as exc:
            raise AssertionError(f"seed {seed}: {exc}") from exc
    wanted = ("shrink", "recycle", "pause", "stop", "stopped by an alert")
    assert [name for name in wanted if fired[name] < 20] == []
