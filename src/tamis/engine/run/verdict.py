"""Whether a run that did all it could is complete: the quarantine limit, in records and in bytes of the input. Pure."""

from __future__ import annotations

from tamis.engine.ledger import Ledger
from tamis.errors import Incomplete
from tamis.sizes import format_size


def judge(ledger: Ledger, input_bytes: int, limit: float, floor: int, see: str) -> tuple[int, str]:
    """(exit code, message) from the books of the whole run, so that a resumed one is judged like an uninterrupted one.

    `input_bytes`: of all files as they are stored; `limit`: the share of records, and of bytes, that may be lost; `floor`: so many
    records may be, whatever their share; `see`: the command that shows what was set aside.
    """
    n_bad = ledger.quarantined.n + ledger.n_bad_ranges
    n_records = ledger.records.n + ledger.stage_records
    if n_bad and ledger.quarantined.n == n_records:
        return _incomplete("nothing of the input could be read: there is not one document", see)
    rate = n_bad / max(1, n_records)
    if n_bad > floor and rate > limit:
        return _incomplete(
            f"{n_bad} of {n_records} records are in quarantine ({rate:.2%}), above the limit of {limit:.2%}", see
        )
    lost = f"{format_size(ledger.lost_bytes)} of it"
    if ledger.n_lost_files:
        return _incomplete(f"some input files could not be read or changed during the run ({lost})", see)
    # Files that a stage opens itself may be inputs of the run, too, or known to that stage alone (downloads).
    share = ledger.lost_bytes / max(1, input_bytes, ledger.stage_bytes)
    if ledger.lost_bytes and share > limit:
        return _incomplete(
            f"part of the input could not be read: {lost} as stored, {min(share, 1.0):.2%} of its bytes, above the limit of "
            f"{limit:.2%}",
            see,
        )
    return 0, ""


def _incomplete(what: str, see: str) -> tuple[int, str]:
    return Incomplete.exit_code, f"{what}; everything else is committed. See: {see}"
