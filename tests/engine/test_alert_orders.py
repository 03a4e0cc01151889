"""Orders of alerts, driven by lists of events.

And by seeded simulations, in which they come at any time and change no result.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from tamis.engine.messages import Done
from tamis.engine.supervisor.actions import (
    Action,
    AssignUnit,
    CommitPartition,
    KillWorker,
    Note,
    StartWorker,
    StopWorker,
)
from tamis.engine.supervisor.alert_orders import MIN_SHRUNK_BYTES, STOP_GRACE_S, AlertOrders
from tamis.engine.supervisor.cursor import Cursor
from tamis.engine.supervisor.state import Config
from tamis.engine.supervisor.supervisor import Supervisor
from tamis.engine.units import PieceKind
from tamis.formats.input_files.listing import FileList
from tamis.memory.predictor import Predictor
from tests.engine import supervise
from tests.engine.simulated import Simulation
from tests.engine.test_simulation import FAULTS, make_config, make_world

MB = 1_000_000


def supervisor(
    size: int = 5 * MB, slots: int = 1, block: int = 1 * MB, orders: AlertOrders | None = None
) -> Supervisor:
    files = FileList()
    files.append("in0", size, 0)
    config = Config(200 * MB, 100 * MB, 20 * MB, slots, [None], max_partition_bytes=block, timeout_s=1000.0)
    return Supervisor(config, Cursor(files, [PieceKind.BYTES]), [Predictor(block)], 0, orders)


def report(**more: Any) -> Done:
    return Done(**more)


def only(actions: list[Action], kind: Any) -> Any:
    found = [a for a in actions if isinstance(a, kind)]
    assert len(found) == 1, actions
    return found[0]


def begin(s: Supervisor) -> AssignUnit:
    start = only(supervise.tick(s, 0.0), StartWorker)
    return only(supervise.ready(s, start.worker, 0.0), AssignUnit)


def test_a_pause_starts_nothing_new_and_ends_by_itself() -> None:
    s = supervisor()
    a = begin(s)
    assert only(supervise.alert(s, "pause:30", 10.0), Note).text == "nothing new starts for 30 s"
    supervise.alert(s, "pause:5", 10.0)  # a shorter one does not shorten it
    actions = supervise.done(s, a.worker, a.fence, report(), 12.0)
    assert [type(x) for x in actions] == [CommitPartition]
    assert supervise.tick(s, 39.9) == []
    assert only(supervise.tick(s, 40.0), AssignUnit).worker == a.worker


@pytest.mark.parametrize("argument", ["", "x", "-1", "0", "nan", "inf", "1e999"])
def test_a_pause_without_an_end_is_refused(argument: str) -> None:
    s = supervisor()
    supervise.alert(s, f"pause:{argument}", 0.0)
    assert only(supervise.tick(s, 0.0), StartWorker)


def test_a_pause_is_an_hour_at_most() -> None:
    s = supervisor()
    supervise.alert(s, "pause:1e9", 0.0)
    assert supervise.tick(s, 3599.0) == []
    assert only(supervise.tick(s, 3600.0), StartWorker)


def test_shrink_halves_partitions_until_they_are_small_enough() -> None:
    s = supervisor(size=500 * MB, block=16 * MB)
    sizes = []
    model = s.arbiter.predictors[0]
    for _ in range(8):  # what slow start does
        model.observe(int(model.next_size(80 * MB)), 100, 1000)
    for _ in range(6):
        note = only(supervise.alert(s, "shrink", 0.0), Note)
        sizes.append(s.arbiter.unit_size(0, 80 * MB, may_grow=True))
    assert sizes == [8 * MB, 4 * MB, 2 * MB, MIN_SHRUNK_BYTES, MIN_SHRUNK_BYTES, MIN_SHRUNK_BYTES]
    assert note.text == "partitions are at most 1.05 MB from now on"


def test_shrink_never_makes_partitions_larger() -> None:
    s = supervisor(block=200_000)
    supervise.alert(s, "shrink", 0.0)
    assert s.arbiter.unit_size(0, 80 * MB, may_grow=True) == 200_000


def test_a_busy_worker_is_replaced_after_its_unit_and_no_work_is_lost() -> None:
    s = supervisor()
    a = begin(s)
    note = only(supervise.alert(s, f"recycle:{a.worker}", 1.0), Note)
    assert note.text == "worker 1 (0 B) is replaced after its partition"
    actions = supervise.done(s, a.worker, a.fence, report(), 2.0)
    assert only(actions, StopWorker).worker == a.worker
    assert only(actions, CommitPartition)
    assert (s.status.counters.recycled, s.status.counters.kills) == (1, 0)
    start = only(supervise.died(s, a.worker, "exit status 0", 0, 3.0), StartWorker)
    b = only(supervise.ready(s, start.worker, 3.0), AssignUnit)
    assert [type(x) for x in supervise.done(s, b.worker, b.fence, report(), 4.0)] == [
        CommitPartition,
        AssignUnit,
    ]  # once, not for ever


def test_an_idle_worker_is_replaced_at_once_and_the_largest_where_none_is_named() -> None:
    s = supervisor(slots=2)
    a = begin(s)
    supervise.alert(s, "pause:100", 0.0)
    supervise.measured(s, 60 * MB, {a.worker: 30 * MB}, 1.0)
    supervise.done(s, a.worker, a.fence, report(), 2.0)
    other = next(w for w in s.pool.workers if w != a.worker)
    supervise.ready(s, other, 2.0)
    assert only(supervise.alert(s, "recycle", 3.0), StopWorker).worker == a.worker
    assert only(supervise.alert(s, "recycle", 3.0), StopWorker).worker == other  # the first is going already
    assert only(supervise.alert(s, "recycle", 3.0), Note).text == "there is no worker to replace"


@pytest.mark.parametrize("argument", ["99", "x", "-1", "1.5"])
def test_a_worker_that_is_not_there(argument: str) -> None:
    s = supervisor()
    begin(s)
    assert only(supervise.alert(s, f"recycle:{argument}", 0.0), Note).text == f"worker {argument} is gone already"


def test_stop_lets_busy_workers_end_and_commits_what_they_did() -> None:
    s = supervisor()
    a = begin(s)
    assert only(supervise.alert(s, "stop:disk is full: really", 1.0), Note)
    assert supervise.alert(s, "stop:again", 1.0) == []
    assert supervise.tick(s, 2.0) == []
    assert not s.finished
    commit = only(supervise.done(s, a.worker, a.fence, report(), 3.0), CommitPartition)
    assert only(supervise.tick(s, 3.0), KillWorker).why == "stopping"
    assert s.status.stopping == "disk is full: really"
    supervise.died(s, a.worker, "signal SIGKILL", 9, 4.0)
    assert not s.finished  # the commit is under way
    supervise.committed(s, commit.partition, commit.covered, 0, 5.0)
    assert s.finished
    assert supervise.alert(s, "pause:5", 6.0) == []


def test_stop_does_not_wait_for_ever() -> None:
    s = supervisor()
    a = begin(s)
    supervise.alert(s, "stop:enough", 1.0)
    assert supervise.tick(s, 0.9 + STOP_GRACE_S) == []
    assert only(supervise.tick(s, 1.0 + STOP_GRACE_S), KillWorker).worker == a.worker
    assert s.status.stopping == "enough"


def test_stop_when_nothing_is_left_is_no_stop() -> None:
    s = supervisor(size=500)
    a = begin(s)
    supervise.alert(s, "stop:enough", 1.0)
    commit = only(supervise.done(s, a.worker, a.fence, report(), 2.0), CommitPartition)
    supervise.tick(s, 2.0)
    supervise.committed(s, commit.partition, commit.covered, 0, 3.0)
    assert (s.finished, s.status.stopping) == (True, "")


def test_a_stop_holds_for_the_next_sampling_step() -> None:
    orders = AlertOrders()
    s = supervisor(orders=orders)
    supervise.alert(s, "stop:enough", 1.0)
    following = supervisor(orders=orders)
    supervise.tick(following, 2.0)
    assert (following.status.stopping, following.finished) == ("enough", True)


def test_an_unknown_remedy_does_nothing() -> None:
    s = supervisor()
    assert only(supervise.alert(s, "explode:now", 0.0), Note).text == "unknown remedy 'explode:now': nothing is done"


def any_order(rng: random.Random) -> str:
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
            order = any_order(rng)
            fired[order.partition(":")[0]] += 1
            simulation.later(
                rng.uniform(0, 15), lambda r=order, on=simulation: supervise.alert(on.supervisor, r, on.now)
            )
        simulation.run()
        world.check_log()
        assert not s.status.fatal, s.status.fatal
        assert s.status.stopping in ("", "an alert")
        fired["stopped by an alert"] += bool(s.status.stopping)
        if not s.status.stopping:
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
