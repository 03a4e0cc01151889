"""Options that several commands share.

Those of a run follow from the declarations of its settings (engine/run/settings.py), those of how a command launches it
from `LaunchOptions`; which commands have which is their scope.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, Any, Literal

from tamis._dataclasses import dataclass
from tamis.backends import registry
from tamis.cli.parsing.arguments import Argument, Option, Parameter
from tamis.engine.run.settings import (
    FLAG,
    SETTINGS,
    Kind,
    Scope,
    Setting,
    SettingValue,
    check_text,
    choice,
    declared,
    integer,
    setting,
)
from tamis.errors import UsageError

Source = Annotated[str, Argument(metavar="IN", help="A file, a folder or a glob of JSONL, Parquet or Arrow files.")]
RecipePath = Annotated[
    str,
    Argument(
        metavar="RECIPE", help="A recipe file, or the name of a recipe that ships with Tamis (tamis recipe list)."
    ),
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
Quiet = Annotated[bool, Option("--quiet", "-q", help="Print no progress, only the result.")]
AllowAlertSinks = Annotated[
    bool,
    Option(
        "--allow-alert-sinks",
        help="Allow the recipe to run its own commands and call its own webhooks when an alert is raised.",
    ),
]
_PORT = integer(0, 65535, metavar="PORT")


@dataclass(frozen=True)
class LaunchOptions:
    """Launch options of a command besides the settings of the run: where it runs, and what it shows."""

    executor: str | None = setting(
        None,
        choice(*registry.NAMES),
        registry.HELP,
        scope=Scope.EVERY_JOB,
    )
    address: str | None = setting(
        None,
        Kind(check_text, "HOST:PORT"),
        "Address of a running cluster, or auto.",
        default_text="start one on this machine and stop it at the end",
        scope=Scope.EVERY_JOB,
    )
    storage_option: tuple[str, ...] = setting(
        (),
        Kind(check_text, "KEY=VALUE", is_list=True),
        "An option for reading and writing s3://: endpoint_url, region_name, anon, requester_pays, addressing_style "
        "or read_timeout; may be repeated.",
        scope=Scope.EVERY_JOB,
        is_resumed=False,
    )
    dashboard: bool = setting(
        False,
        FLAG,
        "Show the run on a live web page, which only this machine can open; its address is printed.",
        scope=Scope.EVERY_JOB,
        is_resumed=False,
    )
    dashboard_port: int | None = setting(
        None,
        _PORT,
        "Port of the --dashboard page.",
        default_text="8787, or any that is free",
        scope=Scope.EVERY_JOB,
        is_resumed=False,
    )
    metrics_port: int | None = setting(
        None,
        _PORT,
        "Serve metrics for Prometheus on this port; 0: any that is free.",
        scope=Scope.EVERY_JOB,
        is_resumed=False,
    )
    metrics_host: str | None = setting(
        None,
        Kind(check_text, "HOST"),
        "Address to serve the metrics on: 127.0.0.1 (only this machine) or 0.0.0.0 (any machine that can reach it).",
        default_text="127.0.0.1",
        scope=Scope.EVERY_JOB,
        is_resumed=False,
    )
    alerts: str | None = setting(
        None,
        Kind(check_text, "FILE"),
        "File with your rules for alerts (YAML or TOML), or off for none.",
        default_text="$TAMIS_ALERTS, or alerts.yaml in ~/.config/tamis",
        scope=Scope.STAGES,
        variable="TAMIS_ALERTS",
        is_resumed=False,
    )
    as_json: bool = setting(
        False, FLAG, "Print one JSON object to stdout at the end.", scope=Scope.EVERY_JOB, is_resumed=False
    )
    quiet: bool = setting(
        False, FLAG, "Print no progress, only the result.", short="-q", scope=Scope.EVERY_JOB, is_resumed=False
    )


LAUNCH = declared(LaunchOptions)


@dataclass(frozen=True)
class JobOptions:
    """The options of one call of a command that runs something."""

    settings: Mapping[str, SettingValue] = field(default_factory=dict)  # of the run: only those that the user gave
    launch: LaunchOptions = field(default_factory=LaunchOptions)

    def get(self, name: str) -> Any:
        """Return the value of a setting of the run, None if it was not given."""
        return self.settings.get(name)


@dataclass(frozen=True)
class _JobOptionSet:
    """The options of the commands of a scope, and others by name."""

    scope: Scope | None = None
    names: tuple[str, ...] = ()

    @property
    def _settings(self) -> list[Setting]:
        declared = [*SETTINGS.values(), *LAUNCH.values()]
        scope = self.scope or 0
        return [s for s in declared if s.name in self.names or (s.scope is not None and s.scope <= scope)]

    @property
    def parameters(self) -> list[Parameter]:
        return [option_of(s) for s in self._settings]

    def build(self, values: Mapping[str, Any]) -> JobOptions:
        given_values = {
            s.name: values[s.name] for s in self._settings if values[s.name] is not None and values[s.name] is not False
        }
        launch = LaunchOptions(**{name: value for name, value in given_values.items() if name in LAUNCH})
        if launch.storage_option:  # before the command opens anything
            from tamis.stores.options import remember_for_all

            remember_for_all(launch.storage_option)
        return JobOptions({name: value for name, value in given_values.items() if name in SETTINGS}, launch)


def option_of(setting: Setting) -> Parameter:
    """Return the command-line option of a setting."""
    kind = setting.kind
    default = f" Default: {setting.shown_default}." if setting.shown_default else ""
    names = (setting.flag, *([setting.short] if setting.short else []))
    about = Option(
        *names,
        help=setting.description + default,
        metavar=kind.metavar,
        min=kind.low,
        max=kind.high,
        check=None if kind.type is bool else setting.check,
    )
    typed = Literal[kind.choices] if kind.choices else kind.type
    missing = False if kind.type is bool else None
    return Parameter(setting.name, typed, kind.is_list, about, missing, False)


# What commands take after `*`, by what they do.
ResumeOptions = Annotated[JobOptions, _JobOptionSet(Scope.EVERY_JOB, ("alerts",))]
DocumentOptions = Annotated[JobOptions, _JobOptionSet(Scope.DOCUMENTS)]
ShardOptions = Annotated[JobOptions, _JobOptionSet(Scope.SHARDS)]
StagesOptions = Annotated[JobOptions, _JobOptionSet(Scope.STAGES)]
OnePassOptions = Annotated[JobOptions, _JobOptionSet(Scope.ONE_PASS)]
RecipeOptions = Annotated[JobOptions, _JobOptionSet(Scope.RECIPE)]
PlanOptions = Annotated[JobOptions, _JobOptionSet(names=("memory", "workers", "scratch", "blocksize", "max_record"))]
RetryOptions = Annotated[JobOptions, _JobOptionSet(names=("memory", "max_record"))]
TrialOptions = Annotated[JobOptions, _JobOptionSet(names=("workers",))]


def parse_sets(pairs: list[str] | None) -> dict[str, str]:
    """Parse `key=value` pairs.

    >>> parse_sets(["input=a=b", "stages.0.fields=[id]"])
    {'input': 'a=b', 'stages.0.fields': '[id]'}
    """
    overrides = {}
    for pair in pairs or ():
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"--set {pair}: expected KEY=VALUE, e.g. --set input=data/")
        overrides[key.strip()] = value
    return overrides
