"""Fitted numbers kept per machine and pipeline, so that the next run starts well.

One small JSON file per (machine, pipeline key) in the user's cache folder. A profile is a convenience: a damaged,
foreign or oversized file reads as absent and is replaced by the next save, and a folder that cannot be written
makes save() return False, never fail a run. What is inside is the caller's business: see Predictor.to_dict.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MAX_PROFILE_BYTES = 1_000_000
_FORMAT = 1
_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_NAME = re.compile(r"([0-9a-f]{12})-(" + _KEY.pattern + r")\.json")


@dataclass(frozen=True)
class ProfileFile:
    key: str
    machine: str
    size_bytes: int
    modified_s: float
    this_machine: bool


def profile_dir(environ: Mapping[str, str] | None = None) -> Path:
    """$TAMIS_CACHE_DIR/profiles, $XDG_CACHE_HOME/tamis/profiles or ~/.cache/tamis/profiles."""
    environ = os.environ if environ is None else environ
    if environ.get("TAMIS_CACHE_DIR"):
        return Path(environ["TAMIS_CACHE_DIR"]) / "profiles"
    # The XDG specification says that relative paths are invalid and must be ignored.
    if os.path.isabs(environ.get("XDG_CACHE_HOME", "")):
        return Path(environ["XDG_CACHE_HOME"]) / "tamis" / "profiles"
    return Path(environ.get("HOME") or os.path.expanduser("~")) / ".cache" / "tamis" / "profiles"


def machine_id() -> str:
    """Twelve hex digits for what the fitted numbers depend on: architecture, C library, Python, cores, page size. No names."""
    facts = (
        platform.machine(),
        *platform.libc_ver(),
        platform.python_version(),
        str(os.cpu_count()),
        str(os.sysconf("SC_PAGE_SIZE")),
    )
    return hashlib.sha256("|".join(facts).encode()).hexdigest()[:12]


def load(key: str, environ: Mapping[str, str] | None = None) -> dict[str, Any] | None:
    """The numbers saved under `key` on a machine like this one; None when there are none or they are damaged.

    TAMIS_PROFILES=off neither reads nor writes profiles.
    """
    if _is_off(environ):
        return None
    try:
        with open(_path(key, environ), "rb") as file:
            raw = file.read(MAX_PROFILE_BYTES + 1)
    except OSError:
        return None
    if len(raw) > MAX_PROFILE_BYTES:
        return None
    try:
        # RecursionError: deeply nested brackets; the file may hold anything.
        whole = json.loads(raw, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return None
    if not isinstance(whole, dict) or whole.get("format") != _FORMAT or whole.get("key") != key:
        return None
    numbers = whole.get("numbers")
    return numbers if isinstance(numbers, dict) else None


def save(key: str, numbers: Mapping[str, Any], environ: Mapping[str, str] | None = None) -> bool:
    """Keep `numbers` (plain JSON) under `key`; whole or not at all. False when that was not possible."""
    if _is_off(environ):
        return False
    path = _path(key, environ)
    try:
        text = json.dumps({"format": _FORMAT, "key": key, "numbers": dict(numbers)}, allow_nan=False)
        if len(text) > MAX_PROFILE_BYTES:
            return False
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        fd, temporary = tempfile.mkstemp(prefix=".", suffix=".tmp", dir=path.parent)
    except (OSError, ValueError, TypeError, RecursionError):
        return False
    try:
        with os.fdopen(fd, "w", encoding="ascii") as file:
            file.write(text)
        os.replace(temporary, path)
    except OSError:
        Path(temporary).unlink(missing_ok=True)
        return False
    return True


def _is_off(environ: Mapping[str, str] | None) -> bool:
    return (os.environ if environ is None else environ).get("TAMIS_PROFILES", "").lower() == "off"


def list_profiles(environ: Mapping[str, str] | None = None) -> list[ProfileFile]:
    """Every profile in the cache folder, sorted by key, then machine."""
    found = []
    try:
        entries = list(os.scandir(profile_dir(environ)))
    except OSError:
        return []
    here = machine_id()
    for entry in entries:
        match = _NAME.fullmatch(entry.name)
        if match is None:
            continue
        try:
            seen = entry.stat()
        except OSError:
            continue
        found.append(ProfileFile(match[2], match[1], seen.st_size, seen.st_mtime, match[1] == here))
    return sorted(found, key=lambda profile: (profile.key, profile.machine))


def _path(key: str, environ: Mapping[str, str] | None) -> Path:
    if _KEY.fullmatch(key) is None:  # a programming error: keys are hashes or plain names, never paths
        raise ValueError(
            f"profile key: expected 1 to 100 letters, digits, dots, dashes or underscores, got {key!r:.120}"
        )
    return profile_dir(environ) / f"{machine_id()}-{key}.json"


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number")
