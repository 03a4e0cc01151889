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
    """What the end of a worker says about the unit it was working on. `was_alone`: nobody else was at work when it was killed.

    `kept_bytes`: what workers of this kind hold between units (models). A worker that dies close to its cap may have wanted more memory: libraries
    crash when an allocation fails. One that holds most of its cap all the time is always close to it, and one that ends by a plain exit
    did not crash: both say nothing about memory.
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
    if signal and cap_bytes and used_bytes - kept_bytes > (cap_bytes - kept_bytes) * 8 // 10:
        return failure("memory", f"the worker died ({how}) close to its memory cap")
    return failure("crash", f"the worker process died: {how}")
