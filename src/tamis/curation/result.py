"""What a curation tells at its end, and of each pass."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tamis.pipeline.passes import took


@dataclass
class CurationResult:
    """What a curation did. `run`: the result of the last pass, whose ledger tells of all steps; `deduplications`: the counts of
    each, by the name of its step; `status`: finished, or already (an earlier call had done it)."""

    status: str
    output: str
    run: Any = None
    deduplications: dict[str, dict[str, Any]] = field(default_factory=dict)
    seconds: float = 0.0
    peak_bytes: int = 0
    scratch_bytes: int = 0
    passes: list[dict[str, Any]] = field(default_factory=list)  # name, seconds, read_bytes, written_bytes
    about: dict[str, Any] = field(default_factory=dict)  # what an earlier call noted, where it did everything
    leaks: list[dict[str, Any]] = field(default_factory=list)  # events `leak` of all passes
    alerts: dict[str, Any] = field(default_factory=dict)  # n, by rule, undelivered, log; empty where they are off

    def in_one_line(self) -> str:
        """Summarize the run in one line for a caller from Python."""
        if self.run is None:
            return f"finished earlier, nothing to do ({self.output})"
        ledger = self.run.ledger
        aside = f", {ledger.quarantined.n:,} in quarantine" if ledger.quarantined.n else ""
        return (
            f"{ledger.records.n:,} documents read, {ledger.written.n:,} written, {ledger.n_dropped:,} dropped{aside}; "
            f"{took(self.seconds, self.peak_bytes)}"
        )


def pass_facts(name: str, result: Any, seconds: float) -> dict[str, Any]:
    ledger = result.ledger
    return {
        "name": name, "seconds": round(seconds, 3), "read_bytes": ledger.read_bytes, "written_bytes": ledger.written_bytes,
        "documents": ledger.records.n,
    }  # fmt: skip
