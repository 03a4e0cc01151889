"""The placer: a process beside the driver that talks to Ray, so that the driver need not: Ray ends its drivers when the cluster is gone.

It connects to the cluster, has agents started on its nodes in one of the ways of placing/, and starts others where agents or nodes go and come.
Told what to do in one line of JSON; tells what it does in lines of JSON; ends when the driver is gone or has had enough.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import socket
import sys
import traceback

from tamis.backends.cluster.placing.driver import Driver
from tamis.backends.forking import leave, name_process


def connect(address: str) -> None:
    """Join this cluster, and name it to whatever asks for one without an address: where several run on a machine, Ray's own tools (and with them
    Xenna) take any that they find, and wait for minutes for one whose token they do not know."""
    import ray

    ray.init(address=address, log_to_driver=False, ignore_reinit_error=True, configure_logging=False)
    os.environ["RAY_ADDRESS"] = ray.get_runtime_context().gcs_address


def main(fd: int, parent: int) -> None:
    name_process("tamis-placer")
    import gc

    gc.enable()
    driver = Driver(socket.socket(fileno=fd))
    wish = driver.wish()
    try:
        driver.tell(text=f"connecting to Ray at {wish['address']}")
        connect(wish["address"])
        importlib.import_module(f"tamis.backends.cluster.placing.{wish['how']}").place(wish, driver)
    except BaseException as exc:
        traceback.print_exc()
        driver.tell(error=f"Ray: {type(exc).__name__}: {str(exc)[:2000]}")
    with contextlib.suppress(BaseException):
        import ray

        ray.shutdown()
    sys.stderr.flush()
    leave(0)
