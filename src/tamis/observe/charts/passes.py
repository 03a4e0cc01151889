"""The stepper: all passes of a run in order, how far each is, and the time left until the last one ends."""

from __future__ import annotations

from tamis.engine.run_record import PassRecord, PassStatus, RunRecord
from tamis.observe.charts.svg import seconds_text, text
from tamis.observe.charts.tables import bar
from tamis.sizes import format_size

MAX_STEPS = 60
CSS = """
.steps{list-style:none;counter-reset:step;margin:0;padding:0;display:grid;gap:.5rem 1.2rem;
grid-template-columns:repeat(auto-fit,minmax(min(100%,13rem),1fr))}
.steps li{counter-increment:step;border-top:3px solid var(--rail);padding-top:.35rem;min-width:0;color:var(--dim);
overflow-wrap:anywhere}
.steps li::before{content:counter(step) ". "}.steps .finished{border-color:var(--c2)}
.steps .running{border-color:var(--c3);color:var(--fg);font-weight:600}.steps .bar{margin:.3rem 0}
.steps small{display:block;font-weight:400;color:var(--dim)}
"""


def passes_chart(record: RunRecord | None) -> str:
    """Draw the passes of a run as a list; nothing for a run of one pass."""
    if record is None or len(record.passes) < 2:
        return ""
    steps = record.passes if len(record.passes) <= MAX_STEPS else [*record.passes[: MAX_STEPS - 1], _joined(record)]
    return f'<ol class="steps" aria-label="passes">{"".join(_step(p) for p in steps)}</ol>'


def progress_text(record: RunRecord) -> str:
    """Return how much of all passes is done, and the time left.

    >>> passes = [PassRecord("keys-0", status=PassStatus.FINISHED, share=1.0, seconds=30.0), PassRecord("removal")]
    >>> progress_text(RunRecord(passes=passes))
    '50% of all passes, 30 s left'
    """
    left_s = record.left_s
    left = "" if left_s is None else f", {seconds_text(round(left_s))} left"
    return f"{record.share:.0%} of all passes{left}"


def _step(p: PassRecord) -> str:
    facts = [seconds_text(round(p.seconds, 1))] if p.seconds else []
    facts += [f"{p.documents:,} documents"] if p.documents else []
    facts += [f"{format_size(p.read_bytes)} read"] if p.read_bytes else []
    facts += [f"peak {format_size(p.peak_bytes)}"] if p.peak_bytes else []
    running = f"{bar(p.share, 'k3')}<small>{p.share:.0%}</small>" if p.status is PassStatus.RUNNING else ""
    current = ' aria-current="step"' if p.status is PassStatus.RUNNING else ""
    return (
        f'<li class="{p.status}"{current}>{text(p.text, 120)}{running}'
        f"<small>{text(', '.join(facts) or str(p.status))}</small></li>"
    )


def _joined(record: RunRecord) -> PassRecord:
    """Return the passes that do not fit as one."""
    others = record.passes[MAX_STEPS - 1 :]
    is_over = all(p.status is PassStatus.FINISHED for p in others)
    return PassRecord(
        "others",
        f"{len(others)} more passes",
        status=PassStatus.FINISHED if is_over else PassStatus.WAITING,
        share=1.0 if is_over else 0.0,
        seconds=sum(p.seconds for p in others),
    )
