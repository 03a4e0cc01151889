"""The forking server: imports everything once, then forks workers in milliseconds.

Started by exec with a clean environment and one thread (or forked from a warm process that was), so forking is safe; it
never imports the user's script (stages come by value or by module name). Workers share its pages: gc.freeze() keeps the
collector from touching, and so copying, them. Dies with the supervisor (its socket closes, and the kernel kills it if
the supervisor vanishes); workers die with it.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import socket
import sys
import traceback
from typing import TYPE_CHECKING, Any, NoReturn

from tamis.backends import early
from tamis.backends.fork_messages import TO_SERVER, LibrariesLoaded, NotLoaded
from tamis.backends.forking import Forker, adopt_orphans, die_with_parent, enter, leave, name_process, settle
from tamis.engine.channel import Channel
from tamis.engine.worker.stage_output import label_output
from tamis.memory import meter
from tamis.memory.seccomp_gate import close_gate

if TYPE_CHECKING:
    from tamis.engine.worker.process import UnitRunner


def main(fd: int, parent: int, how: str = "", *more: str) -> NoReturn:
    name_process("tamis-server")
    die_with_parent(parent)
    is_branch = how == early.EARLY
    leave(serve(socket.socket(fileno=fd), is_branch and early.load(*more), is_branch=is_branch))


def serve(sock: socket.socket, is_loaded: bool, forked: bool = False, is_branch: bool = False) -> int:
    """Load the job that comes over the socket, then fork workers for it. `is_loaded`: the libraries are there and warm.

    `forked`: from a warm process; `is_branch`: from a command.
    """
    name_process("tamis-server")
    channel = Channel(sock, TO_SERVER)
    try:
        runner, base_bytes = _load(channel, is_loaded)
        up = settle(drop_pages=not forked and not is_loaded, is_branch=is_branch)
        up = up._replace(stages_bytes=max(0, up.peak_bytes - base_bytes))
        gate = close_gate()
    except BaseException as exc:
        meter.set_data_limit("self", None)  # the message takes memory as well
        channel.send(_not_loaded(exc))
        return 1
    channel.send_with(up, [gate] if gate is not None else [])
    if gate is not None:
        os.close(gate)  # it is for the supervisor alone
    return Forker(channel, lambda request, fd: _work(fd, runner, request.environment)).serve()


def _load(channel: Channel, loaded: bool) -> tuple[UnitRunner, int]:
    """Return the runner for the job that comes over the channel, and the peak before its stages were loaded."""
    hello = channel.receive()
    if hello is None:
        os._exit(0)  # the supervisor is gone
    payload = channel.take(hello.payload_bytes)
    enter(hello.context)
    label_output()
    from tamis.backends.preload import load, load_libraries
    from tamis.kernels.loading.library import RECORDS

    if not loaded:
        load_libraries([RECORDS])
    base_bytes = meter.peak_rss() or 0
    channel.send(LibrariesLoaded())
    room = channel.receive()
    if room is None:
        os._exit(0)
    if room.room_bytes:
        meter.set_data_limit("self", (meter.data_bytes() or 0) + room.room_bytes)
    return load(payload, hello.config), base_bytes


def _not_loaded(exc: BaseException) -> NotLoaded:
    from tamis.backends.preload import stage_of
    from tamis.failures import is_memory_failure, requested_bytes

    about = f"{type(exc).__name__}: {exc}", traceback.format_exc()[-4000:]
    return NotLoaded(*about, is_memory_failure(exc), requested_bytes(exc), stage_of(exc))


def _work(fd: int, runner: Any, environment: dict[str, str]) -> int:
    name_process("tamis-worker")
    os.environ.update(environment)  # which GPUs it sees: before any library looks for them
    os.setpgid(0, 0)
    adopt_orphans()
    faulthandler.enable()
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("500")
    from tamis.engine.messages import ORDERS
    from tamis.engine.worker.failures import refuse_breakpoint
    from tamis.engine.worker.loop import work

    if "PYTHONBREAKPOINT" not in os.environ:
        sys.breakpointhook = refuse_breakpoint

    return work(Channel(socket.socket(fileno=fd), ORDERS), runner)
