"""The meter against the real kernel: this process, and a child that allocates on request."""

import errno
import mmap
import os
import resource
import subprocess
import sys

import pytest

from tamis.memory import meter
from tamis.memory.meter import Statm

MB = 1_000_000
GONE = 2**22 + 1  # above the largest pid that Linux gives

# Each line on stdin is a number of bytes to hold from then on; the answer is "ok" or "MemoryError".
CHILD = """
import sys
held = []
for line in sys.stdin:
    try:
        held.append(bytearray(b"x") * int(line))
        print("ok", flush=True)
    except MemoryError:
        print("MemoryError", flush=True)
"""


class Child:
    def __init__(self):
        self.process = subprocess.Popen(
            [sys.executable, "-S", "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.pid = self.process.pid
        assert self.hold(1) == "ok"

    def hold(self, n_bytes):
        self.process.stdin.write(f"{n_bytes}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def end(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


@pytest.fixture
def child():
    made = Child()
    yield made
    made.end()


def test_every_figure_grows_with_what_a_child_holds(child):
    before = (meter.statm(child.pid)[0], meter.rss_anon(child.pid), meter.pss(child.pid), meter.peak_rss(child.pid))
    data_before = meter.status(child.pid)["VmData"]
    assert child.hold(50 * MB) == "ok"
    after = (meter.statm(child.pid)[0], meter.rss_anon(child.pid), meter.pss(child.pid), meter.peak_rss(child.pid))
    for low, high in zip(before, after, strict=True):
        assert 48 * MB < high - low < 56 * MB
    assert 48 * MB < meter.status(child.pid)["VmData"] - data_before < 56 * MB


def test_status_parts_add_up(child):
    seen = meter.status(child.pid)
    assert seen["VmRSS"] == seen["RssAnon"] + seen["RssFile"] + seen["RssShmem"]
    assert seen["Threads"] == 1
    assert seen["VmHWM"] >= seen["VmRSS"] > 1 * MB


def test_peak_can_be_reset():
    with mmap.mmap(-1, 60 * MB) as block:  # not from the heap, which may have room from other tests
        block.write(b"x" * (60 * MB))
    assert meter.peak_rss() - meter.statm().resident_bytes > 40 * MB
    assert meter.reset_peak()
    assert meter.peak_rss() - meter.statm().resident_bytes < 10 * MB


def test_data_limit_stops_a_running_child_and_can_be_raised_again(child):
    used = meter.status(child.pid)["VmData"]
    assert meter.set_data_limit(child.pid, used + 20 * MB) == used + 20 * MB
    assert resource.prlimit(child.pid, resource.RLIMIT_DATA)[0] == used + 20 * MB
    assert child.hold(50 * MB) == "MemoryError"
    assert meter.rss_anon(child.pid) < used + 20 * MB
    assert child.hold(10 * MB) == "ok"
    meter.set_data_limit(child.pid, used + 90 * MB)
    assert child.hold(50 * MB) == "ok"


def test_cpu_seconds_and_parent_of_a_process_with_an_odd_name(child, monkeypatch):
    assert meter.cpu_s()[0] > 0
    assert meter.parent(child.pid) == os.getpid()
    stat = b"12 (odd ) name) S 7 12 12 0 -1 4194560 100 200 3 4 250 50 1000 25 20 0 1 0 300 1 1"
    monkeypatch.setattr(meter, "_read", lambda path: stat)
    ticks = os.sysconf("SC_CLK_TCK")
    assert meter.cpu_s(12) == (300 / ticks, 1025 / ticks)
    assert meter.parent(12) == 7
    for short in (b"", b"12 (short) S 7 12", b"no brackets"):
        monkeypatch.setattr(meter, "_read", lambda path, text=short: text)
        assert (meter.cpu_s(12), meter.parent(12)) == (None, None)


def test_a_process_that_has_ended_has_no_parent_and_no_cpu_seconds():
    with subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert meter.parent(child.pid) == os.getpid()
        child.communicate(b"\n")
    assert meter.parent(child.pid) is None
    assert meter.cpu_s(child.pid) is None


def test_data_limit_is_cut_to_the_hard_limit(child):
    resource.prlimit(child.pid, resource.RLIMIT_DATA, (400 * MB, 500 * MB))
    assert meter.set_data_limit(child.pid, 900 * MB) == 500 * MB
    assert meter.set_data_limit(child.pid, 300 * MB) == 300 * MB
    assert meter.set_data_limit(child.pid, None) == 500 * MB
    assert resource.prlimit(child.pid, resource.RLIMIT_DATA) == (500 * MB, 500 * MB)


def test_children_are_found_through_every_generation(child):
    code = "import subprocess, sys; subprocess.run([sys.executable, '-S', '-c', 'print(1, flush=True); input()'])"
    parent = subprocess.Popen([sys.executable, "-S", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    parent.stdout.readline()
    below = list(meter.descendants(parent.pid))
    assert len(below) == 1
    assert {child.pid, parent.pid, *below} <= set(meter.descendants())
    assert meter._walk(os.getpid(), lambda pid: meter._parents().get(pid, [])) == meter.descendants()
    parent.communicate(b"\n")
    assert meter.descendants(parent.pid) == {}


def test_tree_pss_is_the_sum_and_counts_no_process_twice(child):
    together = meter.tree_pss([child.pid, child.pid, GONE])
    assert together == pytest.approx(meter.pss(child.pid), rel=0.05)


def test_a_zombie_is_not_alive_and_holds_nothing():
    process = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE)
    process.stdin.close()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert not meter.is_alive(process.pid)
    assert meter.statm(process.pid) == Statm(0, 0)
    assert meter.status(process.pid)["VmRSS"] == 0
    assert meter.tree_pss([process.pid]) == 0
    process.wait()


def test_a_process_name_may_hold_spaces_and_brackets(tmp_path):
    odd = tmp_path / "a) R 1 (b"
    odd.symlink_to(sys.executable)
    process = subprocess.Popen(
        [str(odd), "-S", "-c", "print(1, flush=True); input()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    process.stdout.readline()
    assert meter.is_alive(process.pid)
    assert process.pid in meter._parents()[os.getpid()]
    process.communicate(b"\n")


def test_a_vanished_process_gives_none_everywhere():
    for question in (
        meter.statm,
        meter.rss_anon,
        meter.status,
        meter.peak_rss,
        meter.pss,
        meter.cpu_s,
        meter.parent,
    ):
        assert question(GONE) is None
    assert meter.set_data_limit(GONE, 10 * MB) is None
    assert meter.reset_peak(GONE) is False
    assert meter.descendants(GONE) == {}
    assert meter.is_alive(GONE) is False


def test_not_being_able_to_look_is_an_error_and_not_a_zero(monkeypatch):
    def refuse(path, flags):
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(OSError, match="Too many open files"):
        meter.statm()
