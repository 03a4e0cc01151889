"""Which executor a command uses: --executor and --address, or what its recipe says."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any

from tamis.cli.parsing.arguments import echo
from tamis.errors import UsageError

if TYPE_CHECKING:
    from tamis.backends.base import BaseExecutor

_ELSEWHERE = {
    "ray": "tamis.backends.ray_actor_pool:RayActorPoolExecutor",
    "ray_data": "tamis.backends.ray_data:RayDataExecutor",
    "xenna": "tamis.backends.xenna:XennaExecutor",
}
NAMES = ("local", *_ELSEWHERE)
_ALSO = {"ray_actor_pool": "ray"}


@contextlib.contextmanager
def chosen(settings: dict[str, Any]) -> Iterator[BaseExecutor | None]:
    """Yield the executor that the settings ask for while the command runs; None for the local one.

    The executor settings are removed from `settings`. A cluster that the recipe describes (`ray_client:`) is
    started before and always stopped afterwards.
    """
    name, address = settings.pop("executor", None) or "local", settings.pop("address", None)
    client = settings.pop("ray_client", None)
    name = _ALSO.get(name, name)
    if name == "local":
        if address is not None:
            raise UsageError("--address is of a Ray cluster: it goes with --executor ray, ray_data or xenna")
        if client is not None:
            echo(
                "the recipe's 'ray_client:' is not used: this is the local executor (--executor ray uses it)", err=True
            )
        yield None
        return
    with contextlib.ExitStack() as stack:
        if client is not None:
            if address is not None:
                raise UsageError("the recipe starts a cluster by itself ('ray_client:'); leave --address out")
            client.start()
            stack.callback(client.stop)
        yield stack.enter_context(contextlib.closing(_make(name, address)))


def _make(name: str, address: str | None) -> Any:
    if name not in _ELSEWHERE:
        raise UsageError(f"executor: expected one of {', '.join(NAMES)}, got {name!r}")
    module, _, kind = _ELSEWHERE[name].partition(":")
    return getattr(import_module(module), kind)(address=address)
