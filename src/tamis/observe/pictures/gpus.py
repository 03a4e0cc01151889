"""One device: memory against its size, and the share of time it was busy."""

from __future__ import annotations

from collections.abc import Sequence

from tamis.observe.pictures.lines import Line, lines_picture
from tamis.observe.pictures.svg import number
from tamis.sizes import format_size


def gpu_picture(
    name: str,
    used: Sequence[tuple[float, float]],
    ours: Sequence[tuple[float, float]],
    busy: Sequence[tuple[float, float]],
    total_bytes: float,
    temperature_c: float | None = None,
    began_at: float = 0.0,
) -> str:
    """(seconds, bytes) and (seconds, share from 0 to 1)."""
    note = f"{number(temperature_c):.0f} °C" if temperature_c is not None and number(temperature_c) else ""
    memory = [Line("in use", used, area=True, kind="k1"), Line("of this run", ours, kind="k3")]
    drawn = lines_picture(f"memory of {name}", memory, format_size, began_at, number(total_bytes) or None, height=110)
    work = [Line("busy", [(at, min(number(v), 1.0)) for at, v in busy], area=True, kind="k2")]
    return drawn + lines_picture(
        f"busy share of {name}", work, lambda v: f"{v:.0%}", began_at, 1.0, note=note, height=80
    )
