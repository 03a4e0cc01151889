"""What grew: counters of the allocators, the weighing of Python objects, and the division among them."""

import ctypes
import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tamis.memory import attribution, meter
from tamis.memory.attribution import (
    ARROW,
    NATIVE,
    PYTHON,
    SHARED,
    UNEXPLAINED,
    ObjectCounts,
    Shares,
    attribute,
    count_objects,
    counts,
    variables_of,
)

MB = 1_000_000


@pytest.fixture(scope="module", autouse=True)
def small_heap():
    """Hide what earlier tests have loaded from the collector: a census walks everything that it watches."""
    gc.collect()
    gc.freeze()


class Holder:
    def __init__(self):
        self.kept = []


def run_python(code):
    environ = os.environ | {"PYTHONPATH": str(Path(meter.__file__).parents[2]), "ARROW_DEFAULT_MEMORY_POOL": "system"}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environ).stdout


needs_mallinfo = pytest.mark.skipif("malloc_bytes" not in counts(), reason="this C library has no mallinfo2")


def test_small_python_objects_are_blocks():
    gc.collect()  # else garbage of other tests may go meanwhile, and be taken for what was not counted
    gc.disable()
    try:
        before = counts()
        kept = [object() for _ in range(100_000)]
        assert counts()["python_blocks"] - before["python_blocks"] >= len(kept)
    finally:
        gc.enable()


@needs_mallinfo
def test_native_memory_is_mallocs_alone():
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = (
        ctypes.c_void_p,
        [ctypes.c_size_t],
        [ctypes.c_void_p],
    )
    before = counts()
    addresses = [libc.malloc(64_000) for _ in range(50)]
    after = counts()
    for address in addresses:
        libc.free(address)
    assert after["malloc_bytes"] - before["malloc_bytes"] == pytest.approx(50 * 64_000, rel=0.05)
    assert after["python_blocks"] - before["python_blocks"] < 1_000
    assert counts()["malloc_bytes"] - before["malloc_bytes"] < MB


@needs_mallinfo
def test_arrow_memory_is_counted_by_both():
    code = (
        "import pyarrow as pa\nfrom tamis.memory.attribution import counts\n"
        "pa.array([1])\nbefore = counts()\nkept = pa.allocate_buffer(10_000_000)\nafter = counts()\n"
        "print(after['arrow_bytes'] - before['arrow_bytes'], (after['malloc_bytes'] - before['malloc_bytes']) // "
        "1_000_000)"
    )
    assert run_python(code) == "10000000 10\n"


def test_nothing_heavy_is_imported_to_count():
    code = (
        "import sys\nfrom tamis.memory.attribution import counts\nprint(counts()['arrow_bytes'], 'pyarrow' in "
        "sys.modules)"
    )
    assert run_python(code) == "0 False\n"


def test_a_c_library_without_mallinfo(monkeypatch):
    monkeypatch.setattr(attribution, "_malloc_counter", lambda: None)
    assert set(counts()) == {"python_blocks", "arrow_bytes"}


def test_a_census_finds_what_objects_gained_and_their_type():
    holder = Holder()
    before = count_objects([holder], 5_000_000)
    holder.kept += [bytes(100_000) for _ in range(30)]
    after = count_objects([holder], 5_000_000)
    assert after.n_bytes - before.n_bytes == pytest.approx(3 * MB, rel=0.02)
    assert after.largest_growth(before) == "bytes"


def test_a_census_reaches_what_the_collector_has_put_away():
    code = (
        "import gc\nfrom tamis.memory.attribution import count_objects\n"
        "class Holder: pass\n"
        "holder = Holder(); holder.kept = []\ngc.collect(); gc.freeze()\n"
        "before, blind = count_objects([holder]), count_objects()\n"
        "holder.kept += [bytes(100_000) for _ in range(30)]\n"
        "gained = count_objects([holder]).n_bytes - before.n_bytes, count_objects().n_bytes - blind.n_bytes\n"
        "print(*(n // 1_000_000 for n in gained))"
    )
    assert run_python(code) in ("3 0\n", "3 3\n")


def test_arrow_buffers_weigh_nothing_in_a_census():
    pa = pytest.importorskip("pyarrow")
    pa.array(range(3))  # imports what it needs
    holder = Holder()
    before = count_objects([holder], 5_000_000)
    holder.kept += [pa.array(range(100_000)) for _ in range(3)]
    assert count_objects([holder], 5_000_000).n_bytes - before.n_bytes < 100_000


def test_a_census_does_not_weigh_an_earlier_one():
    count_objects((), 5_000_000)  # what asking for the first time makes is there now
    gc.collect()
    first = count_objects((), 5_000_000)
    second = count_objects((), 5_000_000)
    # Threads of other tests may be at work; a census itself weighs far more than this.
    assert abs(second.n_bytes - first.n_bytes) < max(5_000, first.n_bytes // 5_000)


def test_a_census_of_too_many_objects_is_not_taken():
    assert count_objects((), 10) is None
    many = [[] for _ in range(2_000)]
    gc.collect()
    assert count_objects([many], 1_000) is None


def test_a_size_that_cannot_be_reported_is_nothing():
    class Odd:
        def __sizeof__(self):
            raise RuntimeError("no")

    kept = [Odd()]
    assert count_objects(kept, 5_000_000).by_type["Odd"] == 0


def test_growth_of_nothing_has_no_largest_type():
    assert ObjectCounts(0, {}).largest_growth(ObjectCounts(0, {})) == ""


@pytest.mark.parametrize(
    ("grown", "counters", "expected", "main"),
    [
        (64_000, {"arrow_bytes": 64_000, "malloc_bytes": 64_500}, Shares(0, 64_000, 0, 0), ARROW),
        (64_000, {"malloc_bytes": 64_000}, Shares(0, 0, 64_000, 0), NATIVE),
        (64_000, {"malloc_bytes": 64_000, "python_bytes": 63_000}, Shares(63_000, 0, 1_000, 0), PYTHON),
        (64_000, {"malloc_bytes": 64_000, "blocks": 1}, Shares(64, 0, 63_936, 0), NATIVE),
        (64_000, {"malloc_bytes": 60_000, "blocks": 100}, Shares(64_000, 0, 0, 0), PYTHON),
        (64_000, {"malloc_bytes": 0, "blocks": 1_000}, Shares(64_000, 0, 0, 0), PYTHON),
        (64_000, {"malloc_bytes": 100}, Shares(0, 0, 100, 63_900), UNEXPLAINED),
        (64_000, {}, Shares(0, 0, 0, 64_000), UNEXPLAINED),
        (64_000, {"arrow_bytes": -500, "malloc_bytes": -900, "python_bytes": -3}, Shares(0, 0, 0, 64_000), UNEXPLAINED),
        (64_000, {"malloc_bytes": 100, "shared_bytes": 63_000}, Shares(0, 0, 100, 900, 63_000), SHARED),
        (-1, {"malloc_bytes": 64_000}, Shares(0, 0, 0, 0), PYTHON),
    ],
)
def test_division(grown, counters, expected, main):
    found = attribute(grown, **counters)
    assert found == expected
    assert found.main == main


SCRIPT = """
KEPT, limit = [], 3

class Stage:
    shared = []
    def __init__(self):
        self.own = []
    def process(self, item):
        KEPT.append(item)
"""


def stage_of_a_script():
    """Return an object whose class came by value: its globals belong to no module that can be imported."""
    space = {"__name__": "__main__"}
    exec(SCRIPT, space)
    return space["Stage"]()


def grown(stage, keep):
    before = count_objects([stage], 5_000_000, variables_of([stage]))
    keep()
    after = count_objects([stage], 5_000_000, variables_of([stage]))
    return after.growth(before)


def test_variables_are_those_of_the_object_its_class_and_its_script():
    found = variables_of([stage_of_a_script()])
    assert {"Stage.own", "Stage.shared", "__main__.KEPT", "__main__.limit"} <= found.keys()


@pytest.mark.parametrize("make", ["bytes", "str", "array", "view", "objects"])
def test_what_a_list_of_a_script_keeps_is_pythons_and_named(make):
    numpy = pytest.importorskip("numpy")
    made = {
        "bytes": lambda: b"1" * MB,
        "str": lambda: "x" * MB,
        "array": lambda: numpy.ones(MB // 8),
        "view": lambda: numpy.ones(MB // 8)[:3],
        "objects": lambda: numpy.array(["x" * 1000 + str(i) for i in range(1000)], object),
    }[make]
    stage = stage_of_a_script()
    growth = grown(stage, lambda: stage.process(made()))
    assert growth.python_bytes == pytest.approx(MB, rel=0.1)
    assert growth.arrow_bytes == 0
    assert growth.variable == "__main__.KEPT"
    assert growth.variable_bytes == pytest.approx(MB, rel=0.1)
    assert growth.python_type == {"bytes": "bytes", "array": "ndarray", "view": "ndarray"}.get(make, "str")


@pytest.mark.parametrize("keep", ["table", "column", "array", "buffer"])
def test_a_slice_counts_with_all_of_the_buffers_that_it_pins(keep):
    pa = pytest.importorskip("pyarrow")
    numpy = pytest.importorskip("numpy")
    memory = pa.py_buffer(numpy.full(MB, 65, numpy.uint8))  # foreign memory, as that of a block that was read
    offsets = pa.py_buffer(numpy.array([0, 10, MB], numpy.int64))
    array = pa.Array.from_buffers(pa.large_string(), 2, [None, offsets, memory])
    table = pa.table({"text": array})
    item = {"table": table, "column": table["text"], "array": array, "buffer": memory}[keep].slice(0, 1)
    del table, memory, array
    stage = stage_of_a_script()
    growth = grown(stage, lambda: stage.process(item))
    assert growth.variable == "__main__.KEPT"
    assert growth.variable_bytes == pytest.approx(MB, rel=0.01)


def test_memory_that_two_objects_share_is_weighed_once():
    pa = pytest.importorskip("pyarrow")
    stage = stage_of_a_script()
    column = pa.array(["x" * 1000] * 1000)
    growth = grown(stage, lambda: [stage.process(column.slice(i, 1)) for i in range(50)])
    assert growth.variable_bytes == pytest.approx(MB, rel=0.1)


def test_buffers_of_arrow_that_no_counter_of_its_own_shows_are_still_arrows():
    shares = attribute(200_000, arrow_bytes=200, malloc_bytes=205_000, python_bytes=4_000, pinned_bytes=195_000)
    assert shares.main == ARROW
    assert shares.arrow == 195_000
    assert shares.native <= 1_000
