"""What the end of a worker says about the unit it was working on. Pure."""

from __future__ import annotations

from tamis.engine.messages import Failure

_SIGKILL = 9


def judge_death(
    why_killed: str,
    how: str,
    signal: int,
    used_bytes: int,
    cap_bytes: int,
    was_alone: bool = False,
    stage: str = "",
    kept_bytes: int = 0,
) -> Failure:
    """Return what the end of a worker says about its unit.

    `was_alone`: no other worker was busy when it was killed. `kept_bytes`: of `used_bytes`, what the worker held before the unit.
    """

    def failure(kind: str, error: str) -> Failure:
        return Failure(kind, error, stage)

    if why_killed == "timeout":
        return failure("timeout", "took longer than the timeout")
    if why_killed == "over its cap":
        return failure("memory", "went over its memory cap")
    if why_killed == "memory pressure" and was_alone and used_bytes > cap_bytes * 8 // 10:
        return failure("memory", "took more memory than the budget leaves")
    if why_killed == "replaced":
        return failure("replaced", "made room for other work")
    if why_killed or signal == _SIGKILL:
        return failure("killed", why_killed or "killed from outside")
    # A failed allocation ends a process by a signal, if at all: one that exits by itself has another reason.
    if signal and cap_bytes and cap_bytes - used_bytes < (cap_bytes - kept_bytes) * 2 // 10:
        return failure("memory", f"the worker died ({how}) close to its memory cap")
    return failure("crash", f"the worker process died: {how}")
