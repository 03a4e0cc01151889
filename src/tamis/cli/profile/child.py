"""One configuration of `tamis profile`, as a run of its own (`python -m tamis.cli.profile.child`, JSON on stdin and stdout).

A process of its own because a run counts the process that drives it: each configuration gets its whole budget. Imports nothing heavy.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from typing import Any


def run(asked: dict[str, Any]) -> dict[str, Any]:
    """Execute the recipe on the sample; what it took, or why it could not."""
    from tamis.cli.jobs.request import Request
    from tamis.cli.plan.probe import small_run
    from tamis.cli.terminal.interrupts import sigterm_interrupts
    from tamis.errors import BudgetError, TamisError

    parent = int(asked["parent"])
    began_s = [0.0]  # when the first partition was given out

    def watch(state: dict[str, Any]) -> None:
        if os.getppid() != parent:  # nobody waits for the result any more
            raise KeyboardInterrupt
        if state["phase"] == "working" and not began_s[0]:
            began_s[0] = time.monotonic()

    request = Request(asked["recipe"], asked["set"], tuple(asked["allow"]), asked["settings"])
    pipeline, settings = request.build()
    # Not 100%: that would also switch off the early end of a run whose stage fails on everything.
    settings |= {"memory": asked["memory"], "blocksize": asked["blocksize"], "quarantine_limit": "5%"}
    try:
        with sigterm_interrupts():
            result = small_run(pipeline, settings, asked["paths"], asked["output"], watch)
    except BudgetError as exc:
        return {"status": "infeasible", "message": str(exc)}
    except TamisError as exc:
        return {"status": "failed", "message": str(exc)}
    work_s = time.monotonic() - began_s[0] if began_s[0] else result.seconds
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    c = result.counters
    asked_for = result.prediction.get("conditions", {})
    return {
        "status": "ok" if result.exit_code == 0 else "failed", "message": result.message, "peak_bytes": result.peak_bytes,
        "seconds": result.seconds, "work_s": max(min(work_s, result.seconds), 0.05), "read_bytes": result.ledger.read_bytes, "cpu_s": sum(u.ru_utime + u.ru_stime for u in used),
        "n_workers": int(asked_for.get("n_workers", 0)), "n_partitions": c.get("committed", 0), "splits": c.get("splits", 0),
        "recycled": c.get("recycled", 0), "failures": sum(c.get(k, 0) for k in ("memory_failures", "kills", "crashes")),
    }  # fmt: skip


def main() -> int:
    asked = json.load(sys.stdin)
    try:
        found = run(asked)
    except KeyboardInterrupt:
        return 130
    print("\n" + json.dumps(found))  # on a line of its own, whatever a stage has printed before
    return 0


if __name__ == "__main__":
    sys.exit(main())
