"""Faults of images and tars, with messages for users."""

from __future__ import annotations

from tamis.errors import FormatError


class ImageFault(FormatError):
    """These bytes are no image that can be read; the message says why."""


class TarFault(FormatError):
    """A tar cannot be followed beyond byte `offset`; members before it were delivered."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(f"{reason} (at byte {offset:,})")
        self.offset, self.reason = offset, reason

    def __reduce__(self) -> tuple[type[TarFault], tuple[int, str]]:
        return type(self), (self.offset, self.reason)
