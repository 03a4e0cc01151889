"""Results of `tamis profile`: which configuration is best and why; as bars in a terminal, as an SVG chart. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

from tamis.sizes import format_size

NOISE = 0.05  # throughputs this near to each other count as equal
# ... where runs are short and tried once: start-up and neighbours decide more than the configuration.
SHORT_NOISE = 0.15
SHORT_S = 10.0
_CROWDED = 0.9  # of the budget: above it workers are ended


@dataclass(frozen=True)
class TrialRun:
    """One configuration tried.

    `status`: ok, infeasible (the budget is too small) or failed; figures are of the median run.
    """

    budget_bytes: int
    blocksize: str  # as given; "auto": the measured peak decides
    status: str
    peak_bytes: int = 0
    seconds: float = 0.0
    mb_per_s: float = 0.0  # while working, without start-up
    cpu_s: float = 0.0
    n_workers: int = 0
    n_partitions: int = 0
    splits: int = 0
    recycled: int = 0
    failures: int = 0  # allocations that failed, workers ended or crashed
    message: str = ""
    repeats: list[float] = field(default_factory=list)  # seconds of every run

    @property
    def label(self) -> str:
        return f"{format_size(self.budget_bytes)}, {self.blocksize}"


def recommend(rows: Sequence[TrialRun]) -> tuple[TrialRun | None, str]:
    """Return the configuration to use, and why.

    Speed comes first, up to noise; then the smallest budget; then the fewest failures and splits.
    """
    done = [r for r in rows if r.status == "ok"]
    if not done:
        smallest = [r for r in rows if r.status == "infeasible"]
        why = smallest[-1].message if smallest else rows[-1].message if rows else "nothing was tried"
        return None, f"no configuration worked: {why}"
    fastest = max(done, key=lambda r: r.mb_per_s)
    near = [r for r in done if r.mb_per_s >= fastest.mb_per_s * (1 - noise_of(done))]
    calm = [r for r in near if not r.failures and r.peak_bytes < _CROWDED * r.budget_bytes] or near
    best = min(calm, key=lambda r: (r.budget_bytes, r.failures, r.splits, r.blocksize != "auto", -r.mb_per_s))
    return best, "; ".join(_reasons(best, fastest, done, near))


def _reasons(best: TrialRun, fastest: TrialRun, done: Sequence[TrialRun], near: Sequence[TrialRun]) -> list[str]:
    """Return why `best` was chosen among all runs that ended (`done`) and those as fast up to noise (`near`)."""
    noise = noise_of(done)
    facts = (
        f"{best.mb_per_s:,.0f} MB/s, peak {format_size(best.peak_bytes)} ({best.peak_bytes / best.budget_bytes:.0%} "
        "of the budget)"
    )
    reasons = [facts]
    if best is not fastest:
        gap = 1 - best.mb_per_s / fastest.mb_per_s
        reasons.append(f"{gap:.1%} slower than the fastest ({fastest.label}), which is within the noise ({noise:.0%})")
    if any(r.budget_bytes > best.budget_bytes for r in near):
        reasons.append("more memory made it no faster")
    trouble = [r for r in done if r.failures and not best.failures]
    if trouble:
        reasons.append(f"no failed allocation, against {max(r.failures for r in trouble):,} with {trouble[0].label}")
    if not best.splits and any(r.splits for r in done):
        reasons.append("no partition had to be split")
    if noise > NOISE and max(r.seconds for r in done) < SHORT_S:
        reasons.append("the runs were short: a larger --limit-bytes, or --repeat 3, tells more")
    return reasons


def noise_of(rows: Sequence[TrialRun]) -> float:
    """Return the relative difference in speed that is insignificant.

    It is computed from repeated runs, else from how long the runs took.

    >>> noise_of([TrialRun(1, "auto", "ok", seconds=60.0)]), noise_of([TrialRun(1, "auto", "ok", seconds=3.0)])
    (0.05, 0.15)
    """
    spreads = [(max(r.repeats) - min(r.repeats)) / 2 / r.seconds for r in rows if len(r.repeats) > 2 and r.seconds]
    if spreads:
        return min(max(NOISE, sorted(spreads)[len(spreads) // 2]), 0.5)
    return NOISE if min((r.seconds for r in rows), default=0.0) >= SHORT_S else SHORT_NOISE


def bars(rows: Sequence[TrialRun], width: int = 30) -> list[str]:
    """Return lines of peak as a share of the budget, and throughput as a share of the fastest.

    >>> print(bars([TrialRun(1000, "auto", "ok", peak_bytes=500, mb_per_s=10.0)], 4)[0])
    1 kB, auto  peak ██░░  50%  speed ████  10 MB/s
    """
    done = [r for r in rows if r.status == "ok"]
    most = max((r.mb_per_s for r in done), default=0.0) or 1.0
    wide = max((len(r.label) for r in done), default=0)
    return [
        f"{r.label:<{wide}}  peak {_bar(r.peak_bytes / r.budget_bytes, width)} {r.peak_bytes / r.budget_bytes:4.0%}  "
        f"speed {_bar(r.mb_per_s / most, width)}  {r.mb_per_s:,.0f} MB/s"
        for r in done
    ]


def _bar(share: float, width: int) -> str:
    full = min(width, max(0, round(share * width)))
    return "█" * full + "░" * (width - full)


_STYLE = (
    ":root{color-scheme:light dark}text{font:13px "
    "system-ui,sans-serif;fill:#222}.dim{fill:#666}.peak{fill:#0072b2}.budget{stroke:#d55e00;"
    "stroke-width:2}.speed{fill:#009e73}.best{font-weight:bold}.back{fill:#fff}.frame{fill:#eee}"
    "@media(prefers-color-scheme:dark){text{fill:#ddd}.dim{fill:#999}.back{fill:#181818}.frame{fill:#2a2a2a}}"
)
_ROW, _TOP, _LABEL, _WIDE = 34, 64, 190, 300
_CHARS = 130  # of a line


def svg(rows: Sequence[TrialRun], title: str) -> str:
    """Draw peaks against budgets on one scale, with throughputs, in colours for colour-blind readers."""
    best, why = recommend(rows)
    chosen = textwrap.wrap(f"recommended: {best.label}: {why}" if best is not None else why, _CHARS)[:4]
    height = _TOP + _ROW * len(rows) + 30 + 20 * len(chosen)
    width = _LABEL + 2 * _WIDE + 190
    most_bytes = max((r.budget_bytes for r in rows), default=1) or 1
    most_speed = max((r.mb_per_s for r in rows), default=0.0) or 1.0
    second = _LABEL + _WIDE + 90
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'role="img">',
        f"<title>{escape(title)}</title><style>{_STYLE}</style>",
        f'<rect class="back" width="{width}" height="{height}"/>',
        f'<text x="10" y="24" class="best">{escape(title)}</text>',
        f'<text x="{_LABEL}" y="50" class="dim">peak memory (bar) and budget (line)</text>',
        f'<text x="{second}" y="50" class="dim">throughput</text>',
    ]
    for i, r in enumerate(rows):
        y = _TOP + i * _ROW
        bold = ' class="best"' if r is best else ""
        parts.append(f'<text x="10" y="{y + 16}"{bold}>{escape(r.label)}{" *" if r is best else ""}</text>')
        if r.status != "ok":
            reason = r.message.rpartition("; ")[2]  # the end says what would work
            parts.append(
                f'<text x="{_LABEL}" y="{y + 16}" class="dim">{escape(r.status)}: '
                f"{escape(textwrap.shorten(reason, 100))}</text>"
            )
            continue
        peak, limit = r.peak_bytes / most_bytes * _WIDE, r.budget_bytes / most_bytes * _WIDE
        parts += [
            f'<rect class="frame" x="{_LABEL}" y="{y}" width="{limit:.1f}" height="22"/>',
            f'<rect class="peak" x="{_LABEL}" y="{y}" width="{peak:.1f}" '
            f'height="22"><title>{escape(format_size(r.peak_bytes))}</title></rect>',
            f'<line class="budget" x1="{_LABEL + limit:.1f}" x2="{_LABEL + limit:.1f}" y1="{y - 2}" y2="{y + 24}"/>',
            f'<text x="{_LABEL + limit + 6:.1f}" y="{y + 16}">{escape(format_size(r.peak_bytes))}</text>',
            f'<rect class="speed" x="{second}" y="{y}" width="{r.mb_per_s / most_speed * (_WIDE - 90):.1f}" '
            'height="22"/>',
            f'<text x="{second + r.mb_per_s / most_speed * (_WIDE - 90) + 6:.1f}" y="{y + 16}">{r.mb_per_s:,.0f} '
            "MB/s</text>",
        ]
    for k, line in enumerate(chosen):
        parts.append(f'<text x="10" y="{height - 18 - 20 * (len(chosen) - 1 - k)}" class="dim">{escape(line)}</text>')
    parts.append("</svg>")
    return "\n".join(parts) + "\n"


def page(rows: Sequence[TrialRun], title: str) -> str:
    """Return the chart as an HTML page of its own."""
    return f'<!doctype html><meta charset="utf-8"><title>{escape(title)}</title>\n{svg(rows, title)}'
