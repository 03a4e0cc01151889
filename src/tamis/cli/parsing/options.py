"""Options that several commands share, so that they are spelled and explained the same everywhere."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from tamis.backends import registry
from tamis.backends.registry import ExecutorName
from tamis.cli.parsing.arguments import Argument, Option, OptionGroup
from tamis.errors import UsageError

Source = Annotated[str, Argument(metavar="IN", help="A file, a folder or a glob of JSONL, Parquet or Arrow files.")]
RecipePath = Annotated[
    str,
    Argument(
        metavar="RECIPE", help="A recipe file, or the name of a recipe that ships with Tamis (tamis recipe list)."
    ),
]
Memory = Annotated[
    str | None,
    Option(
        help="The most memory that all processes of the run may use together (on each machine), e.g. 2GB or 512MiB. Default: a share of what is free."
    ),
]
Workers = Annotated[
    int | None,
    Option(min=1, help="Number of worker processes. Default: one per core, as far as they fit into the memory."),
]
Scratch = Annotated[
    str | None,
    Option(metavar="DIR", help="Folder for temporary files, or s3://bucket/path. Default: inside the output."),
]
Blocksize = Annotated[
    str | None, Option(help="The input is cut into partitions of at most this size, measured uncompressed, e.g. 32MB.")
]
MaxRecord = Annotated[
    str | None, Option(help="Records larger than this are set aside (quarantined) and not processed. Default: 64MiB.")
]
Sets = Annotated[
    list[str] | None,
    Option(
        "--set",
        metavar="KEY=VALUE",
        help="Set a value of the recipe, e.g. input=data/ or settings.memory=1GB; may be repeated.",
    ),
]
AllowModules = Annotated[
    list[str] | None,
    Option(
        "--allow-module",
        metavar="MODULE",
        help="Allow the recipe to load Python code from this module; may be repeated.",
    ),
]
TrustRemoteCode = Annotated[
    bool,
    Option("--trust-remote-code", help="Let the recipe run the code that models bring along (its trust_remote_code)."),
]
AsJson = Annotated[bool, Option("--json", help="Print one JSON object to stdout at the end.")]
Alerts = Annotated[
    str | None,
    Option(
        metavar="FILE",
        help="File with your rules for alerts (YAML or TOML), or off for none. Default: $TAMIS_ALERTS, or alerts.yaml in ~/.config/tamis.",
    ),
]
AllowAlertSinks = Annotated[
    bool,
    Option(
        "--allow-alert-sinks",
        help="Allow the recipe to run its own commands and call its own webhooks when an alert is raised.",
    ),
]
Quiet = Annotated[bool, Option("--quiet", "-q", help="Print no progress, only the result.")]


@dataclass(frozen=True)
class Resuming(OptionGroup):
    """What may be chosen anew whenever a run goes on."""

    memory: Memory = None
    workers: Workers = None
    scratch: Scratch = None
    timeout: Annotated[
        float | None,
        Option(help="Seconds that one partition may take before it is stopped and tried again. Default: 1800."),
    ] = None
    quarantine_limit: Annotated[
        str | None,
        Option(
            help="If more than this share of records (or of input bytes) cannot be read, the run ends incomplete with exit code 3. Default: 0.1%, and more than 100 records."
        ),
    ] = None
    dashboard: Annotated[
        bool,
        Option(
            "--dashboard",
            help="Show the run on a live web page, which only this machine can open; its address is printed.",
        ),
    ] = False
    dashboard_port: Annotated[
        int | None,
        Option(
            min=0, max=65535, metavar="PORT", help="Port of the --dashboard page. Default: 8787, or any that is free."
        ),
    ] = None
    metrics_port: Annotated[
        int | None,
        Option(
            min=0, max=65535, metavar="PORT", help="Serve metrics for Prometheus on this port; 0: any that is free."
        ),
    ] = None
    metrics_host: Annotated[
        str | None,
        Option(
            metavar="HOST",
            help="Address to serve the metrics on: 127.0.0.1 (only this machine, the default) or 0.0.0.0 (any machine that can reach it).",
        ),
    ] = None
    executor: Annotated[
        ExecutorName | None,
        Option(help=registry.HELP),
    ] = None
    address: Annotated[
        str | None,
        Option(
            metavar="HOST:PORT",
            help="Address of a running cluster, or auto. Default: start one on this machine and stop it at the end.",
        ),
    ] = None
    gpu_memory: Annotated[
        str | None,
        Option(metavar="SIZE", help="The most memory that the run may use of each GPU, e.g. 40GB. Default: all of it."),
    ] = None
    storage_option: Annotated[
        list[str] | None,
        Option(
            "--storage-option",
            metavar="KEY=VALUE",
            help="An option for reading and writing s3://: endpoint_url, region_name, anon, requester_pays, addressing_style or read_timeout; may be repeated.",
        ),
    ] = None
    as_json: AsJson = False
    quiet: Quiet = False

    def __post_init__(self) -> None:
        """Apply the requested storage options before the command opens anything."""
        if self.storage_option:
            from tamis.stores.options import remember_for_all

            remember_for_all(self.storage_option)

    def settings(self) -> dict[str, Any]:
        """Return the options given by the user that are settings of a run."""
        apart = ("as_json", "quiet", "alerts", "allow_alert_sinks", "storage_option")
        return given(**{name: value for name, value in vars(self).items() if name not in apart})


@dataclass(frozen=True)
class RunOptions(Resuming):
    """What every command has that reads documents and writes them."""

    blocksize: Blocksize = None
    fresh: Annotated[
        bool,
        Option("--fresh", help="Delete what an earlier run wrote to OUT and start again. Other files are not touched."),
    ] = False


@dataclass(frozen=True)
class ShardedOptions(RunOptions):
    """What commands have in addition whose work several machines can share without a cluster."""

    shard: Annotated[
        str | None,
        Option(
            metavar="I/N",
            help="Process only part I of N (counted from 0) and write it to OUT/shard-.... When all parts are done, join them with `tamis merge` and the same command.",
        ),
    ] = None
    merge: Annotated[
        bool,
        Option(
            "--merge", help="Join the parts that --shard made and finish; the same as `tamis merge` with this command."
        ),
    ] = False


@dataclass(frozen=True)
class DocumentOptions(ShardedOptions):
    """What commands have in addition that take documents through stages."""

    max_record: MaxRecord = None
    keep_rejected: Annotated[
        bool,
        Option(
            "--keep-rejected",
            help="Also write the dropped documents, each with the rule that dropped it, to OUT/_tamis/rejected.",
        ),
    ] = False
    gpu_overflow: Annotated[
        Literal["quarantine", "cut"] | None,
        Option(
            help="What to do with a document that is too large for the GPU even alone: quarantine it (default), or cut: let the model read only as much as fits."
        ),
    ] = None
    alerts: Alerts = None


@dataclass(frozen=True)
class StagesOptions(DocumentOptions):
    """What commands have in addition that do so in one pass."""

    sample: Annotated[
        str | None,
        Option(
            help="Process only this share of the documents, e.g. 1%. A later run with a larger share continues from there."
        ),
    ] = None
    progressive: Annotated[
        bool, Option("--progressive", help="Process 1 % of the documents first, then 10 %, then all.")
    ] = False
    on_infeasible: Annotated[
        Literal["stop", "sample"] | None,
        Option(
            help="If there is not enough disk or memory: stop with an error, or sample: keep the largest sample that fits (exit code 3)."
        ),
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
    """Return only the options that the user gave; paths as text.

    >>> given(memory="1GB", workers=None, fresh=False)
    {'memory': '1GB'}
    """
    return {
        name: str(value) if isinstance(value, Path) else value
        for name, value in options.items()
        if value is not None and value is not False
    }
