"""The services of a job while a command runs it: executor, dashboard, metrics and alerts."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from tamis.backends import registry
from tamis.cli.parsing.arguments import echo
from tamis.cli.parsing.options import LaunchOptions
from tamis.errors import UsageError

if TYPE_CHECKING:
    from tamis.backends.base import BaseExecutor
    from tamis.cli.jobs.request import Request
    from tamis.engine.schema import AlertCounts
    from tamis.observe.alerts.parse import Section
    from tamis.observe.alerts.watch import Watch


class AlertOptions(NamedTuple):
    """Alert settings of the user and of the recipe. `file`: from --alerts."""

    file: str | None = None
    allow_recipe_sinks: bool = False
    recipe: Section | None = None


class Launch(NamedTuple):
    """The launch of a job: the options of its command, completed by the recipe."""

    options: LaunchOptions
    executor: str = registry.LOCAL
    ray_client: Any = None  # a cluster that the recipe describes (`ray_client:`)
    alerts: AlertOptions = AlertOptions()

    @classmethod
    def of_request(cls, request: Request) -> Launch:
        options, recipe = request.launch, request.recipe
        alerts = AlertOptions(options.alerts, request.consent.alert_sinks, recipe.alerts)
        return cls(options, options.executor or recipe.backend, recipe.ray_client, alerts)

    @classmethod
    def of_options(cls, options: LaunchOptions) -> Launch:
        """Return that of a command without a recipe."""
        return cls(options, options.executor or registry.LOCAL)

    @contextlib.contextmanager
    def surroundings(self, run_dir: str, settings: Mapping[str, Any]) -> Iterator[BaseExecutor | None]:
        """Serve metrics and the dashboard if the options ask for them, and yield the executor.

        None for the local one.
        """
        from tamis.cli.runs.dashboard import dashboard_of_run
        from tamis.cli.runs.metrics import endpoint_of_run

        scratch = settings.get("scratch")
        with (
            endpoint_of_run(run_dir, self.options, scratch),
            dashboard_of_run(run_dir, self.options, scratch),
            self.open_executor() as executor,
        ):
            yield executor

    @contextlib.contextmanager
    def open_executor(self) -> Iterator[BaseExecutor | None]:
        """Yield the executor; None for the local one.

        A cluster of the recipe is started before and always stopped afterwards.
        """
        address, others = self.options.address, ", ".join(registry.names_with_address())
        if self.executor in (registry.LOCAL, registry.IN_PROCESS):
            if address is not None:
                raise UsageError(f"--address is of a running cluster: use it with --executor {others}")
            if self.ray_client is not None:
                unused = f"the recipe's 'ray_client:' is not used by the {self.executor} executor"
                echo(f"{unused}; use --executor {others}", err=True)
            yield None if self.executor == registry.LOCAL else registry.load_executor(self.executor)
            return
        with contextlib.ExitStack() as stack:
            if self.ray_client is not None:
                if address is not None:
                    raise UsageError("the recipe starts a cluster by itself ('ray_client:'); leave --address out")
                self.ray_client.start()
                stack.callback(self.ray_client.stop)
            executor: Any = registry.load_executor(self.executor, address)
            yield stack.enter_context(contextlib.closing(executor))


def make_watch(
    alerts: AlertOptions, settings: Mapping[str, Any], run_dir: str, name: str, show: Callable[[str], None]
) -> Watch | None:
    """Return the watch of a run, or None if alerts are off. Invalid rules are reported before anything starts."""
    from tamis.backends import alerting

    return alerting.make_watch(alerts.file, settings, run_dir, name, show, alerts.recipe, alerts.allow_recipe_sinks)  # type: ignore[no-any-return]


def alert_lines(alerts: AlertCounts | None) -> list[str]:
    """Return the last lines of the summary: the number of alerts, their rules, and whether all were delivered."""
    if not alerts:
        return []
    lines = []
    if alerts["n"]:
        rules = ", ".join(f"{n} x {rule}" for rule, n in alerts["rules"].items())
        lines.append(f"{alerts['n']} alert{'s' if alerts['n'] != 1 else ''} ({rules}): {alerts['log']}")
    for sink, n in alerts["undelivered"].items():
        lines.append(f"{n} alert{'s' if n != 1 else ''} did not reach {sink}")
    return lines
