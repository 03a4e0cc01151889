"""Fitted numbers kept per machine and pipeline, so that the next run starts well.

One small JSON file per (machine, pipeline key) in the user's cache folder. A profile is a convenience: a damaged,
foreign or oversized file reads as absent and is replaced by the next save, and a folder that cannot be written
makes save() return False, never fail a run. What is inside is the caller's business: see Predictor.to_dict and
forecast.Measured.

People may list, show, export, import and pin profiles (`tamis profile`): there a damaged file is named, and an import is
checked to the last number before anything is written. A pinned profile is read by runs and never changed by them.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tamis import files
from tamis.errors import TamisError, UsageError
from tamis.forecast.prediction import MAX_RUNS, Measured
from tamis.memory.predictor import Predictor

MAX_PROFILE_BYTES = 1_000_000
MAX_EXPORT_BYTES = 100_000_000
RANGES = "ranges"  # not of a pipeline: how far predictions on this machine were off (ranges.py)
_FORMAT = 1
_EXPORT = "tamis-profiles"
_ANEW = "; delete it, the next run makes a new one"
_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_NAME = re.compile(r"([0-9a-f]{12})-(" + _KEY.pattern + r")\.json")


@dataclass(frozen=True)
class Profile:
    """One profile with what is inside. `facts`: what kind of machine it was learned on. `damage`: why nothing could be read of it."""

    key: str
    machine: str
    numbers: dict[str, Any] = field(default_factory=dict)
    pinned: bool = False
    saved_at: float = 0.0
    facts: dict[str, Any] = field(default_factory=dict)
    damage: str = ""

    @property
    def name(self) -> str:
        """Of the pipeline."""
        name = self.numbers.get("name")
        return name if isinstance(name, str) else ""

    @property
    def is_here(self) -> bool:
        """Whether it is of this machine."""
        return self.machine == machine_id()

    @property
    def path(self) -> Path:
        return profile_dir() / f"{self.machine}-{self.key}.json"


def profile_dir() -> Path:
    """$TAMIS_PROFILE_DIR, $TAMIS_CACHE_DIR/profiles, $XDG_CACHE_HOME/tamis/profiles or ~/.cache/tamis/profiles."""
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
    """Twelve hex digits for what the fitted numbers depend on: architecture, C library, Python, cores, page size. No names."""
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
    """Keep `numbers` (plain JSON) under `key`; whole or not at all. False when that was not possible, or it is pinned."""
    if is_off() or _read(_checked(key), machine_id()).pinned:
        return False
    return _write(Profile(key, machine_id(), dict(numbers), False, time.time(), machine_facts()))


def _checked(key: str) -> str:
    if _KEY.fullmatch(key) is None:  # a programming error: keys are hashes or plain names, never paths
        raise ValueError(
            f"profile key: expected 1 to 100 letters, digits, dots, dashes or underscores, got {key!r:.120}"
        )
    return key


def _write(profile: Profile) -> bool:
    about = {"format": _FORMAT, "key": profile.key, "saved_at": profile.saved_at, "machine": profile.facts}
    try:
        text = json.dumps(about | {"pinned": profile.pinned, "numbers": profile.numbers}, allow_nan=False)
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
    found = [_read(name[2], name[1]) for name in names if name is not None and name[2] != RANGES]
    return sorted(found, key=lambda profile: (profile.key, profile.machine))


def find(wanted: str) -> Profile:
    """Return the one profile of this machine whose key begins with `wanted`, or whose pipeline has that name."""
    here = [p for p in list_profiles() if p.is_here]
    exact = [p for p in here if p.key == wanted]
    if exact and exact[0].damage:
        raise UsageError(exact[0].damage)
    named = exact or [p for p in here if wanted and not p.damage and (p.name == wanted or p.key.startswith(wanted))]
    if not named:
        raise UsageError(f"no profile {wanted!r} for this machine; `tamis profile list` names them")
    if len(named) > 1:
        raise UsageError(f"{wanted!r} means {len(named)} profiles ({', '.join(p.key for p in named[:4])}); give a key")
    return named[0]


def pin(key: str, pinned: bool = True) -> Profile:
    """Keep a profile as it is: runs read it and do not change it. `pinned=False` undoes that."""
    changed = replace(find(key), pinned=pinned)
    if not _write(changed):
        raise TamisError(f"{changed.path} cannot be written; is the folder yours, is there room?")
    return changed


def export(keys: Sequence[str] = ()) -> dict[str, Any]:
    """Profiles as one plain value: all of them, of all machines, or those named. Damaged ones are left out."""
    wanted = {find(key).key for key in keys}
    names = ("key", "machine", "facts", "pinned", "saved_at", "numbers")
    found = [
        {name: getattr(p, name) for name in names}
        for p in list_profiles()
        if not p.damage and (not wanted or p.key in wanted)
    ]
    return {"format": _EXPORT, "version": 1, "profiles": found}


def import_all(data: Any, *, here: bool = False, overwrite: bool = False) -> list[str]:
    """Keep exported profiles; the keys that were written. `here`: as profiles of this machine, whatever machine made them.

    All are checked before one is written. One that exists already stays, unless `overwrite`; pinned ones always stay.
    """
    if not isinstance(data, dict) or data.get("format") != _EXPORT or data.get("version") != 1:
        raise UsageError("not an export of profiles: expected what `tamis profile export` writes")
    entries = data.get("profiles")
    if not isinstance(entries, list) or len(entries) > 10_000:
        raise UsageError("profiles: expected a list of at most 10,000")
    checked = [_imported(entry, i, here) for i, entry in enumerate(entries)]
    written: list[str] = []
    for profile in checked:
        there = _read(profile.key, profile.machine)
        if there.damage or (overwrite and not there.pinned):
            if not _write(profile):
                where = f"{profile.path} cannot be written"
                raise TamisError(f"{where}; {len(written)} of {len(checked)} profiles were imported")
            written.append(profile.key)
    return written


def _imported(entry: Any, i: int, here: bool) -> Profile:
    def bad(what: str) -> UsageError:
        return UsageError(f"profiles.{i}: {what}; nothing was imported")

    if not isinstance(entry, dict):
        raise bad("expected a mapping")
    key, machine, numbers = (entry.get(k) for k in ("key", "machine", "numbers"))
    if not isinstance(key, str) or _KEY.fullmatch(key) is None:
        raise bad(f"key: expected letters, digits, dots, dashes or underscores, got {key!r:.60}")
    if not isinstance(machine, str) or re.fullmatch(r"[0-9a-f]{12}", machine) is None:
        raise bad(f"machine: expected twelve hex digits, got {machine!r:.60}")
    if not isinstance(numbers, dict):
        raise bad("numbers: expected a mapping")
    try:
        check_numbers(numbers)
    except UsageError as exc:
        raise bad(str(exc)) from None
    return _profile(key, machine_id() if here else machine, entry, "facts", 0.0)


def check_numbers(numbers: Mapping[str, Any]) -> None:
    """UsageError when this is not what a run saves."""
    segments, runs = numbers.get("segments", []), numbers.get("runs", [])
    if not isinstance(segments, list) or len(segments) > 1000:
        raise UsageError("segments: expected a list of partition models")
    if not isinstance(runs, list) or len(runs) > MAX_RUNS:
        raise UsageError(f"runs: expected a list of at most {MAX_RUNS}")
    for data in segments:
        if not isinstance(data, dict):
            raise UsageError("segments: expected partition models")
        Predictor.from_dict(data)
    for data in runs:
        Measured.from_dict(data)
    unknown = sorted(set(numbers) - {"segments", "runs", "name", "stages", "tamis"})
    if unknown:
        raise UsageError(f"unknown field {unknown[0]!r:.60}")
    name, stages = numbers.get("name", ""), numbers.get("stages", [])
    if not isinstance(name, str) or len(name) > 1000 or not isinstance(numbers.get("tamis", ""), str):
        raise UsageError("name: expected text")
    if not isinstance(stages, list) or len(stages) > 10_000 or not all(isinstance(s, str) for s in stages):
        raise UsageError("stages: expected a list of names")


def _profile(key: str, machine: str, found: Mapping[str, Any], facts: str, saved_at: float) -> Profile:
    """Build a profile from the contents of a file or an export, leaving out odd values other than the numbers.

    `facts`: the key under which it stores the facts of its machine. `saved_at`: the time to use if it has none.
    """
    at, about, known = found.get("saved_at"), found.get(facts), machine_facts()
    kept = {
        k: v
        for k, v in (about.items() if isinstance(about, dict) else ())
        if k in known and isinstance(v, (str, int)) and len(str(v)) < 100
    }
    saved_at = float(at) if isinstance(at, (int, float)) and 0 < at < 1e11 else saved_at
    return Profile(key, machine, found["numbers"], found.get("pinned") is True, saved_at, kept)


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
    return _profile(key, machine, whole, "machine", changed_at)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number")
