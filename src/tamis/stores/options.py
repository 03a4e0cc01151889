"""`storage_options` as users know them from pandas and fsspec: checked, kept by bucket, handed on to workers.

They travel in an environment variable of this program (`TAMIS_STORES`) to every process that it starts, and in the
description of a run to workers on other machines. Nothing in them is secret. A key that a program gives (`key`,
`secret`, `token`) is separated from them at once and kept in another variable (`TAMIS_STORE_KEYS`), for processes on
this machine alone; no stage, log or run directory holds it. Recipes and commands may not have one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, field
from typing import Any

from tamis._dataclasses import dataclass
from tamis.errors import UsageError
from tamis.secrets import learn_values
from tamis.stores.urls import is_bucket, split_s3

VARIABLE = "TAMIS_STORES"
KEYS_VARIABLE = "TAMIS_STORE_KEYS"
EVERY = "*"
_KEYS = ("key", "secret", "token")
_CREDENTIALS = (
    "key",
    "secret",
    "token",
    "username",
    "password",
    "aws_access_key_id",
    "aws_secret_access_key",
    "aws_session_token",
)
_CLIENT = ("endpoint_url", "region_name", "use_ssl", "verify")
_CONFIG = ("connect_timeout", "read_timeout", "addressing_style", "s3")
_KNOWN = ("anon", "endpoint_url", "requester_pays", "client_kwargs", "config_kwargs", "use_ssl")
_MAKE_FOLDERS = "auto_mkdir"  # of local paths, whose folders are always made


@dataclass(frozen=True)
class StoreOptions:
    """Connection settings of a bucket. None: from the environment (AWS_ENDPOINT_URL, AWS_REGION, AWS_PROFILE, ...)."""

    endpoint_url: str | None = None
    region_name: str | None = None
    anon: bool = False
    requester_pays: bool = False
    verify: bool | str | None = None
    addressing_style: str | None = None
    connect_timeout: float = 10.0
    read_timeout: float = 60.0
    use_ssl: bool | None = None


@dataclass(frozen=True)
class StoreKeys:
    """The credentials for a bucket."""

    key: str = field(repr=False)
    secret: str = field(repr=False)
    token: str | None = field(default=None, repr=False)


def keep_keys(urls: Any, options: Mapping[str, Any] | None, owner: str = "storage_options") -> dict[str, Any] | None:
    """Keep credentials among the options for the buckets of these URLs; return the options without them.

    Kept for this process and those that it starts on this machine.
    """
    if not options or all(options.get(name) is None for name in _KEYS):
        return None if options is None else dict(options)
    rest = {name: value for name, value in options.items() if name not in _KEYS}
    if options.get("key") is None or options.get("secret") is None:
        raise UsageError(f"{owner}: give key and secret together, or neither")
    keys = StoreKeys(
        str(options["key"]), str(options["secret"]), None if options.get("token") is None else options["token"]
    )
    learn_values({"secret": keys.secret, "token": keys.token or ""})
    buckets = {split_s3(url)[0] for url in _buckets_of(urls, owner)}
    by_bucket = {**_kept_keys(), **{bucket: asdict(keys) for bucket in buckets}}
    os.environ[KEYS_VARIABLE] = json.dumps(by_bucket)
    return rest


def keys_of(bucket: str) -> StoreKeys | None:
    """Return the credentials kept for a bucket; None: those of the environment."""
    kept = _kept_keys().get(bucket)
    return None if kept is None else StoreKeys(**kept)


def _kept_keys() -> dict[str, dict[str, Any]]:
    kept: dict[str, dict[str, Any]] = json.loads(os.environ.get(KEYS_VARIABLE) or "{}")
    return kept


def _buckets_of(urls: Any, owner: str) -> list[str]:
    paths = [urls] if isinstance(urls, str) else urls
    if named := [u for u in paths if isinstance(u, str) and is_bucket(u)]:
        return named
    raise UsageError(f"{owner}: they are for paths that begin with s3://, and there is none")


def check(given: Mapping[str, Any] | None, owner: str = "storage_options") -> StoreOptions:
    """Validate the user's options and return them as `StoreOptions`.

    Raises UsageError for options that nothing reads, and for credentials.

    >>> check({"anon": True, "client_kwargs": {"endpoint_url": "http://localhost:9000"}}).endpoint_url
    'http://localhost:9000'
    """
    options = _about_buckets(given)
    client, config = dict(options.get("client_kwargs") or {}), dict(options.get("config_kwargs") or {})
    _check_names(options, client, config, owner)
    style = dict(config.get("s3") or {}).get("addressing_style") or config.get("addressing_style")
    endpoint = options.get("endpoint_url") or client.get("endpoint_url")
    if endpoint is not None and (not str(endpoint).startswith(("http://", "https://")) or "@" in str(endpoint)):
        raise UsageError(
            f"{owner}: endpoint_url must be http://host:port or https://host, without a name or password in it"
        )
    if style not in (None, "path", "virtual", "auto"):
        raise UsageError(f"{owner}: addressing_style must be path, virtual or auto, got {style!r}")
    return StoreOptions(
        endpoint_url=None if endpoint is None else str(endpoint),
        region_name=client.get("region_name"),
        anon=bool(options.get("anon", False)),
        requester_pays=bool(options.get("requester_pays", False)),
        verify=client.get("verify"),
        addressing_style=style,
        connect_timeout=_seconds(config, "connect_timeout", StoreOptions.connect_timeout, owner),
        read_timeout=_seconds(config, "read_timeout", StoreOptions.read_timeout, owner),
        use_ssl=options.get("use_ssl", client.get("use_ssl")),
    )


def _about_buckets(options: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the options without what is true of every local path."""
    return {name: value for name, value in (options or {}).items() if (name, value) != (_MAKE_FOLDERS, True)}


def _check_names(options: Mapping[str, Any], client: Mapping[str, Any], config: Mapping[str, Any], owner: str) -> None:
    """Raise UsageError for a credential, or an option that nothing reads."""
    credentials = sorted(
        n for part in (options, client, config) for n in part if n.lower() in _CREDENTIALS and part[n] is not None
    )
    if credentials:
        raise UsageError(
            f"{owner}: {credentials[0]} is a credential, and those come from the environment only, so that no recipe, "
            "log or report holds them: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (or AWS_PROFILE) "
            "and leave it out (readers and writers in Python take key, secret and token)"
        )
    for part, option_names, section in (
        (options, _KNOWN, ""),
        (client, _CLIENT, "client_kwargs: "),
        (config, _CONFIG, "config_kwargs: "),
    ):
        unknown = sorted(n for n in part if n not in option_names and n.lower() not in _CREDENTIALS)
        if unknown:
            raise UsageError(f"{owner}: {section}{unknown[0]} is not known; accepted: {', '.join(option_names)}")


def _seconds(config: Mapping[str, Any], name: str, usual: float, owner: str) -> float:
    """Return a timeout in seconds; raise UsageError for an invalid one.

    Without a limit, a store that falls silent would block a run forever.
    """
    try:
        seconds = float(config.get(name, usual))
    except (TypeError, ValueError):
        seconds = 0.0
    if not 0 < seconds <= 86_400:
        raise UsageError(f"{owner}: {name} must be a number of seconds above 0, got {config.get(name)!r}")
    return seconds


def remember(urls: Any, given: Mapping[str, Any] | None, owner: str = "storage_options") -> None:
    """Remember the options for the buckets of these URLs, here and in the processes that this one starts."""
    if not _about_buckets(given):
        return
    options = check(given, owner)
    restore({**settings(), **{split_s3(u)[0]: asdict(options) for u in _buckets_of(urls, owner)}})


def remember_for_all(pairs: Sequence[str]) -> None:
    """Parse options of the command line, `key=value` each, for every bucket that has none of its own."""
    restore({**settings(), EVERY: asdict(parse_options(pairs))})


def command_line_options() -> list[str]:
    """Return the options that `remember_for_all` was given, in the form it takes them; [] if there are none."""
    usual = asdict(StoreOptions())
    options = settings().get(EVERY)
    changed = {n: v for n, v in options.items() if n in usual and v != usual[n]} if isinstance(options, dict) else {}
    return [f"{name}={str(value).lower() if isinstance(value, bool) else value}" for name, value in changed.items()]


def parse_options(pairs: Sequence[str]) -> StoreOptions:
    """Parse `key=value` pairs of the command line.

    >>> parse_options(["endpoint_url=http://localhost:9000", "anon=true"]).anon
    True
    """
    options: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise UsageError(f"--storage-option {pair}: expected KEY=VALUE, e.g. endpoint_url=https://host")
        plain = {"true": True, "false": False}.get(value.lower(), value)
        section = (
            "client_kwargs" if name in _CLIENT and name not in _KNOWN else "config_kwargs" if name in _CONFIG else ""
        )
        if section:
            options.setdefault(section, {})[name] = plain
        else:
            options[name] = plain
    return check(options, "--storage-option")


def settings() -> dict[str, dict[str, Any]]:
    """Return all options by bucket, as JSON, for workers on other machines."""
    try:
        by_bucket = json.loads(os.environ.get(VARIABLE, "{}"))
    except ValueError:
        return {}
    return by_bucket if isinstance(by_bucket, dict) else {}


def restore(by_bucket: Mapping[str, Mapping[str, Any]]) -> None:
    """Take over what `settings` gave."""
    if by_bucket:
        os.environ[VARIABLE] = json.dumps({str(b): dict(o) for b, o in by_bucket.items()}, sort_keys=True)


def of_bucket(bucket: str) -> StoreOptions:
    by_bucket = settings()
    options = by_bucket.get(bucket, by_bucket.get(EVERY))
    if not isinstance(options, dict):
        return StoreOptions()
    names = StoreOptions.__dataclass_fields__
    return StoreOptions(**{n: v for n, v in options.items() if n in names})
