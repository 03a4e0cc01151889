"""Documents and stages that need more memory than there is, and what to tell whoever asked for that."""

from __future__ import annotations

from dataclasses import dataclass

from tamis.sizes import format_size

_NO_MACHINE_BYTES = 1 << 47  # the addresses of one process: a request beyond it is a wrong size, not a need


@dataclass(frozen=True)
class Unfit:
    """A document, or the setup of a stage, that needs more memory than there is: `budget_bytes` would do, as far as one can tell."""

    stage: str
    size_bytes: int  # of the document
    asked_bytes: int  # by the allocation that failed; 0: not known
    had_bytes: int
    budget_bytes: int

    def advice(self, is_large: bool = False) -> str:
        """Return what the worker had and what to do about it.

        `is_large`: it is a document that could be quarantined for its size.
        """
        how = "at once" if self.asked_bytes > self.had_bytes else "more than it had"
        had = f"it asked for {format_size(self.asked_bytes)} {how}" if self.asked_bytes else "it took all"
        if self.asked_bytes >= _NO_MACHINE_BYTES:
            return f"{had}, which no machine has: the size is wrong, in damaged input or in the stage; more --memory will not help"
        aside = "set max_record below its size to quarantine it, or " if is_large else ""
        return f"{had}, one worker can get {format_size(self.had_bytes)}; {aside}run again with --memory {-(-self.budget_bytes // 10**6)}MB or more"
