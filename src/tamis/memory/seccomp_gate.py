"""The gate: system calls that bypass RLIMIT_DATA wait for the supervisor's answer (seccomp notifications).

RLIMIT_DATA bounds private pages of one process, at once and exactly. It does not see shared and file mappings, System V
shared memory, and children (each has a limit of its own). Watching cannot bound those: a file in the page cache was
mapped at 200 GB/s (measured). So a process closes the gate on itself and on everything it starts, and the process at
the other end decides. Needs Linux 5.5 and no privileges; where a kernel or container does not allow it, `close_gate`
returns None and only watching is left.

Filtered: mappings that are shared or of a file, private ones of 16 MiB or more (bounded already, but who sees them
knows what was asked for, and can let one of several processes have it), mremap to 1 MiB or more, shmget, fork and its
kin, exec. Setting RLIMIT_DATA is forbidden, and clone3 (whose flags cannot be seen) is answered with ENOSYS, upon which
libraries use clone. All other calls cost nothing: the kernel knows that the filter lets them pass. One notification
takes 0.15 ms.

TAMIS_GATE=off leaves the gate open: for debuggers, and to see how a machine without it fares.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import platform
import select
import struct
import sys
from collections.abc import Mapping
from typing import Literal, NamedTuple

MIN_PRIVATE_BYTES = 16 << 20
# mremap, which does not name the kind of memory, and in which realloc() of larger buffers ends.
MIN_GROWN_BYTES = 1 << 20
SWITCH = "TAMIS_GATE"

Call = Literal["map", "allocate", "grow", "segment", "fork", "exec"]

_NUMBERS: dict[str, dict[str, int]] = {
    "x86_64": {
        "arch": 0xC000003E,
        "mmap": 9,
        "mremap": 25,
        "shmget": 29,
        "clone": 56,
        "fork": 57,
        "vfork": 58,
        "execve": 59,
        "setrlimit": 160,
        "prlimit64": 302,
        "seccomp": 317,
        "execveat": 322,
        "clone3": 435,
    },
    "aarch64": {
        "arch": 0xC00000B7,
        "mmap": 222,
        "mremap": 216,
        "shmget": 194,
        "clone": 220,
        "execve": 221,
        "setrlimit": 164,
        "prlimit64": 261,
        "seccomp": 277,
        "execveat": 281,
        "clone3": 435,
    },
}
_CALLS: dict[str, Call] = {
    "mmap": "map",
    "mremap": "grow",
    "shmget": "segment",
    "clone": "fork",
    "fork": "fork",
    "vfork": "fork",
    "execve": "exec",
    "execveat": "exec",
}

_PR_SET_NO_NEW_PRIVS = 38
_SET_MODE_FILTER, _SPEC_ALLOW, _NEW_LISTENER, _WAIT_KILLABLE = 1, 1 << 2, 1 << 3, 1 << 5
_RECEIVE, _SEND = 0xC0502100, 0xC0182101
_ALLOW, _NOTIFY, _ERRNO = 0x7FFF0000, 0x7FC00000, 0x00050000
_LOAD, _EQUAL, _ANY_BIT, _AT_LEAST, _RETURN = 0x20, 0x15, 0x45, 0x35, 0x06
_PROT_WRITE, _MAP_SHARED, _MAP_ANONYMOUS, _CLONE_VM, _CLONE_THREAD, _RLIMIT_DATA = 0x02, 0x01, 0x20, 0x100, 0x10000, 2
_NOTICE = struct.Struct("=QIIiIQ6Q")
_ANSWER = struct.Struct("=QqiI")
_CONTINUE = 1


class GateCall(NamedTuple):
    """One call that waits.

    `n_bytes`: what it would add; `fd`: the mapped file's, in that process, or -1; `address`: of a "grow".
    """

    id: int
    pid: int
    call: Call
    n_bytes: int = 0
    fd: int = -1
    address: int = 0
    is_private: bool = False  # of a mapping
    copies: bool = True  # a fork: whether the child gets its own memory


# -- the process at the gate --------------------------------------------------------------------------------------
def close_gate() -> int | None:
    """Close it on this process, which must have one thread, and all that it will start.

    Returns the descriptor for `Gate`.
    """
    numbers = _numbers()
    if numbers is None or is_off(os.environ):
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    program = filter_program(numbers)
    code = ctypes.create_string_buffer(program, len(program))
    packed = struct.pack("@HxxxxxxP", len(program) // 8, ctypes.addressof(code))
    pointer = ctypes.create_string_buffer(packed, len(packed))
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        return None
    for flags in (_NEW_LISTENER | _SPEC_ALLOW | _WAIT_KILLABLE, _NEW_LISTENER | _SPEC_ALLOW):  # the third: Linux 5.19
        fd = int(libc.syscall(numbers["seccomp"], _SET_MODE_FILTER, flags, pointer))
        if fd >= 0:
            os.set_inheritable(fd, False)
            return fd
    return None


def is_off(environment: Mapping[str, str]) -> bool:
    """Return True if the gate is switched off in this environment."""
    return environment.get(SWITCH, "") == "off"


def _numbers() -> dict[str, int] | None:
    """Return the system call numbers of this machine; None if unknown, or for a 32-bit process."""
    return _NUMBERS.get(platform.machine()) if sys.maxsize > 2**32 and sys.byteorder == "little" else None


def filter_program(numbers: dict[str, int]) -> bytes:
    """Assemble classic BPF: jumps go forward only, by labels resolved here."""
    trap = "notify"
    lines: list[tuple[int, int, str, str] | str] = [
        (_LOAD, 4, "", ""),
        (_EQUAL, numbers["arch"], "", "allow"),  # programs for another architecture are watched only
        (_LOAD, 0, "", ""),
    ]
    where = {
        "mmap": "mmap",
        "mremap": "mremap",
        "shmget": trap,
        "clone": "clone",
        "fork": trap,
        "vfork": trap,
        "execve": trap,
        "execveat": trap,
        "clone3": "unknown",
        "prlimit64": "prlimit",
        "setrlimit": "setrlimit",
    }
    lines += [(_EQUAL, numbers[name], label, "") for name, label in where.items() if name in numbers]
    lines += [(_RETURN, _ALLOW, "", "")]
    lines += ["mmap", *_argument(3), (_ANY_BIT, _MAP_SHARED, trap, ""), (_ANY_BIT, _MAP_ANONYMOUS, "", trap)]
    lines += [*_argument(2), (_ANY_BIT, _PROT_WRITE, "", "allow")]  # what is only reserved takes no memory
    lines += [
        *_argument(1, high=True),
        (_AT_LEAST, 1, trap, ""),
        *_argument(1),
        (_AT_LEAST, MIN_PRIVATE_BYTES, trap, "allow"),
    ]
    lines += ["mremap", *_argument(2, high=True), (_AT_LEAST, 1, trap, "")]
    lines += [*_argument(2), (_AT_LEAST, MIN_GROWN_BYTES, trap, "allow")]
    lines += ["clone", *_argument(0), (_ANY_BIT, _CLONE_THREAD, "allow", trap)]
    lines += ["prlimit", *_argument(1), (_EQUAL, _RLIMIT_DATA, "", "allow")]
    lines += [*_argument(2), (_AT_LEAST, 1, "forbidden", "")]
    lines += [*_argument(2, high=True), (_AT_LEAST, 1, "forbidden", "allow")]
    lines += ["setrlimit", *_argument(0), (_EQUAL, _RLIMIT_DATA, "forbidden", "allow")]
    lines += ["allow", (_RETURN, _ALLOW, "", ""), "notify", (_RETURN, _NOTIFY, "", "")]
    lines += ["unknown", (_RETURN, _ERRNO | errno.ENOSYS, "", ""), "forbidden", (_RETURN, _ERRNO | errno.EPERM, "", "")]
    return _assembled(lines)


def _argument(i: int, high: bool = False) -> list[tuple[int, int, str, str] | str]:
    """Load half of an argument: a filter sees 32 bits at a time."""
    return [(_LOAD, 16 + 8 * i + 4 * high, "", "")]


def _assembled(lines: list[tuple[int, int, str, str] | str]) -> bytes:
    places: dict[str, int] = {}
    n = 0
    for line in lines:
        if isinstance(line, str):
            places[line] = n
        else:
            n += 1
    code, position = [], 0
    for line in lines:
        if isinstance(line, str):
            continue
        operation, value, yes, no = line
        jumps = [places[label] - position - 1 if label else 0 for label in (yes, no)]
        code.append(struct.pack("=HBBI", operation, *jumps, value))
        position += 1
    return b"".join(code)


# -- who decides ------------------------------------------------------------------------------------------------------
class Gate:
    """The other end. A waiting call blocks until it is answered; when it is closed, calls fail (ENOSYS)."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._poll = select.poll()
        self._poll.register(fd, select.POLLIN)
        numbers = _numbers() or {}
        self._names = {numbers[name]: name for name in _CALLS if name in numbers}

    def fileno(self) -> int:
        return self._fd

    def take(self) -> GateCall | None:
        """Return the next waiting call; None if there is none (any more)."""
        if not any(events & select.POLLIN for _, events in self._poll.poll(0)):
            return None
        buffer = bytearray(_NOTICE.size)
        try:
            fcntl.ioctl(self._fd, _RECEIVE, buffer)
        except OSError:  # it was killed meanwhile
            return None
        identity, pid, _, number, _, _, *arguments = _NOTICE.unpack(buffer)
        return gate_call(identity, pid, self._names.get(number, ""), arguments)

    @property
    def is_deserted(self) -> bool:
        """True if no process is left at it."""
        return any(events & select.POLLHUP for _, events in self._poll.poll(0))

    def allow(self, call: GateCall) -> None:
        self._answer(call, 0, _CONTINUE)

    def refuse(self, call: GateCall, error: int) -> None:
        self._answer(call, -error, 0)

    def close(self) -> None:
        os.close(self._fd)

    def _answer(self, call: GateCall, error: int, flags: int) -> None:
        with contextlib.suppress(OSError):  # it was killed meanwhile
            fcntl.ioctl(self._fd, _SEND, bytearray(_ANSWER.pack(call.id, 0, error, flags)))


def gate_call(identity: int, pid: int, name: str, arguments: list[int]) -> GateCall:
    """Return a description of a system call and of the memory it would add.

    >>> gate_call(7, 42, "mmap", [0, 5_000_000, 3, 0x21, 2**64 - 1, 0])  # anonymous and shared
    GateCall(id=7, pid=42, call='map', n_bytes=5000000, fd=-1, address=0, is_private=False, copies=True)
    >>> gate_call(7, 42, "mremap", [4096, 1_000_000, 80_000_000, 1, 0, 0]).n_bytes
    79000000
    """
    call = _CALLS.get(name, "fork")
    if call == "map" and arguments[3] & _MAP_ANONYMOUS and not arguments[3] & _MAP_SHARED:
        return GateCall(identity, pid, "allocate", arguments[1])
    if call == "map":
        fd = -1 if arguments[3] & _MAP_ANONYMOUS else ctypes.c_int(arguments[4]).value
        return GateCall(identity, pid, call, arguments[1], fd, is_private=not arguments[3] & _MAP_SHARED)
    if call == "grow":
        return GateCall(identity, pid, call, max(0, arguments[2] - arguments[1]), address=arguments[0])
    if call == "fork":
        return GateCall(
            identity, pid, call, copies=name == "fork" or (name == "clone" and not arguments[0] & _CLONE_VM)
        )
    return GateCall(identity, pid, call, arguments[1] if call == "segment" else 0)
