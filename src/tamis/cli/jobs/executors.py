"""Which executor a command uses: --executor and --address, or what its recipe says."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tamis.backends import registry
from tamis.cli.parsing.arguments import echo
from tamis.errors import UsageError

if TYPE_CHECKING:
    from tamis.backends.base import BaseExecutor


@contextlib.contextmanager
def chosen(settings: dict[str, Any]) -> Iterator[BaseExecutor | None]:
    """Yield the executor that the settings ask for while the command runs; None for the local one.

    The executor settings are removed from `settings`. A cluster that the recipe describes (`ray_client:`) is
    started before and always stopped afterwards.
    """
    name, address = settings.pop("executor", None) or registry.LOCAL, settings.pop("address", None)
    client = settings.pop("ray_client", None)
    others = ", ".join(registry.names_with_address())
    if name == registry.LOCAL:
        if address is not None:
            raise UsageError(f"--address is of a running cluster: use it with --executor {others}")
        if client is not None:
            echo(f"the recipe's 'ray_client:' is not used by the local executor; use --executor {others}", err=True)
        yield None
        return
    with contextlib.ExitStack() as stack:
        if client is not None:
            if address is not None:
                raise UsageError("the recipe starts a cluster by itself ('ray_client:'); leave --address out")
            client.start()
            stack.callback(client.stop)
        executor: Any = registry.load_executor(name, address)
        yield stack.enter_context(contextlib.closing(executor))
