"""`tamis dashboard`: a web page on a run, live or finished; and the same during a run (`--dashboard`).

The page is served by a process of its own (observe/dashboard), which needs the standard library only.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import tamis
from tamis import _satellites
from tamis.cli.parsing.arguments import Argument, Option, echo
from tamis.cli.parsing.options import LaunchOptions
from tamis.errors import UsageError
from tamis.stores.urls import absolute

PORT = 8787
RESERVED_BYTES = 24_000_000  # of the budget, for the dashboard of a run; it uses about 20 MB
_END_S = 5.0


def dashboard(
    output: Annotated[str, Argument(metavar="RUN", help="Output folder of a run, or its run directory.")],
    port: Annotated[int, Option(min=0, max=65535, help="Port of the page; 0: any that is free.")] = PORT,
    host: Annotated[
        str,
        Option(
            help="Address to serve the page on: 127.0.0.1 (only this machine) or 0.0.0.0 (any machine that can reach "
            "it, with a password)."
        ),
    ] = "127.0.0.1",
    token: Annotated[
        str | None,
        Option(
            help="Password in the page's address. Default: none for this machine only; otherwise a random one is "
            "generated and printed."
        ),
    ] = None,
    open_: Annotated[bool, Option("--open/--no-open", help="Open the page in a browser.")] = False,
    scratch: Annotated[Path | None, Option(help="The scratch folder of a deduplication, if it was given one.")] = None,
) -> None:
    """Show a run as a web page: memory against the budget, partitions, documents, speed, events. Ends with Ctrl-C.

    Works during the run, after it, and on another machine that sees the folder. It reads the run directory and writes
    nothing.

    Example: tamis dashboard clean/
    """
    from tamis.observe.passes import find_run

    serving = _satellites.load("dashboard.serving")
    if token is not None and not serving.good_token(token):
        raise UsageError("--token: expected 8 to 256 letters, digits, - and _")
    if token is None and not serving.is_loopback(host):
        token = os.urandom(16).hex()
    command, env = _command(str(find_run(output)), host, port, token, None if scratch is None else str(scratch))
    sys.stdout.flush()
    os.execve(command[0], [*command, "--open"] if open_ else command, env)


def _command(
    run_dir: str, host: str, port: int, token: str | None, scratch: str | None
) -> tuple[list[str], dict[str, str]]:
    from tamis.memory.release import hygiene_env

    source = os.path.dirname(os.path.dirname(os.path.abspath(tamis.__file__)))
    env = hygiene_env(os.environ)
    env["PYTHONPATH"] = os.pathsep.join(p for p in (source, env.get("PYTHONPATH", "")) if p)
    env.pop("TAMIS_DASHBOARD_TOKEN", None)
    if token is not None:
        env["TAMIS_DASHBOARD_TOKEN"] = token
    # -P: a file named like a module in the current folder must not be run.
    command = [sys.executable, "-P", "-m", _satellites.module_of("dashboard"), os.path.abspath(run_dir), "--host", host]
    command += ["--port", str(port)]
    return ([*command, "--scratch", absolute(scratch)] if scratch is not None else command), env


@contextlib.contextmanager
def dashboard_of_run(run_dir: str, launch: LaunchOptions, scratch: str | None) -> Iterator[None]:
    """Run the dashboard of a run while the block runs, if the launch options ask for it.

    The dashboard counts in the budget and ends with the run. A dashboard that fails to start never hinders a run, and
    no run waits for one: the socket is opened here, so that the address is known before the process is up.
    """
    port = launch.dashboard_port
    if not launch.dashboard and port is None:
        yield
        return
    from tamis.memory import counted_processes as others

    try:
        process, address = _start(run_dir, PORT if port is None else port, scratch)
    except OSError as exc:
        echo(f"no dashboard: {exc.strerror or exc}", err=True)
        yield
        return
    others.join(process.pid, RESERVED_BYTES)
    echo(f"dashboard: {address}", err=True)
    try:
        yield
    finally:
        _end(process)
        others.leave(process.pid)


def _start(run_dir: str, port: int, scratch: str | None) -> tuple[subprocess.Popen[bytes], str]:
    """Start the dashboard process and return it with its address: on this port, or on another if it is taken."""
    serving = _satellites.load("dashboard.serving")
    try:
        listening = serving.listen("127.0.0.1", port)
    except OSError:
        listening = serving.listen("127.0.0.1", 0)
    with listening:
        number = listening.getsockname()[1]
        command, env = _command(run_dir, "127.0.0.1", number, None, scratch)
        command += ["--socket", str(listening.fileno()), "--parent", str(os.getpid())]
        # A session of its own: Ctrl-C is for the run, which then ends this as well.
        process = subprocess.Popen(
            command,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[listening.fileno()],
            start_new_session=True,
        )
    return process, f"http://127.0.0.1:{number}/"


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the dashboard process, which notifies open pages first."""
    from tamis.memory.kill_tree import end_within

    if (status := process.poll()) is not None:
        echo(f"the dashboard had ended before the run (status {status})", err=True)
        return
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    end_within(process, _END_S)
