"""The result of a curation."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, TypedDict

from tamis._dataclasses import dataclass
from tamis.engine.schema import AlertCounts, LeakReport
from tamis.forecast.prediction import Prediction
from tamis.pipeline.pass_progress import describe_cost

if TYPE_CHECKING:
    from tamis.dedup.state import Summary
    from tamis.engine.run.run_result import RunResult
    from tamis.engine.run_record import RunRecord


class CurationFacts(TypedDict, total=False):
    """The figures of a curation, as they are recorded; of a shard, the number of documents alone."""

    n_records: int
    n_written: int
    n_dropped: int
    n_quarantined: int
    content_hash: str
    peak_bytes: int
    seconds: float
    n_documents: int
    n_tokens: int  # of an output of token ids, without padding
    n_sequences: int
    n_padding: int
    n_files: int  # of an output that was put together after the last pass, without the card
    written_bytes: int  # likewise


class CurationSizes(TypedDict):
    """The size of a curation, estimated from a sample of its input.

    `key_bytes`: for each group of deduplications, by the names of its steps, the most disk space that its keys take,
    assuming that every document is kept.
    """

    n_files: int
    input_bytes: int  # as stored
    decoded_bytes: int
    n_documents: int
    key_bytes: dict[str, int]


@dataclass
class CurationResult:
    """The result of a curation.

    `run`: the result of the last pass, whose ledger covers all steps; `deduplications`: the counts of each, by the
    name of its step; `status`: finished, or already (an earlier call had done it).
    """

    status: str
    output: str
    run: RunResult | None = None
    deduplications: dict[str, Summary] = field(default_factory=dict)
    seconds: float = 0.0
    peak_bytes: int = 0
    scratch_bytes: int = 0
    about: CurationFacts = field(default_factory=lambda: CurationFacts())
    leaks: list[LeakReport] = field(default_factory=list)  # events `leak` of all passes
    record: RunRecord | None = None  # of the whole run, all passes and sessions; None for a shard
    left_out: list[str] = field(default_factory=list)  # sentences on steps and sources
    alerts: AlertCounts = field(default_factory=lambda: AlertCounts())
    prediction: Prediction = field(default_factory=lambda: Prediction())  # expected against measured (expected.py)

    def in_one_line(self) -> str:
        """Summarize the run in one line for a caller from Python."""
        if self.run is None:
            return f"finished earlier, nothing to do ({self.output})"
        ledger, whole = self.run.ledger, self.record or self
        remarks = "".join(f"; {remark}" for remark in self.left_out)
        aside = f", {ledger.quarantined.n:,} in quarantine" if ledger.quarantined.n else ""
        return (
            f"{ledger.records.n:,} documents read, {ledger.written.n:,} written, {ledger.n_dropped:,} dropped{aside}; "
            f"{describe_cost(whole.seconds, whole.peak_bytes)}{remarks}"
        )
