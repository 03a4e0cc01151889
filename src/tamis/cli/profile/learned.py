"""List and show what this machine has learned from its runs: `tamis profile list` and `show` ."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

from tamis.cli.parsing.arguments import Argument, Option
from tamis.cli.terminal.show import print_json, print_lines, print_table
from tamis.errors import TamisError
from tamis.sizes import format_size

if TYPE_CHECKING:
    from tamis.forecast.machine_profiles import Profile

Key = Annotated[str, Argument(metavar="KEY", help="The key of a profile, its beginning, or the name of its pipeline.")]
Json = Annotated[bool, Option("--json", help="Print one JSON object instead of text.")]


def list_(as_json: Json = False) -> None:
    """List the profiles: one per pipeline and kind of machine, made by its runs.

    Example: tamis profile list
    """
    from tamis.forecast import machine_profiles

    summaries = [_summary(profile) for profile in machine_profiles.list_profiles()]
    off = machine_profiles.is_off()
    if as_json:
        print_json({"folder": str(machine_profiles.profile_dir()), "off": off, "profiles": summaries})
        return
    if summaries:
        columns = ["key", "pipeline", "machine", "runs", "last peak", "last speed", "saved", ""]
        print_table("Machine profiles", columns, [_list_row(f) for f in summaries], right=(3, 4, 5))
    else:
        print_lines(["no profiles yet: every run leaves one"])
    print_lines([f"in {machine_profiles.profile_dir()}" + ("; switched off by TAMIS_PROFILES=off" if off else "")])


def _summary(profile: Profile) -> dict[str, Any]:
    """Return what the list shows of a profile, as plain values for JSON."""
    from tamis.forecast.prediction import runs_of

    about: dict[str, Any] = {"key": profile.key, "machine": profile.machine, "here": profile.is_this_machine}
    if profile.damage:
        return {**about, "damaged": profile.damage}
    runs = runs_of(profile.numbers)
    last = runs[-1] if runs else None
    speed = round(last.conditions.decoded_bytes / last.seconds) if last and last.seconds else None
    about |= {"name": profile.name, "n_runs": len(runs), "saved_at": profile.saved_at}
    return {**about, "peak_bytes": last.peak_bytes if last else None, "bytes_per_s": speed}


def _list_row(f: dict[str, Any]) -> tuple[Any, ...]:
    return (
        f["key"],
        f.get("name", ""),
        "this one" if f["here"] else f["machine"],
        f.get("n_runs", ""),
        format_size(f["peak_bytes"]) if f.get("peak_bytes") else "",
        f"{f['bytes_per_s'] / 1e6:,.0f} MB/s" if f.get("bytes_per_s") else "",
        time.strftime("%Y-%m-%d %H:%M", time.localtime(f["saved_at"])) if "saved_at" in f else "",
        "damaged" if "damaged" in f else "",
    )


def show(key: Key, as_json: Json = False) -> None:
    """Show one profile: partition models, and the runs they were learned from.

    Example: tamis profile show 3f2a
    """
    from tamis.forecast import machine_profiles
    from tamis.forecast.prediction import runs_of

    profile = machine_profiles.find(key)
    if as_json:
        print_json({"key": profile.key, "machine": profile.machine, "facts": profile.facts, **profile.numbers})
        return
    facts = ", ".join(f"{k} {v}" for k, v in profile.facts.items() if v not in ("", None))
    lines = [f"key       {profile.key}", f"pipeline  {profile.name}"]
    lines += [f"machine   {profile.machine}" + (f": {facts}" if facts else "")]
    print_lines([*lines, *_models(profile)])
    rows = [
        (
            time.strftime("%Y-%m-%d %H:%M", time.localtime(m.at)),
            format_size(m.conditions.budget_bytes),
            m.conditions.n_workers,
            format_size(m.conditions.decoded_bytes),
            format_size(m.peak_bytes),
            f"{m.seconds:,.1f} s",
            f"{m.cpu_s / (m.conditions.decoded_bytes / 1e6):.4f}" if m.conditions.decoded_bytes else "",
            format_size(m.scratch_bytes),
            f"{m.n_partitions:,}",
        )
        for m in runs_of(profile.numbers)
    ]
    if rows:
        columns = ["run", "budget", "workers", "decoded", "peak", "time", "CPU s/MB", "scratch", "partitions"]
        print_table("Runs", columns, rows, right=tuple(range(1, 9)))


def _models(profile: Profile) -> list[str]:
    from tamis.memory.predictor import Predictor

    lines = []
    segments = profile.numbers.get("segments")
    for i, data in enumerate(segments if isinstance(segments, list) else ()):
        try:
            model = Predictor.from_dict(data if isinstance(data, dict) else {})
        except TamisError:
            lines.append(f"segment {i} damaged")
            continue
        a, b, c = model.coefficients
        lines.append(
            f"segment {i} peak = {format_size(a)} + {b:.2f} x decoded bytes + {c:.2f} x largest record, times "
            f"{model.factor:.2f} "
            f"({model.n_samples:,} partitions)"
        )
    return lines
