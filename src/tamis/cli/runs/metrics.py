"""`tamis metrics`: figures of a run for Prometheus; its rules for alerts and a dashboard for Grafana."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from tamis import _satellites
from tamis.cli.parsing.arguments import Argument, CommandExit, Option, echo
from tamis.cli.parsing.options import LaunchOptions
from tamis.errors import UsageError

PORT = 9464


def metrics(
    output: Annotated[str | None, Argument(metavar="RUN", help="Output folder of a run, or its run directory.")] = None,
    port: Annotated[int, Option(min=0, max=65535, help="Port to serve the metrics on; 0: any that is free.")] = PORT,
    host: Annotated[
        str,
        Option(
            help="Address to serve the metrics on: 127.0.0.1 (only this machine) or 0.0.0.0 (any machine that can "
            "reach it)."
        ),
    ] = "127.0.0.1",
    once: Annotated[bool, Option("--once", help="Print the metrics as they are now, and stop.")] = False,
    grafana: Annotated[bool, Option("--grafana", help="Print a dashboard to import into Grafana.")] = False,
    rules: Annotated[bool, Option("--rules", help="Print alert rules for Prometheus.")] = False,
    scratch: Annotated[Path | None, Option(help="The scratch folder of a deduplication, if it was given one.")] = None,
) -> None:
    """Serve the figures of a run to Prometheus, at /metrics. Ends with Ctrl-C.

    Works during the run, after it, and on another machine that sees the folder. The same from inside a run:
    --metrics-port.

    Example: tamis metrics clean/ --port 9464
    """
    if grafana or rules:
        if grafana and rules:
            raise UsageError("--grafana and --rules are two files: print one after the other")
        echo(shipped("grafana.json" if grafana else "prometheus_rules.yml"), nl=False)
        return
    if output is None:
        raise UsageError("give the output folder of a run: tamis metrics clean/")
    from tamis.observe.passes import find_run

    collector = _satellites.load("metrics.collector")(find_run(output), None if scratch is None else str(scratch))
    if once:
        echo(collector.text(), nl=False)
        return
    endpoint = _satellites.load("metrics.endpoint")(collector.text, host, port)
    echo(f"metrics: {endpoint.url} (Ctrl-C ends it)")
    try:
        endpoint.serve()
    except KeyboardInterrupt:
        raise CommandExit(130) from None
    finally:
        endpoint.close()


def shipped(name: str) -> str:
    """Return the text of a file that ships with the package."""
    return Path(_satellites.load("metrics").__file__).with_name(name).read_text(encoding="utf-8")


@contextlib.contextmanager
def endpoint_of_run(run_dir: str, launch: LaunchOptions, scratch: str | None) -> Iterator[None]:
    """Serve the metrics of a run while the block runs, if the launch options ask for it.

    The endpoint is a thread of this process. A port that is taken is reported before the run begins, and ends it,
    because a monitoring system expects the figures.
    """
    if launch.metrics_port is None:
        if launch.metrics_host is not None:
            raise UsageError("--metrics-host goes with --metrics-port")
        yield
        return
    metrics = _satellites.load("metrics.collector")(Path(run_dir), scratch)
    endpoint = _satellites.load("metrics.endpoint")(
        metrics.text, launch.metrics_host or "127.0.0.1", launch.metrics_port
    ).start()
    echo(f"metrics: {endpoint.url}", err=True)
    try:
        yield
    finally:
        endpoint.close()
