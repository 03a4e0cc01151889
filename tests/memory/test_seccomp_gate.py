"""The gate: which calls wait, what is told of them, and what an answer does. A process of its own stands behind it."""

from __future__ import annotations

import errno
import select
from collections.abc import Iterator

import pytest

from tamis.memory import seccomp_gate as module
from tamis.memory.seccomp_gate import Gate, GateCall, filter_program
from tests.support.behind_gate import BehindGate

MIB = 1 << 20
SETUP = "import mmap, os, resource, subprocess, threading"


@pytest.fixture(scope="module")
def behind() -> Iterator[tuple[BehindGate, Gate]]:
    with BehindGate() as process:
        if process.gate is None:
            pytest.skip("this kernel or container allows no seccomp notifications")
        gate = Gate(process.gate)
        assert process.do(SETUP) == "None"
        yield process, gate
        gate.close()


def next_call(gate: Gate) -> GateCall:
    poll = select.poll()
    poll.register(gate.fileno(), select.POLLIN)
    assert poll.poll(20_000), "nobody came to the gate"
    call = gate.take()
    assert call is not None
    return call


def through(behind: tuple[BehindGate, Gate], line: str, error: int = 0) -> tuple[list[GateCall], str]:
    """Return the calls that a line of Python makes, all answered with this error (0: allowed), and its result."""
    process, gate = behind
    process.tell(line)
    poll = select.poll()
    poll.register(gate.fileno(), select.POLLIN)
    poll.register(process.fileno(), select.POLLIN)
    calls = []
    while process.fileno() not in dict(poll.poll(20_000)):
        call = next_call(gate)
        calls.append(call)
        if error:
            gate.refuse(call, error)
        else:
            gate.allow(call)
    return calls, process.answer()


def test_a_shared_mapping_waits_for_its_answer(behind: tuple[BehindGate, Gate]) -> None:
    calls, result = through(behind, f"held = mmap.mmap(-1, {5 * MIB}); result = len(held)")
    assert (calls[0].pid, calls[0].call, calls[0].n_bytes, calls[0].fd) == (behind[0].pid, "map", 5 * MIB, -1)
    assert result == str(5 * MIB)


def test_a_refusal_is_the_callers_error(behind: tuple[BehindGate, Gate]) -> None:
    _, result = through(behind, f"mmap.mmap(-1, {5 * MIB})", errno.ENOMEM)
    assert result == "OSError: [Errno 12] Cannot allocate memory"


def test_a_mapped_file_is_reported_by_its_descriptor(behind: tuple[BehindGate, Gate]) -> None:
    line = f"fd = os.memfd_create('x'); os.ftruncate(fd, {2 * MIB}); held = mmap.mmap(fd, 0); result = fd"
    calls, result = through(behind, line)
    assert (calls[0].call, calls[0].n_bytes, calls[0].is_private) == ("map", 2 * MIB, False)
    assert calls[0].fd > 2
    assert result.isdigit()


@pytest.mark.parametrize(
    "line",
    [
        f"bytearray({15 * MIB})",  # private: bounded already
        f"mmap.mmap(-1, {1 << 33}, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, 0)",  # reserved, not used
        "thread = threading.Thread(target=int); thread.start(); thread.join()",
        "resource.getrlimit(resource.RLIMIT_DATA)",
        "os.stat('/')",
        "held = bytearray(200_000); held *= 3",  # a small realloc()
    ],
)
def test_these_pass_without_a_notification(behind: tuple[BehindGate, Gate], line: str) -> None:
    assert through(behind, line) == ([], "None")


def test_a_large_private_allocation_is_reported(behind: tuple[BehindGate, Gate]) -> None:
    calls, _ = through(behind, f"bytearray({80 * MIB})")
    assert (calls[0].call, calls[0].n_bytes >= 80 * MIB) == ("allocate", True)


def test_a_fork_and_a_program_wait_too(behind: tuple[BehindGate, Gate]) -> None:
    fork = "pid = os.fork() or os._exit(0); result = os.waitpid(pid, 0)[1]"
    calls, result = through(behind, fork)
    assert ([c.call for c in calls], result) == (["fork"], "0")
    calls, result = through(behind, "result = subprocess.run(['/bin/true']).returncode")
    assert ([c.call for c in calls[:2]], result) == (["fork", "exec"], "0")
    assert calls[1].pid not in (calls[0].pid, behind[0].pid)


def test_a_fork_may_be_refused(behind: tuple[BehindGate, Gate]) -> None:
    _, result = through(behind, "os.fork()", errno.ENOMEM)
    assert result == "OSError: [Errno 12] Cannot allocate memory"


def test_no_process_gives_itself_another_limit(behind: tuple[BehindGate, Gate]) -> None:
    _, result = through(behind, "resource.setrlimit(resource.RLIMIT_DATA, (-1, -1))")
    assert result == "ValueError: not allowed to raise maximum limit"
    _, result = through(behind, "resource.prlimit(os.getpid(), resource.RLIMIT_DATA, (-1, -1))")
    assert "PermissionError" in result or "ValueError" in result
    _, result = through(
        behind, "resource.setrlimit(resource.RLIMIT_NOFILE, resource.getrlimit(resource.RLIMIT_NOFILE))"
    )
    assert result == "None"


def test_a_call_whose_caller_was_killed_has_no_owner() -> None:
    with BehindGate() as process:
        if process.gate is None:
            pytest.skip("this kernel or container allows no seccomp notifications")
        gate = Gate(process.gate)
        process.do(SETUP)
        process.tell(f"mmap.mmap(-1, {5 * MIB})")
        call = next_call(gate)
        process.process.kill()
        process.process.wait()
        gate.allow(call)
        assert gate.take() is None
        assert gate.is_deserted
        gate.close()


def test_the_filter_of_every_machine_we_know_fits_and_jumps_inside_itself() -> None:
    for numbers in module._NUMBERS.values():
        program = filter_program(numbers)
        n = len(program) // 8
        assert n < 100
        for i in range(n):
            code, yes, no = int.from_bytes(program[8 * i : 8 * i + 2], "little"), program[8 * i + 2], program[8 * i + 3]
            if code != module._RETURN:
                assert i + 1 + max(yes, no) < n


def test_an_unknown_machine_has_no_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.platform, "machine", lambda: "vax")
    assert module.close_gate() is None
