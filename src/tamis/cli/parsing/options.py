"""Options that several commands share, so that they are spelled and explained the same everywhere."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from tamis.cli.parsing.arguments import Argument, Option, OptionGroup
from tamis.errors import UsageError

Source = Annotated[str, Argument(metavar="IN", help="A file, a folder or a glob of JSONL, Parquet or Arrow files.")]
RecipePath = Annotated[str, Argument(metavar="RECIPE", help="A recipe file, or the name of a shipped recipe.")]
Memory = Annotated[
    str | None, Option(help="Memory budget of all processes together (on each node), e.g. 2GB or 512MiB.")
]
Workers = Annotated[int | None, Option(min=1, help="Worker processes; default: one per core, if they fit.")]
Scratch = Annotated[
    str | None,
    Option(metavar="DIR", help="Folder for temporary files, or s3://bucket/path; default: inside the output."),
]
Blocksize = Annotated[str | None, Option(help="Upper bound of a partition's decoded size, e.g. 32MB.")]
MaxRecord = Annotated[str | None, Option(help="Larger records are quarantined; default 64MiB.")]
Sets = Annotated[
    list[str] | None, Option("--set", metavar="KEY=VALUE", help="Set a value of the recipe; may be repeated.")
]
AllowModules = Annotated[
    list[str] | None,
    Option("--allow-module", metavar="MODULE", help="Let the recipe use this module; may be repeated."),
]
AsJson = Annotated[bool, Option("--json", help="Print one JSON object to stdout at the end.")]
Alerts = Annotated[
    str | None,
    Option(
        metavar="FILE",
        help="Your rules for alerts (YAML or TOML), or off; default: $TAMIS_ALERTS, or alerts.yaml in ~/.config/tamis.",
    ),
]
AllowAlertSinks = Annotated[
    bool,
    Option("--allow-alert-sinks", help="Let the recipe send alerts to commands and webhooks of its own."),
]
Quiet = Annotated[bool, Option("--quiet", "-q", help="No progress; only the result.")]


@dataclass(frozen=True)
class Resuming(OptionGroup):
    """What may be chosen anew whenever a run goes on."""

    memory: Memory = None
    workers: Workers = None
    scratch: Scratch = None
    timeout: Annotated[float | None, Option(help="Seconds one partition may take; default 1800.")] = None
    quarantine_limit: Annotated[
        str | None,
        Option(help="Share of records (or of input bytes) that may be unreadable; above it exit code 3. Default 0.1%."),
    ] = None
    dashboard: Annotated[
        bool, Option("--dashboard", help="Serve a live page on the run, to this machine only; its address is printed.")
    ] = False
    dashboard_port: Annotated[
        int | None,
        Option(min=0, max=65535, metavar="PORT", help="Port of that page; default 8787, or any that is free."),
    ] = None
    metrics_port: Annotated[
        int | None,
        Option(
            min=0, max=65535, metavar="PORT", help="Serve figures for Prometheus at this port; 0: any that is free."
        ),
    ] = None
    metrics_host: Annotated[
        str | None,
        Option(
            metavar="HOST", help="Whom these figures are for: this machine only, or 0.0.0.0 for all that can reach it."
        ),
    ] = None
    executor: Annotated[
        Literal["local", "ray", "ray_data", "xenna"] | None,
        Option(
            help="Who runs it: this machine, or a Ray cluster by plain actors, Ray Data or Cosmos Xenna; default local."
        ),
    ] = None
    address: Annotated[
        str | None,
        Option(
            metavar="HOST:PORT", help="A running Ray cluster (or auto); default: one on this machine while it runs."
        ),
    ] = None
    gpu_memory: Annotated[
        str | None,
        Option(metavar="SIZE", help="Memory that the run may take of each GPU, e.g. 40GB; default: all there is."),
    ] = None
    storage_option: Annotated[
        list[str] | None,
        Option(
            "--storage-option",
            metavar="KEY=VALUE",
            help="How s3:// is reached: endpoint_url, region_name, anon, requester_pays, addressing_style, read_timeout; may be repeated.",
        ),
    ] = None
    as_json: AsJson = False
    quiet: Quiet = False

    def __post_init__(self) -> None:
        """Whatever the command opens first, it is opened in the way that was asked for."""
        if self.storage_option:
            from tamis.stores.options import use_everywhere

            use_everywhere(self.storage_option)

    def settings(self) -> dict[str, Any]:
        """Those the user gave that are settings of a run."""
        apart = ("as_json", "quiet", "alerts", "allow_alert_sinks", "storage_option")
        return given(**{name: value for name, value in vars(self).items() if name not in apart})


@dataclass(frozen=True)
class RunOptions(Resuming):
    """What every command has that reads documents and writes them."""

    blocksize: Blocksize = None
    fresh: Annotated[bool, Option("--fresh", help="Start over; removes only what Tamis wrote.")] = False


@dataclass(frozen=True)
class ShardedOptions(RunOptions):
    """What commands have in addition whose work several machines can share without a cluster."""

    shard: Annotated[
        str | None,
        Option(
            metavar="I/N",
            help="Only part I (from 0) of N of the input, into OUT/shard-...; `tamis merge` and the same command join all parts.",
        ),
    ] = None
    merge: Annotated[
        bool, Option("--merge", help="Join what --shard made and finish; `tamis merge` with the command does the same.")
    ] = False


@dataclass(frozen=True)
class DocumentOptions(ShardedOptions):
    """What commands have in addition that take documents through stages."""

    max_record: MaxRecord = None
    keep_rejected: Annotated[
        bool,
        Option(
            "--keep-rejected", help="Write dropped documents to the run directory, with the rule that dropped them."
        ),
    ] = False
    gpu_overflow: Annotated[
        Literal["quarantine", "cut"] | None,
        Option(
            help="A document that does not fit a GPU, alone: quarantine it (default), or cut what a model reads of it."
        ),
    ] = None
    alerts: Alerts = None


@dataclass(frozen=True)
class StagesOptions(DocumentOptions):
    """What commands have in addition that do so in one pass."""

    sample: Annotated[str | None, Option(help="Only this share of the documents, e.g. 1%.")] = None
    progressive: Annotated[bool, Option("--progressive", help="1 %, then 10 %, then all documents.")] = False
    on_infeasible: Annotated[
        Literal["stop", "sample"] | None,
        Option(help="When disk or memory do not suffice: stop, or deliver a sample (exit code 3)."),
    ] = None


def parse_sets(pairs: list[str] | None) -> dict[str, str]:
    """`key=value` pairs.

    >>> parse_sets(["input=a=b", "stages.0.fields=[id]"])
    {'input': 'a=b', 'stages.0.fields': '[id]'}
    """
    found = {}
    for pair in pairs or ():
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"--set {pair}: expected KEY=VALUE, e.g. --set input=data/")
        found[key.strip()] = value
    return found


def given(**options: object) -> dict[str, Any]:
    """Only the options that the user gave; paths as text.

    >>> given(memory="1GB", workers=None, fresh=False)
    {'memory': '1GB'}
    """
    return {
        name: str(value) if isinstance(value, Path) else value
        for name, value in options.items()
        if value is not None and value is not False
    }
