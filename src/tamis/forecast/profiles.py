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
    """The numbers saved under `key` on a machine like this one; None when there are none or they are damaged.

    TAMIS_PROFILES=off neither reads nor writes profiles.
    """
    if _is_off():
        return None
    try:
        return _read(_path(key), key).numbers
    except TamisError:
        return None


def save(key: str, numbers: Mapping[str, Any]) -> bool:
    """Keep `numbers` (plain JSON) under `key`; whole or not at all. False when that was not possible, or it is pinned."""
    if _is_off():
        return False
    path = _path(key)
    try:
        if _read(path, key).pinned:
            return False
    except TamisError:
        pass
    return _write(path, Profile(key, machine_id(), dict(numbers), False, time.time(), machine_facts()))


def _write(path: Path, profile: Profile) -> bool:
    about = {"format": _FORMAT, "key": profile.key, "saved_at": profile.saved_at, "machine": profile.facts}
    try:
        text = json.dumps(about | {"pinned": profile.pinned, "numbers": profile.numbers}, allow_nan=False)
        if len(text) > MAX_PROFILE_BYTES:
            return False
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        files.write_text(path, text, 0o600, sync=False)
    except (OSError, ValueError, TypeError, RecursionError):
        return False
    return True


def _is_off() -> bool:
    return os.environ.get("TAMIS_PROFILES", "").lower() == "off"


def list_profiles() -> list[Profile]:
    """Every profile in the cache folder, of all machines, sorted by key, then machine; also damaged ones."""
    try:
        entries = list(os.scandir(profile_dir()))
    except OSError:
        return []
    found = []
    for entry in entries:
        match = _NAME.fullmatch(entry.name)
        if match is not None and match[2] != RANGES:
            try:
                found.append(_read(Path(entry.path), match[2]))
            except UsageError as exc:
                found.append(Profile(match[2], match[1], damage=str(exc)))
    return sorted(found, key=lambda profile: (profile.key, profile.machine))


def find(wanted: str) -> Profile:
    """The one profile of this machine whose key begins with `wanted`, or whose pipeline has that name."""
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
    if not _write(_path(changed.key), changed):
        raise TamisError(f"{_path(changed.key)} cannot be written; is the folder yours, is there room?")
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
        path = profile_dir() / f"{profile.machine}-{profile.key}.json"
        try:
            there: Profile | None = _read(path, profile.key)
        except TamisError:
            there = None
        if there is not None and (there.pinned or not overwrite):
            continue
        if not _write(path, profile):
            raise TamisError(f"{path} cannot be written; {len(written)} of {len(checked)} profiles were imported")
        written.append(profile.key)
    return written


def _imported(entry: Any, i: int, here: bool) -> Profile:
    def bad(what: str) -> UsageError:
        return UsageError(f"profiles.{i}: {what}; nothing was imported")

    if not isinstance(entry, dict):
        raise bad("expected a mapping")
    key, machine, numbers, facts = (entry.get(k) for k in ("key", "machine", "numbers", "facts"))
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
    pinned, at = entry.get("pinned") is True, entry.get("saved_at")
    saved_at = float(at) if isinstance(at, (int, float)) and 0 <= at < 1e11 else 0.0
    return Profile(key, machine_id() if here else machine, numbers, pinned, saved_at, _facts(facts))


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


def _facts(value: Any) -> dict[str, Any]:
    known = machine_facts()
    given = value if isinstance(value, dict) else {}
    return {k: v for k, v in given.items() if k in known and isinstance(v, (str, int)) and len(str(v)) < 100}


def _read(path: Path, key: str) -> Profile:
    """UsageError, with the reason, where the file is absent, oversized, foreign or damaged."""
    try:
        with open(path, "rb") as file:
            raw, changed_at = file.read(MAX_PROFILE_BYTES + 1), os.fstat(file.fileno()).st_mtime
    except OSError as exc:
        raise UsageError(f"{path} cannot be read: {exc.strerror}") from None
    if len(raw) > MAX_PROFILE_BYTES:
        raise UsageError(f"{path} is larger than {MAX_PROFILE_BYTES:,} bytes and not a profile; delete it")
    try:
        # RecursionError: deeply nested brackets; the file may hold anything.
        whole = json.loads(raw, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as exc:
        raise UsageError(f"{path} is damaged ({type(exc).__name__}); delete it, the next run makes a new one") from None
    numbers = whole.get("numbers") if isinstance(whole, dict) else None
    if not isinstance(whole, dict) or whole.get("format") != _FORMAT or whole.get("key") != key:
        raise UsageError(f"{path} is not a profile of this version; delete it, the next run makes a new one")
    if not isinstance(numbers, dict):
        raise UsageError(f"{path} holds no numbers; delete it, the next run makes a new one")
    at = whole.get("saved_at")
    saved_at = float(at) if isinstance(at, (int, float)) and 0 < at < 1e11 else changed_at
    machine = path.name[:12]
    return Profile(key, machine, numbers, whole.get("pinned") is True, saved_at, _facts(whole.get("machine")))


def _path(key: str) -> Path:
    if _KEY.fullmatch(key) is None:  # a programming error: keys are hashes or plain names, never paths
        raise ValueError(
            f"profile key: expected 1 to 100 letters, digits, dots, dashes or underscores, got {key!r:.120}"
        )
    return profile_dir() / f"{machine_id()}-{key}.json"


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number")
