"""Time to the first output and use of GPUs, from the facts in a run database (`about`), and figures as text.

For the report, the dashboard and `tamis diff`. The facts are not trusted: values that are no numbers are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tamis.sizes import format_size

_MAX_GPUS = 64


def figures(about: Mapping[str, Any]) -> dict[str, float]:
    """Return the known figures by name; a run without GPUs has "first output" at most.

    "first output" is in seconds, "GPU busy" a share (the mean of all devices), "out of GPU memory" and "cut to fit a
    GPU" are counts.
    """
    by_name: dict[str, float] = {}
    if (first := _number(about.get("first_output_s"))) is not None:
        by_name["first output"] = first
    gpu = about.get("gpu")
    if not isinstance(gpu, Mapping):
        return by_name
    by_device = gpu.get("busy")
    busy = [_number(v) for v in list(by_device.values())[:_MAX_GPUS]] if isinstance(by_device, Mapping) else []
    known = [min(b, 1.0) for b in busy if b is not None]
    if known:
        by_name["GPU busy"] = sum(known) / len(known)
    for name, key in (("out of GPU memory", "out_of_memory"), ("cut to fit a GPU", "cut")):
        if (n := _number(gpu.get(key))) is not None:
            by_name[name] = n
    return by_name


def shown(name: str, value: float) -> str:
    """Format a figure for display.

    >>> shown("GPU busy", 0.957), shown("first output", 1.24), shown("out of GPU memory", 3)
    ('95.7%', '1.2 s', '3')
    >>> shown("mb_per_s", 12.34), shown("peak_bytes", 95_000_000)
    ('12.3 MB/s', '95 MB')
    """
    if name == "GPU busy":
        return f"{value:.1%}"
    if name in ("first output", "seconds"):
        return f"{value:,.1f} s"
    if name == "mb_per_s":
        return f"{value:,.1f} MB/s"
    return format_size(value) if name.endswith("_bytes") else f"{value:,.0f}"


def gpu_cards(about: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return cards (name, value, note); zero counts are omitted."""
    notes = {"GPU busy": "once its workers were warm", "out of GPU memory": "batches that went through in parts"}
    return [
        (name, shown(name, value), notes.get(name, ""))
        for name, value in figures(about).items()
        if value or name in ("first output", "GPU busy")
    ]


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e12:
        return None
    return float(value)
