"""The head of the cluster, and so all of it, goes while a run goes on; a new one comes, and the same command goes on.

Prints one line of JSON.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any

from tests.cluster.on_one_node import start
from tests.cluster.on_several_nodes import HERE, begin, ended, of_kind, wait_for_commits, write_documents

END_S = 120.0


def main() -> None:
    from tamis.core.client import RayClient

    os.environ.update(RAY_gcs_rpc_server_reconnect_timeout_s="5")  # a minute otherwise
    write_documents()
    found: dict[str, Any] = {"local": ended(begin("local", "local", ""), "local")}
    client = RayClient(num_cpus=2, include_dashboard=False, object_store_memory=80_000_000)
    start(client)
    process = begin("ray", "out", client.address)
    wait_for_commits("out", 4, process)
    client.stop()
    began_s = time.monotonic()
    found["without"] = {"code": process.wait(END_S), "seconds": round(time.monotonic() - began_s, 1)}
    found["committed"] = len(list((HERE / "out").glob("*.jsonl")))
    found["said"] = (HERE / "out.log").read_text(errors="replace")[-1500:]
    found["left"] = len(of_kind("tamis-agent", os.getpid()) + of_kind("tamis-worker", os.getpid()))
    start(client)
    try:
        found["again"] = ended(begin("ray", "out", client.address), "out")
    finally:
        client.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
