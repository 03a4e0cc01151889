"""The forking server: imports everything once, then forks workers in milliseconds.

Started by exec with a clean environment and one thread, so forking is safe; it never imports the user's script (stages come
by value or by module name). Workers share its pages: gc.freeze() keeps the collector from touching, and so copying, them.
Dies with the supervisor (its socket closes, and the kernel kills it if the supervisor vanishes); workers die with it.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import faulthandler
import gc
import json
import os
import select
import signal
import socket
import struct
import sys
import traceback
from typing import Any

_PR_SET_PDEATHSIG = 1
_HEAD = struct.Struct("<I")


def main(fd: int, parent: int) -> int:
    die_with_parent(parent)
    sock = socket.socket(fileno=fd)
    server = _Server(sock)
    try:
        server.set_up()
    except BaseException as exc:
        server.send({"type": "error", "error": f"{type(exc).__name__}: {exc}", "trace": traceback.format_exc()[-4000:]})
        return 1
    return server.serve()


def die_with_parent(parent: int) -> None:
    """Ask the kernel to kill this process when its parent is gone."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


class _Server:
    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._data = bytearray()
        self._fds: list[int] = []
        self._children: dict[int, int] = {}  # pid -> worker id
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_write, False)
        os.set_blocking(self._wake_read, False)

    # -- messages -------------------------------------------------------------------------------------------------------
    def send(self, message: dict[str, Any]) -> None:
        data = json.dumps(message).encode()
        with contextlib.suppress(OSError):
            self.sock.sendall(_HEAD.pack(len(data)) + data)

    def _receive(self, block: bool) -> bool:
        """Read what is there, with file descriptors. False when the supervisor is gone."""
        flags = 0 if block else socket.MSG_DONTWAIT
        try:
            data, ancillary, _, _ = self.sock.recvmsg(1 << 16, socket.CMSG_SPACE(64 * 4), flags)
        except BlockingIOError:
            return True
        for level, kind, raw in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds = array.array("i")
                fds.frombytes(raw[: len(raw) - len(raw) % fds.itemsize])
                self._fds.extend(fds)
        self._data += data
        return bool(data)

    def _take(self, n_bytes: int) -> bytes:
        while len(self._data) < n_bytes:
            if not self._receive(block=True):
                os._exit(0)
        data = bytes(self._data[:n_bytes])
        del self._data[:n_bytes]
        return data

    def _next(self) -> dict[str, Any] | None:
        if len(self._data) < _HEAD.size:
            return None
        (size,) = _HEAD.unpack_from(self._data)
        if len(self._data) < _HEAD.size + size:
            return None
        self._take(_HEAD.size)
        message: dict[str, Any] = json.loads(self._take(size))
        return message

    # -- life -----------------------------------------------------------------------------------------------------------
    def set_up(self) -> None:
        (size,) = _HEAD.unpack(self._take(_HEAD.size))
        hello = json.loads(self._take(size))
        payload = self._take(hello["payload_bytes"])
        sys.path[:] = hello["sys_path"]
        with contextlib.suppress(OSError):
            os.chdir(hello["cwd"])
        log = os.open(hello["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
        from tamis.backends.preload import load

        self.runner = load(payload, hello["place"])
        from tamis.memory import meter
        from tamis.memory.pages import drop_clean_pages

        gc.collect()
        gc.freeze()
        drop_clean_pages()

        status = meter.status() or {}
        self.send(
            {
                "type": "up", "anon_bytes": status.get("RssAnon", 0), "data_bytes": status.get("VmData", 0),
                "pss_bytes": meter.pss() or 0, "peak_bytes": status.get("VmHWM", 0), "threads": status.get("Threads", 1),
            }
        )  # fmt: skip

    def serve(self) -> int:
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        while True:
            select.select([self.sock.fileno(), self._wake_read], [], [], 5.0)
            with contextlib.suppress(BlockingIOError):
                while os.read(self._wake_read, 4096):
                    pass
            self._reap()
            if not self._receive(block=False):
                return 0
            while (message := self._next()) is not None:
                self._fork(int(message["worker"]), self._fds.pop(0))

    def _reap(self) -> None:
        while self._children:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            worker = self._children.pop(pid, None)
            if worker is not None:
                code = os.waitstatus_to_exitcode(status)
                self.send({"type": "exit", "worker": worker, "pid": pid, "code": code})

    def _fork(self, worker: int, fd: int) -> None:
        pid = os.fork()
        if pid:
            os.close(fd)
            self._children[pid] = worker
            self.send({"type": "forked", "worker": worker, "pid": pid})
            return
        status = 1
        try:
            status = self._be_worker(fd)
        except BaseException:
            traceback.print_exc()
        finally:
            with contextlib.suppress(OSError):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(status)

    def _be_worker(self, fd: int) -> int:
        parent = os.getppid()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        die_with_parent(parent)
        os.setpgid(0, 0)
        self.sock.close()
        os.close(self._wake_read)
        os.close(self._wake_write)
        faulthandler.enable()
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
            file.write("500")
        from tamis.engine.channel import Channel
        from tamis.engine.worker import work

        return work(Channel(socket.socket(fileno=fd)), self.runner)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
