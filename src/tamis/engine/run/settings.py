"""Settings of a run: each is declared once, as a field of `RunSettings`, and everything else follows from that.

Command-line options, the `settings:` of recipes, keyword arguments in Python, environment variables, what `tamis
resume` takes over and the reference pages all walk `SETTINGS`. To add a setting: declare it here, and use it. Also
covers the record of the settings of one run (`settings.json`): every choice with its reason.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, fields
from enum import IntEnum
from typing import Any, NamedTuple, TypedDict

from tamis._dataclasses import dataclass
from tamis.engine.run.shard import Shard
from tamis.errors import UsageError
from tamis.sizes import check_integer, check_seconds, parse_fraction, parse_size
from tamis.stores.urls import scratch_url

DEFAULT_MAX_RECORD = "64MiB"
DEFAULT_TIMEOUT_S = 1800.0
DEFAULT_QUARANTINE_LIMIT = 0.001
MODES = ("streaming", "batch")
PER_PARTITION = "partition"
DEFAULT_FILE_SIZE = "256MB"  # of commands
_MIN_FILE_BYTES = 1000

SettingValue = str | int | float | bool | None
_DECLARED = "setting"


# -- how a setting is declared ----------------------------------------------------------------------------------------
class Scope(IntEnum):
    """The commands that offer an option; each scope includes the options of those before it."""

    EVERY_JOB = 1  # whatever runs something, `tamis resume` included
    DOCUMENTS = 2  # commands that read documents and write them
    SHARDS = 3  # those whose input several machines can share without a cluster
    STAGES = 4  # those that take documents through stages
    ONE_PASS = 5  # those that do so in one pass over the input
    RECIPE = 6  # `tamis run` alone


class Kind(NamedTuple):
    """The syntax of a setting's values: the check of one (raises UsageError), and its form as text."""

    check: Callable[[Any, str], object]
    metavar: str
    type: type = str
    choices: tuple[str, ...] = ()
    low: int | None = None
    high: int | None = None
    is_list: bool = False

    def parse(self, text: str, name: str) -> SettingValue:
        """Return the value that a text means; raise UsageError that names the setting if it is invalid."""
        value: SettingValue = text
        if self.type is bool:
            value = {"true": True, "1": True, "false": False, "0": False}.get(text.lower(), text)
        elif self.type in (int, float):
            try:
                value = self.type(text)
            except ValueError:
                value = text  # refused below
        self.check(value, name)
        return value


def check_flag(value: object, name: str) -> None:
    if not isinstance(value, bool):
        raise UsageError(f"{name}: expected true or false, got {value!r}")


def check_text(value: object, name: str) -> None:
    if not isinstance(value, str) or not value:
        raise UsageError(f"{name}: expected text, got {value!r}; put it into quotes")


def _check_path(value: object, name: str) -> None:
    check_text(os.fspath(value) if isinstance(value, os.PathLike) else value, name)


def _check_limit(value: Any, name: str) -> None:
    if str(value) not in ("0", "0.0", "0%"):
        parse_fraction(value, name)


def _check_shard(value: object, name: str) -> None:
    check_text(value, name)
    Shard.parse(str(value))


def _check_merge(value: object, name: str) -> None:
    if not isinstance(value, str):
        check_flag(value, name)


def _check_file_size(value: Any, name: str) -> None:
    if value != PER_PARTITION and parse_size(value, name) < _MIN_FILE_BYTES:
        raise UsageError(f"{name}: expected at least 1kB, or {PER_PARTITION!r}, got {value!r}")


def _check_partition_by(value: Any, name: str) -> None:
    from tamis.formats.hive import check_names

    check_names(value, name)


def choice(*names: str) -> Kind:
    """Return the kind of a setting that takes one of these names."""

    def check(value: object, name: str) -> None:
        if value not in names:
            near = difflib.get_close_matches(str(value), names, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise UsageError(f"{name}: expected {' or '.join(map(repr, names))}, got {value!r}{hint}")

    return Kind(check, "|".join(names), choices=names)


def integer(low: int, high: int | None = None, metavar: str = "NUMBER") -> Kind:
    """Return the kind of a setting that takes a whole number in a range."""
    return Kind(lambda value, name: check_integer(value, name, low, high), metavar, int, low=low, high=high)


SIZE = Kind(parse_size, "SIZE")
FILE_SIZE = Kind(_check_file_size, "SIZE")
SHARE = Kind(parse_fraction, "SHARE")
SECONDS = Kind(check_seconds, "SECONDS", float)
FLAG = Kind(check_flag, "", bool)
TEXT = Kind(check_text, "TEXT")
PATH = Kind(_check_path, "DIR")


@dataclass(frozen=True)
class Setting:
    """The declaration of one setting. `setting` makes it; `declared` reads those of a class."""

    name: str
    default: Any
    kind: Kind
    help: str  # sentences, without the default
    short: str = ""  # one more name of the option: "-q"
    default_text: str = ""  # what happens without it, where the value itself does not say it
    scope: Scope | None = None  # the commands with this option; None: Python only
    in_recipes: bool = False  # whether it is allowed in `settings:` of a recipe
    variable: str = ""  # the environment variable that replaces it
    is_resumed: bool = True  # whether `tamis resume` takes it over from the command that began the run
    changes_output: bool = False  # whether another value makes it another job, which must start over
    selects: bool = False  # whether it chooses a part of the work or where that goes, rather than how it is done
    executor_key: str = ""  # its name in the `config` of an executor

    @property
    def flag(self) -> str:
        return "--" + self.name.removeprefix("as_").replace("_", "-")

    @property
    def description(self) -> str:
        """Its meaning, for help pages and the tables in the documentation."""
        return self.help + (" Changes the output." if self.changes_output else "")

    @property
    def shown_default(self) -> str:
        """The default as help pages and documentation show it; empty where it goes without saying."""
        if self.default_text or self.default in (None, ()) or isinstance(self.default, bool):
            return self.default_text
        return str(self.default)

    def check(self, value: Any, name: str = "") -> None:
        """Raise UsageError unless `value` is one that the setting can have."""
        self.kind.check(value, name or self.name)


def setting(default: Any, kind: Kind, help: str, **declaration: Any) -> Any:
    """Declare a field of a dataclass as a setting; `declaration`: further fields of `Setting`."""
    about = {"default": default, "kind": kind, "help": help, **declaration}
    if kind.is_list:
        return field(default_factory=tuple, metadata={_DECLARED: {**about, "default": ()}})
    return field(default=default, metadata={_DECLARED: about})


def declared(cls: type) -> dict[str, Setting]:
    """Return the settings that a dataclass declares, by name, in their order."""
    return {f.name: Setting(f.name, **f.metadata[_DECLARED]) for f in fields(cls) if _DECLARED in f.metadata}


# -- the settings -----------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class RunSettings:
    """The settings with which a run is executed."""

    memory: str | int | None = setting(
        None, SIZE,
        "The most memory that all processes of the run may use together (on each machine), e.g. 2GB or 512MiB.",
        default_text="$TAMIS_MEMORY, the control group's limit, or 80 % of the available memory",
        scope=Scope.EVERY_JOB, in_recipes=True, variable="TAMIS_MEMORY", executor_key="memory",
    )  # fmt: skip
    workers: int | None = setting(
        None, integer(1), "Number of worker processes.",
        default_text="one per core, as far as they fit into the memory",
        scope=Scope.EVERY_JOB, in_recipes=True, executor_key="workers",
    )  # fmt: skip
    scratch: str | None = setting(
        None, PATH, "Folder for temporary files, or s3://bucket/path.",
        default_text="inside the output", scope=Scope.EVERY_JOB, in_recipes=True, executor_key="scratch",
    )  # fmt: skip
    timeout: float = setting(
        DEFAULT_TIMEOUT_S, SECONDS, "Seconds that one partition may take before it is stopped and tried again.",
        default_text="1800", scope=Scope.EVERY_JOB, in_recipes=True, executor_key="timeout",
    )  # fmt: skip
    quarantine_limit: float | str | None = setting(
        None, Kind(_check_limit, "SHARE"),
        "If more than this share of records (or of input bytes) cannot be read, the run ends incomplete with exit "
        "code 3.",
        default_text="0.1%, and more than 100 records", scope=Scope.EVERY_JOB, in_recipes=True,
    )  # fmt: skip
    fail_fast: bool | None = setting(
        None, FLAG,
        "Stop at the first failure: a stage that raises, crashes or hangs, or input that cannot be read.",
        default_text="documents that a stage fails on are quarantined, and the run stops if it fails on all of the "
                     "first ones; in process, its exception is raised",
        scope=Scope.EVERY_JOB, in_recipes=True,
    )  # fmt: skip
    worker_output: bool | None = setting(
        None, FLAG, "Show on the terminal what stages print and log in worker processes, with the name of the stage.",
        default_text="shown for runs from Python, in worker.log otherwise", scope=Scope.EVERY_JOB, in_recipes=True,
    )  # fmt: skip
    gpu_memory: str | int | None = setting(
        None, SIZE, "The most memory that all workers of the run together may use of each GPU, e.g. 40GB.",
        default_text="all of it", scope=Scope.EVERY_JOB, in_recipes=True,
    )  # fmt: skip
    blocksize: str | int | None = setting(
        None, SIZE, "The input is cut into partitions of at most this size, measured uncompressed, e.g. 32MB.",
        default_text="32 MiB", scope=Scope.DOCUMENTS, in_recipes=True,
    )  # fmt: skip
    file_size: str | int | None = setting(
        None, FILE_SIZE,
        "Size of output files, measured before compression, e.g. 1GB. Neighbours are joined and large ones cut at "
        "document boundaries that do not depend on memory or workers; partition: one file for each partition.",
        default_text="256MB; in Python, one file for each partition",
        scope=Scope.DOCUMENTS, in_recipes=True, changes_output=True,
    )  # fmt: skip
    partition_by: str | tuple[str, ...] | None = setting(
        None, Kind(_check_partition_by, "FIELDS"),
        "Write documents into folders by the values of these fields, as Hive names them: "
        "language,topic gives OUT/language=en/topic=law. The documents do not have the fields then.",
        scope=Scope.DOCUMENTS, in_recipes=True, changes_output=True,
    )  # fmt: skip
    fresh: bool = setting(
        False, FLAG, "Delete what an earlier run wrote to OUT and start again. Other files are not touched.",
        scope=Scope.DOCUMENTS, is_resumed=False,
    )  # fmt: skip
    shard: str | None = setting(
        None, Kind(_check_shard, "I/N"),
        "Process only part I of N (counted from 0) and write it to OUT/shard-.... When all parts are done, join them "
        "with `tamis merge` and the same command.",
        scope=Scope.SHARDS, selects=True,
    )  # fmt: skip
    merge: bool | str = setting(  # in Python also the folder with the parts, if it is not the output
        False, Kind(_check_merge, "", bool), "Join the parts that --shard made and finish; the same as `tamis merge` "
                                             "with this command.",
        scope=Scope.SHARDS, selects=True,
    )  # fmt: skip
    max_record: str | int = setting(
        DEFAULT_MAX_RECORD, SIZE, "Records larger than this are quarantined and not processed.",
        scope=Scope.STAGES, in_recipes=True, changes_output=True, executor_key="max_record",
    )  # fmt: skip
    keep_rejected: bool = setting(
        False, FLAG, "Also write the dropped documents, each with the rule that dropped it, to OUT.tamis/rejected.",
        scope=Scope.STAGES, in_recipes=True,
    )  # fmt: skip
    no_samples: bool = setting(
        False, FLAG,
        "Store no excerpts of documents in the run directory, and show none in the report: for data that must not be "
        "copied.",
        scope=Scope.DOCUMENTS, in_recipes=True,
    )  # fmt: skip
    gpu_overflow: str = setting(
        "quarantine", choice("quarantine", "cut"),
        "What to do with a document that is too large for the GPU even alone: quarantine it, or cut: let the model "
        "read only as much as fits.",
        scope=Scope.STAGES, in_recipes=True, changes_output=True,
    )  # fmt: skip
    sample: float | str | None = setting(
        None, SHARE,
        "Process only this share of the documents, chosen by content hash, e.g. 1%. A later run with a larger share "
        "continues from there.",
        default_text="all documents", scope=Scope.ONE_PASS, in_recipes=True, selects=True,
    )  # fmt: skip
    progressive: bool = setting(
        False, FLAG, "Process 1 % of the documents first, then 10 %, then all; each step reuses the one before.",
        scope=Scope.ONE_PASS, in_recipes=True, selects=True,
    )  # fmt: skip
    on_infeasible: str = setting(
        "stop", choice("stop", "sample"),
        "If there is not enough disk or memory: stop with an error, or sample: keep the largest sample (1 %, 10 % or "
        "all) that fits; less than all ends with exit code 3.",
        scope=Scope.ONE_PASS, in_recipes=True, selects=True,
    )  # fmt: skip
    mode: str = setting(
        "streaming", choice(*MODES),
        "streaming: every document passes through all stages at once. batch: each stage finishes before the next one "
        "starts.",
        scope=Scope.RECIPE, in_recipes=True, executor_key="execution_mode",
    )  # fmt: skip
    run_dir: str | None = setting(
        None, PATH, "Folder for the results, for a recipe that has no writer.", scope=Scope.RECIPE, selects=True,
    )  # fmt: skip
    queue: str | int = setting("256MB", SIZE, "Bound of the blocks between processes, in bytes.")
    # Not settings of the user: whether the calling process is part of the budget (it is, from the command line), and
    # who chose each setting where it was not the user.
    count_caller: bool = False
    chosen_by: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for declaration in SETTINGS.values():
            value = getattr(self, declaration.name)
            if value is not None:
                declaration.check(value)
        if self.sample is not None and self.progressive:
            raise UsageError("give --sample or --progressive, not both")
        if self.shard is not None:
            if self.merge:
                raise UsageError("give --shard to make one, or --merge to join all, not both")
            if self.progressive:
                raise UsageError("progressive is for runs on one machine; give --sample to each shard instead")
        if self.scratch is not None and "://" in str(self.scratch):
            scratch_url(str(self.scratch))
        elif self.scratch is not None and not os.path.isdir(self.scratch):
            raise UsageError(f"scratch: {self.scratch} is not a folder")

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any], environ: Mapping[str, str] = os.environ) -> RunSettings:
        """Return the settings with these values.

        What is None or missing comes from its environment variable or is the default.
        """
        names = [*SETTINGS, "count_caller", "chosen_by"]
        for name in values:
            if name not in names:
                near = difflib.get_close_matches(name, names, 1)
                hint = f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(SETTINGS)}"
                raise UsageError(f"unknown setting {name!r}{hint}")
        settings = {name: value for name, value in values.items() if value is not None}
        # What is named was chosen, even where it equals the default.
        chosen_by = {name: "user" for name in settings if name != "chosen_by"} | dict(settings.get("chosen_by", {}))
        for name, value in from_environment(environ, [name for name in SETTINGS if name not in settings]).items():
            settings[name], chosen_by[name] = value, "environment"
        return cls(**{**settings, "chosen_by": chosen_by})

    def origin(self, name: str) -> str:
        """Return what chose a setting: "user", "recipe", "environment" or "default"."""
        if name in self.chosen_by:
            return self.chosen_by[name]
        default = next(f.default for f in fields(self) if f.name == name)
        return "default" if getattr(self, name) == default else "user"

    @property
    def file_bytes(self) -> int | None:
        """The size of output files; None: one for each partition."""
        return None if self.file_size in (None, PER_PARTITION) else parse_size(self.file_size or 0)

    @property
    def partition_fields(self) -> tuple[str, ...]:
        from tamis.formats.hive import check_names

        return check_names(self.partition_by, "partition_by")

    @property
    def max_record_bytes(self) -> int:
        return parse_size(self.max_record)

    @property
    def quarantine_share(self) -> float:
        """The share of quarantined records above which the run ends incomplete."""
        if self.quarantine_limit is None:
            return DEFAULT_QUARANTINE_LIMIT
        is_zero = str(self.quarantine_limit) in ("0", "0.0", "0%")
        return 0.0 if is_zero else parse_fraction(self.quarantine_limit, "quarantine_limit")

    @property
    def shows_output(self) -> bool:
        """True if the output of workers is shown: a command says so, a program has to say that it is not."""
        return not self.count_caller if self.worker_output is None else self.worker_output

    @property
    def quarantine_floor(self) -> int:
        """The number of quarantined records that never ends a run, unless the user set a limit."""
        return 100 if self.quarantine_limit is None else 0

    @property
    def targets(self) -> list[float]:
        """The shares of documents to deliver, one after the other."""
        if self.sample is not None:
            return [parse_fraction(self.sample)]
        return [0.01, 0.1, 1.0] if self.progressive or self.on_infeasible == "sample" else [1.0]


SETTINGS = declared(RunSettings)


def from_environment(environ: Mapping[str, str], names: Iterable[str]) -> dict[str, SettingValue]:
    """Return those of the named settings that environment variables give.

    >>> from_environment({"TAMIS_MEMORY": " 2GB "}, ["memory", "workers"])
    {'memory': '2GB'}
    """
    variables = {name: SETTINGS[name].variable for name in names if SETTINGS[name].variable}
    texts = {name: environ.get(variable, "").strip() for name, variable in variables.items()}
    return {name: SETTINGS[name].kind.parse(text, variables[name]) for name, text in texts.items() if text}


def output_settings(values: Mapping[str, Any]) -> dict[str, SettingValue]:
    """Return the settings on which the output depends, as the plan of a run stores them.

    Those not in `values` are the defaults.
    """
    chosen_values = {
        s.name: s.default if values.get(s.name) is None else values[s.name]
        for s in SETTINGS.values()
        if s.changes_output
    }
    return {name: _normalized(SETTINGS[name].kind, value) for name, value in chosen_values.items()}


def _normalized(kind: Kind, value: Any) -> SettingValue:
    """Return the same value for the same meaning, however it was written."""
    if kind is FILE_SIZE and value in (None, PER_PARTITION):
        return None
    if not isinstance(value, (str, int, float, bool, type(None))):  # a list of fields
        return ",".join(value)
    return parse_size(value or 0) if kind in (SIZE, FILE_SIZE) else value


# -- the record of one run --------------------------------------------------------------------------------------------
class SettingEntry(TypedDict):
    """An entry of settings.json: a setting, who chose its value (see `SettingsLog`), why, and the figures behind it."""

    name: str
    value: Any
    chosen_by: str
    why: str
    evidence: dict[str, Any]


@dataclass
class SettingsLog:
    """Every memory-related setting of a run: its value, who chose it, why, and the underlying figures.

    Who: user, recipe, environment (a variable), machine (found or measured here), machine profile (learned by earlier
    runs), adaptation (changed by the run itself), default.
    """

    entries: list[SettingEntry] = field(default_factory=list)

    def amend(self, name: str, more: str, evidence: Mapping[str, Any]) -> None:
        """Add to a noted setting what the run made of it."""
        for entry in self.entries:
            if entry["name"] == name:
                entry["why"] += more
                entry["evidence"] = {**entry["evidence"], **evidence}

    def note(
        self, name: str, value: Any, chosen_by: str, reason: str, evidence: Mapping[str, Any] | None = None
    ) -> None:
        self.entries = [e for e in self.entries if e["name"] != name]
        self.entries.append(
            {"name": name, "value": value, "chosen_by": chosen_by, "why": reason, "evidence": dict(evidence or {})}
        )
