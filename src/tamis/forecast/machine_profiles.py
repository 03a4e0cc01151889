"""Fitted numbers kept per machine and pipeline, so that the next run starts well.

One small JSON file per (machine, pipeline key) in the user's cache folder. A profile is a convenience: a damaged,
foreign or oversized file reads as absent and is replaced by the next save, and a folder that cannot be written
makes save() return False, never fail a run. What is inside is the caller's business: see Predictor.to_dict and
forecast.prediction.RunMeasurement.

`tamis profile list` and `show` print profiles, and name a damaged file.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import time
from collections.abc import Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from tamis import files
from tamis._dataclasses import dataclass
from tamis.errors import UsageError

MAX_PROFILE_BYTES = 1_000_000
RANGES = "ranges"  # not of a pipeline: how far predictions on this machine were off (ranges.py)
_FORMAT = 1
_ANEW = "; delete it, the next run makes a new one"
_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_NAME = re.compile(r"([0-9a-f]{12})-(" + _KEY.pattern + r")\.json")


@dataclass(frozen=True)
class Profile:
    """One profile and its contents.

    `facts`: what kind of machine it was learned on. `damage`: why nothing could be read of it.
    """

    key: str
    machine: str
    numbers: dict[str, Any] = field(default_factory=dict)
    saved_at: float = 0.0
    facts: dict[str, Any] = field(default_factory=dict)
    damage: str = ""

    @property
    def name(self) -> str:
        """Identifier of the pipeline."""
        name = self.numbers.get("name")
        return name if isinstance(name, str) else ""

    @property
    def is_this_machine(self) -> bool:
        """True if it is of this machine."""
        return self.machine == machine_id()

    @property
    def path(self) -> Path:
        return profile_dir() / f"{self.machine}-{self.key}.json"


def profile_dir() -> Path:
    """Return the profile folder: $TAMIS_PROFILE_DIR, $TAMIS_CACHE_DIR/profiles, or that of the user's cache."""
    environ = os.environ
    if environ.get("TAMIS_PROFILE_DIR"):  # profiles of one project, kept with it; compiled kernels stay where they are
        return Path(environ["TAMIS_PROFILE_DIR"])
    if environ.get("TAMIS_CACHE_DIR"):
        return Path(environ["TAMIS_CACHE_DIR"]) / "profiles"
    # The XDG specification says that relative paths are invalid and must be ignored.
    if os.path.isabs(environ.get("XDG_CACHE_HOME", "")):
        return Path(environ["XDG_CACHE_HOME"]) / "tamis" / "profiles"
    return Path(environ.get("HOME") or os.path.expanduser("~")) / ".cache" / "tamis" / "profiles"


def machine_id() -> str:
    """Return twelve hex digits of the architecture, C library, Python, cores and page size, on which fits depend.

    No names.
    """
    facts = [str(f) for f in machine_facts().values()]
    return hashlib.sha256("|".join(facts).encode()).hexdigest()[:12]


def machine_facts() -> dict[str, Any]:
    libc, version = platform.libc_ver()
    return {
        "architecture": platform.machine(),
        "libc": libc,
        "libc_version": version,
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "page_bytes": os.sysconf("SC_PAGE_SIZE"),
    }


def load(key: str) -> dict[str, Any] | None:
    """Load the numbers saved under `key` on a machine like this one; None if there are none or they are damaged.

    TAMIS_PROFILES=off neither reads nor writes profiles.
    """
    there = None if is_off() else _read(_checked(key), machine_id())
    return None if there is None or there.damage else there.numbers


def save(key: str, numbers: Mapping[str, Any]) -> bool:
    """Keep `numbers` (plain JSON) under `key`; whole or not at all. False when that was not possible."""
    if is_off():
        return False
    return _write(Profile(_checked(key), machine_id(), dict(numbers), time.time(), machine_facts()))


def _checked(key: str) -> str:
    if _KEY.fullmatch(key) is None:  # a programming error: keys are hashes or plain names, never paths
        raise ValueError(
            f"profile key: expected 1 to 100 letters, digits, dots, dashes or underscores, got {key!r:.120}"
        )
    return key


def _write(profile: Profile) -> bool:
    about = {"format": _FORMAT, "key": profile.key, "saved_at": profile.saved_at, "machine": profile.facts}
    try:
        text = json.dumps(about | {"numbers": profile.numbers}, allow_nan=False)
        if len(text) > MAX_PROFILE_BYTES:
            return False
        profile.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        files.write_text(profile.path, text, 0o600, sync=False)
    except (OSError, ValueError, TypeError, RecursionError):
        return False
    return True


def is_off() -> bool:
    return os.environ.get("TAMIS_PROFILES", "").lower() == "off"


def list_profiles() -> list[Profile]:
    """List every profile in the cache folder, of all machines, sorted by key, then machine; also damaged ones."""
    try:
        names = [_NAME.fullmatch(name) for name in os.listdir(profile_dir())]
    except OSError:
        return []
    profiles = [_read(name[2], name[1]) for name in names if name is not None and name[2] != RANGES]
    return sorted(profiles, key=lambda profile: (profile.key, profile.machine))


def find(name: str) -> Profile:
    """Return the one profile of this machine whose key begins with `name`, or whose pipeline has that name."""
    here = [p for p in list_profiles() if p.is_this_machine]
    exact = [p for p in here if p.key == name]
    if exact and exact[0].damage:
        raise UsageError(exact[0].damage)
    named = exact or [p for p in here if name and not p.damage and (p.name == name or p.key.startswith(name))]
    if not named:
        raise UsageError(f"no profile {name!r} for this machine; `tamis profile list` names them")
    if len(named) > 1:
        raise UsageError(f"{name!r} means {len(named)} profiles ({', '.join(p.key for p in named[:4])}); give a key")
    return named[0]


def _profile(key: str, machine: str, content: Mapping[str, Any], saved_at: float) -> Profile:
    """Build a profile from the contents of a file, dropping malformed facts.

    `saved_at`: the time to use if it has none.
    """
    stamp, facts, names = content.get("saved_at"), content.get("machine"), machine_facts()
    facts = {
        k: v
        for k, v in (facts.items() if isinstance(facts, dict) else ())
        if k in names and isinstance(v, (str, int)) and len(str(v)) < 100
    }
    saved_at = float(stamp) if isinstance(stamp, (int, float)) and 0 < stamp < 1e11 else saved_at
    return Profile(key, machine, content["numbers"], saved_at, facts)


def _read(key: str, machine: str) -> Profile:
    """Read a profile; set its `damage` if the file is absent, oversized, foreign or damaged."""
    none = Profile(key, machine)

    def damaged(why: str) -> Profile:
        return replace(none, damage=f"{none.path} {why}")

    try:
        with open(none.path, "rb") as file:
            raw, changed_at = file.read(MAX_PROFILE_BYTES + 1), os.fstat(file.fileno()).st_mtime
    except OSError as exc:
        return damaged(f"cannot be read: {exc.strerror}")
    if len(raw) > MAX_PROFILE_BYTES:
        return damaged(f"is larger than {MAX_PROFILE_BYTES:,} bytes and not a profile; delete it")
    try:
        # RecursionError: deeply nested brackets; the file may hold anything.
        whole = json.loads(raw, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as exc:
        return damaged(f"is damaged ({type(exc).__name__}){_ANEW}")
    if not isinstance(whole, dict) or whole.get("format") != _FORMAT or whole.get("key") != key:
        return damaged(f"is not a profile of this version{_ANEW}")
    if not isinstance(whole.get("numbers"), dict):
        return damaged(f"holds no numbers{_ANEW}")
    return _profile(key, machine, whole, changed_at)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number")
