"""Records that an iterator or an extractor skips: counted by reason, or quarantined if unreadable."""

from __future__ import annotations

from collections import Counter

from tamis.stages.notes import InputFault

_MAX_FAULTS = 1000  # of one file that are listed one by one; a hostile file has millions
_AND_MORE = "; more faults of this file are counted here and not listed"


class Skips:
    """Mixed into iterators and extractors. Needs no __init__: user classes rarely call one."""

    record_offset: int = 0
    """Offset of the last returned record in its file, as stored; 0 if unknown."""

    def _skip(self, reason: str, n: int = 1) -> None:
        """Count records that are left out."""
        self.__dict__.setdefault("_skipped", Counter())[reason] += n

    def take_skipped(self) -> dict[str, int]:
        """Return the counts by reason since the last call, and reset them."""
        return dict(self.__dict__.pop("_skipped", {}))

    def _fault(self, fault: InputFault) -> None:
        """Have part of a file quarantined."""
        faults: list[InputFault] = self.__dict__.setdefault("_faults", [])
        if len(faults) < _MAX_FAULTS:
            faults.append(fault)
            return
        last = faults[-1]
        faults[-1] = last._replace(
            length=max(last.length, fault.offset + fault.length - last.offset),
            reason=f"{last.reason.removesuffix(_AND_MORE)}{_AND_MORE}",
            n=last.n + fault.n,
            lost_bytes=last.lost_bytes + fault.lost_bytes,
        )

    def _refuse(self, reason: str) -> None:
        """Have the record at hand quarantined; the stage adds the file and where the record begins in it."""
        self._fault(InputFault("", 0, 0, reason, n=1))

    def take_faults(self) -> list[InputFault]:
        """Return the faults since the last call."""
        return list(self.__dict__.pop("_faults", ()))
