"""Time to the first output and use of GPUs, from the facts in a run database (`about`), and figures as text.

For the report, the dashboard and `tamis diff`. The facts are not trusted: values out of range are left out.
"""

from __future__ import annotations

from tamis.engine.schema import RunFacts
from tamis.sizes import format_size, format_speed

_MAX_GPUS = 64


def figures(about: RunFacts) -> dict[str, float]:
    """Return the known figures by name; a run without GPUs has "first output" at most.

    "first output" is in seconds, "GPU busy" a share (the mean of all devices), "out of GPU memory" and "cut to fit a
    GPU" are counts.
    """
    by_name: dict[str, float] = {}
    if about.first_output_s is not None and _is_plausible(about.first_output_s):
        by_name["first output"] = about.first_output_s
    if about.gpu is None:
        return by_name
    known = [min(share, 1.0) for share in list(about.gpu.busy.values())[:_MAX_GPUS] if _is_plausible(share)]
    if known:
        by_name["GPU busy"] = sum(known) / len(known)
    for name, n in (("out of GPU memory", about.gpu.out_of_memory), ("cut to fit a GPU", about.gpu.cut)):
        if _is_plausible(n):
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
        return format_speed(value)
    return format_size(value) if name.endswith("_bytes") else f"{value:,.0f}"


def gpu_cards(about: RunFacts) -> list[tuple[str, str, str]]:
    """Return cards (name, value, note) of a run with GPUs; zero counts are omitted."""
    notes = {"GPU busy": "once its workers were warm", "out of GPU memory": "batches that went through in parts"}
    return [
        (name, shown(name, value), notes.get(name, ""))
        for name, value in (figures(about).items() if about.gpu is not None else ())
        if value or name in ("first output", "GPU busy")
    ]


def _is_plausible(value: float) -> bool:
    return 0 <= value < 1e12
