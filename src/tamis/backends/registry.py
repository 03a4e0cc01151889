"""The executors that the command line and recipes know by name; every list of them follows from `EXECUTORS`.

Executors of a cluster are satellites: they are named here and imported only when a run uses them.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from tamis import _satellites
from tamis.errors import UsageError, install_command

if TYPE_CHECKING:
    from tamis.backends.base import BaseExecutor

LOCAL, IN_PROCESS = "local", "in_process"


class ExecutorInfo(NamedTuple):
    """Facts that a user needs to choose an executor."""

    help: str
    takes_address: bool = False  # of a running cluster: its constructor has the parameter `address`
    extra: str = ""  # of the package, whose installation provides `modules`
    modules: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()


# Classes of all but the first two are in the manifest of satellites (_satellites.py), as "executor.NAME".
EXECUTORS: Mapping[str, ExecutorInfo] = {
    LOCAL: ExecutorInfo("this machine, the default"),
    IN_PROCESS: ExecutorInfo("this process, for debugging: breakpoints work, the memory is not bounded"),
    "ray": ExecutorInfo("a Ray cluster, one actor on every node", True, "ray", ("ray",), ("ray_actor_pool",)),
    "ray_data": ExecutorInfo("a Ray cluster, through Ray Data", True, "ray", ("ray",)),
    "xenna": ExecutorInfo("a Ray cluster, through Cosmos Xenna", True, "ray", ("ray", "cosmos_xenna")),
}
NAMES = tuple(EXECUTORS)
ALIASES = {alias: name for name, info in EXECUTORS.items() for alias in info.aliases}
HELP = "Where to run: " + "; ".join(f"{name} ({info.help})" for name, info in EXECUTORS.items()) + "."
if TYPE_CHECKING:
    ExecutorName = str
else:
    ExecutorName = Literal[NAMES]  # the choices of --executor


def find_executor(name: str) -> ExecutorInfo:
    """Return the executor of this name or alias; raise UsageError if there is none."""
    info = EXECUTORS.get(ALIASES.get(name, name))
    if info is None:
        raise UsageError(f"executor: expected one of {', '.join(NAMES)}, got {name!r}")
    return info


def load_executor(name: str, address: str | None = None) -> BaseExecutor:
    """Import and construct the executor of this name. `address`: of a running cluster."""
    info = find_executor(name)
    if address is not None and not info.takes_address:
        raise UsageError(f"--executor {name} takes no --address; executors that do: {', '.join(names_with_address())}")
    check_installed(name)
    options: dict[str, Any] = {"address": address} if info.takes_address else {}
    executor: BaseExecutor = executor_class(name)(**options)
    return executor


def executor_class(name: str) -> type[BaseExecutor]:
    """Import and return the class of the executor of this name."""
    name = ALIASES.get(name, name)
    if name in (LOCAL, IN_PROCESS):
        from tamis.backends.local import InProcessExecutor, LocalExecutor

        return LocalExecutor if name == LOCAL else InProcessExecutor
    loaded: type[BaseExecutor] = _satellites.load(f"executor.{name}")
    return loaded


def check_installed(name: str) -> None:
    """Raise UsageError with the command that installs what an executor needs; nothing is imported."""
    info = find_executor(name)
    for module in info.modules:
        if find_spec(module) is None:
            raise UsageError(
                f"the executor {name!r} needs {module}, which is not installed: {install_command(info.extra)}"
            )


def names_with_address() -> list[str]:
    """Return the names of the executors that can join a running cluster."""
    return [name for name, info in EXECUTORS.items() if info.takes_address]
