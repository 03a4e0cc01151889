"""Where and why the decoding of a compressed stream stopped, and how much of its file that loses."""

from __future__ import annotations

from tamis.errors import FormatError

DAMAGED, CUT, UNSUPPORTED, BEHIND = "damaged", "cut", "unsupported", "behind"


class StreamFault(FormatError):
    """A stream cannot be decoded further. All decodable bytes before `decoded_offset` were delivered.

    `kind`: DAMAGED; CUT, when the file ends too early and an unknown rest is missing; UNSUPPORTED, when nothing is wrong with it; BEHIND, when other
    bytes follow a whole member of gzip, bzip2 or xz.
    `suspect_offset`: where the part begins whose checksum is wrong (what was delivered of it may be wrong too); -1: only what follows.
    """

    def __init__(
        self, decoded_offset: int, compressed_offset: int, reason: str, kind: str = DAMAGED, suspect_offset: int = -1
    ) -> None:
        super().__init__(
            f"decoding stopped at compressed byte {compressed_offset} (decoded byte {decoded_offset}): {reason}; "
            f"everything before it was read{'' if kind == UNSUPPORTED else ', restore the file to get the rest'}"
        )
        self.decoded_offset, self.compressed_offset, self.reason = decoded_offset, compressed_offset, reason
        self.kind, self.suspect_offset = kind, suspect_offset

    def __reduce__(self) -> tuple[type[StreamFault], tuple[int, int, str, str, int]]:
        return type(self), (
            self.decoded_offset, self.compressed_offset, self.reason, self.kind, self.suspect_offset,
        )  # fmt: skip

    def lost_bytes(self, file_bytes: int) -> int:
        """Return how many bytes of a file of this size count as not read.

        These are the bytes after the fault, or the whole file if it is unknown how much is missing.
        """
        start = 0 if self.kind == CUT else self.suspect_offset if self.suspect_offset >= 0 else self.compressed_offset
        return max(0, file_bytes - start)

    def told(self, file_bytes: int) -> str:
        """Describe the fault and what is lost, for a file of this size."""
        if self.kind == CUT:
            return (
                f"the file ends in the middle of its compressed stream, at byte {self.compressed_offset}: {self.reason}; how "
                f"much is missing cannot be told, so all its {file_bytes} bytes count as not read"
            )
        lost = f"{self.lost_bytes(file_bytes)} of its {file_bytes} compressed bytes"
        if self.kind == UNSUPPORTED:
            return f"the compressed stream is not damaged, but it cannot be decoded here: {self.reason}; {lost} are not read"
        what = f"the compressed stream is damaged at byte {self.compressed_offset}: {self.reason}"
        if self.suspect_offset >= 0:
            return f"{what}; what was read from byte {self.suspect_offset} on may be wrong, {lost} count as not read"
        return f"{what}; {lost} are not read"
