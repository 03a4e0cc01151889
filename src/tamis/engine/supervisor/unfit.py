"""Documents and stages that need more memory than there is, and what to tell whoever asked for that."""

from __future__ import annotations

from dataclasses import dataclass

from tamis.sizes import format_size


@dataclass(frozen=True)
class Unfit:
    """A document, or the setup of a stage, that needs more memory than there is: `budget_bytes` would do, as far as one can tell."""

    stage: str
    size_bytes: int  # of the document
    asked_bytes: int  # by the allocation that failed; 0: not known
    had_bytes: int
    budget_bytes: int

    def advice(self, is_large: bool = False) -> str:
        """What it had and what to do. `is_large`: it is a document that could be quarantined for its size."""
        how = "at once" if self.asked_bytes > self.had_bytes else "more than it had"
        had = f"it asked for {format_size(self.asked_bytes)} {how}" if self.asked_bytes else "it took all"
        aside = "set max_record below its size to quarantine it, or " if is_large else ""
        return f"{had}, one worker can get {format_size(self.had_bytes)}; {aside}run again with --memory {-(-self.budget_bytes // 10**6)}MB or more"
