"""How well GPUs were used: counted from when their workers are warm."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tamis.engine.ledger import Ledger, StageBook
from tamis.engine.monitor.gpu_use import GpuUse
from tamis.engine.schema import GpuUseFigures
from tamis.memory.gpu import GpuSample


def supervisor(n_units: int, full: int = 0, more: bool = True, unit: int | None = None) -> Any:
    """`more`: input is left; `unit`: the segment of a unit that is under way."""
    book = StageBook("model")
    if full:
        book.count({"out_of_device_memory": float(full)})
    under_way = None if unit is None else SimpleNamespace(segment=unit)
    workers = {
        1: SimpleNamespace(segment=0, n_units=9, unit=None),
        2: SimpleNamespace(segment=1, n_units=n_units, unit=under_way),
    }
    return SimpleNamespace(
        config=SimpleNamespace(gpus=[0.0, 1.0, 0.0], fixed_workers=[None, 1, None]),
        pool=SimpleNamespace(workers=workers),
        queue=SimpleNamespace(
            cursor=SimpleNamespace(exhausted=not more),
            ledger=Ledger(stages=[book]),
            feeds=[],
            segments=[[], [], ["u"]],
        ),
    )


def sample(busy: float | None, gpu: int = 0) -> GpuSample:
    return GpuSample(gpu, "H200", 1, 2, busy)


def busy_of(use: GpuUse) -> dict[str, float]:
    figures = use.changed()
    assert figures is not None
    return figures.busy


def test_busy_share_counts_from_the_first_unit_of_a_worker_on_a_gpu() -> None:
    use = GpuUse(Ledger())
    use.sample([sample(0.0)], supervisor(0))
    assert use.changed() is None
    for busy in (0.2, 0.9, 1.0):  # the first one tells of the time since the look before
        use.sample([sample(busy), sample(None, 1)], supervisor(1))
    use.count(supervisor(1, full=2))
    assert use.changed() == GpuUseFigures({"0": 0.95}, out_of_memory=2, cut=0)
    assert use.changed() is None


def test_what_was_seen_before_the_last_worker_was_warm_is_forgotten() -> None:
    use, two = GpuUse(Ledger()), supervisor(1)
    two.config.fixed_workers[1] = 2
    use.sample([sample(0.1)], two)
    assert busy_of(use) == {"0": 0.1}  # better than nothing, where the run ends here
    two.pool.workers[3] = SimpleNamespace(segment=1, n_units=0, unit=None)
    use.sample([sample(0.3)], two)
    assert busy_of(use) == {"0": 0.2}
    two.pool.workers[3].n_units = 1
    use.sample([sample(0.9)], two)
    assert busy_of(use) == {"0": 0.9}
    use.sample([sample(1.0)], two)
    assert busy_of(use) == {"0": 1.0}  # the look before tells of a time when it was not
    del two.pool.workers[3]  # gone: what the GPU does until another is there counts
    use.sample([sample(0.5)], two)
    assert busy_of(use) == {"0": 0.75}


def test_what_follows_the_last_unit_of_a_gpu_is_not_waiting() -> None:
    use = GpuUse(Ledger())
    for busy in (0.3, 1.0):
        use.sample([sample(busy)], supervisor(3, more=False, unit=1))
    use.sample([sample(0.0)], supervisor(3, more=False, unit=2))  # others write what it gave them
    assert use.changed() == GpuUseFigures({"0": 1.0})
    use.sample([sample(0.0)], supervisor(3, more=False, unit=0))
    assert busy_of(use) == {"0": 0.5}


def test_an_answer_that_is_given_again_is_no_second_look() -> None:
    use = GpuUse(Ledger())
    for seen in (sample(0.7), old := sample(0.0), old, old, sample(1.0)):
        use.sample([seen], supervisor(1))
    assert busy_of(use) == {"0": 0.5}


def test_a_run_without_gpus_has_nothing_to_tell() -> None:
    use = GpuUse(Ledger())
    use.count(supervisor(1))
    assert use.changed() is None
