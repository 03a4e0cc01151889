"""Units of ASCII characters, normalised a window at a time by array operations.

The arrays of one byte per byte of a window are kept from window to window: fresh ones would be given back to the system and
asked for again each time, which took a third of all the time. Units that are to lose characters inside are copied one
after the other into one buffer, with a byte between them that UTF-8 never holds, and shortened together.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

BETWEEN = 0xFF
STOP = bytes([BETWEEN])
_SPACES = bytes([*range(9, 14), *range(28, 33)])  # what str.split() splits ASCII at
_ALNUM = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_KEPT_BYTES = 1 << 20


class AsciiUnits:
    """Normalises; keeps the room it works in."""

    def __init__(self, mode: str) -> None:
        self.mode = mode
        self._room: list[Array] = []

    def _bytes(self, n: int, k: int) -> Array:
        """Array number k of the room, n bytes."""
        import numpy as np

        if n > _KEPT_BYTES:
            return np.empty(n, np.uint8)
        while len(self._room) <= k:
            self._room.append(np.empty(_KEPT_BYTES, np.uint8))
        return self._room[k][:n]

    def others(self, window: Array, start: Array, stop: Array) -> Array:
        """Which units hold other characters."""
        import numpy as np

        wide = np.zeros(len(start), bool)
        if not len(window) or window.max() < 128:
            return wide
        high = np.flatnonzero(np.greater_equal(window, 128, out=self._bytes(len(window), 0).view(bool)))
        if len(high) > len(wide):
            return np.searchsorted(high, start) < np.searchsorted(high, stop)
        wide[np.searchsorted(stop, high, side="right")] = True
        return wide

    def normalized(
        self, window: Array, start: Array, end: Array, which: Array
    ) -> Iterator[tuple[Array, Array, Array, Array]]:
        """(buffer, start, end, which of the units): what the chosen units are after normalisation, in one or two parts."""
        import numpy as np

        start, end = start[which], end[which]
        if self.mode in ("none", "nfc") or not len(which):
            yield window, start, end, which
        elif self.mode == "strip":
            yield window, *stripped(window, start, end), which
        elif self.mode == "casefold":
            low, twice = self._folded(window)
            start, end = stripped(low, start, end)
            # Where two spaces lie side by side inside a unit, it must be shortened; few are.
            ends = np.stack([start, end], axis=1).ravel()
            some = np.maximum.reduceat(twice, ends)[::2] > 0
            some &= end > start
            yield low, start[~some], end[~some], which[~some]
            if some.any():
                yield *collapsed(packed(low, start[some], end[some], BETWEEN), True), which[some]
        else:
            rewritten = packed(window, start, end, BETWEEN).tobytes().translate(*table(self.mode))
            yield *collapsed(np.frombuffer(rewritten, np.uint8), False), which

    def _folded(self, window: Array) -> tuple[Array, Array]:
        """(the window in lower case with every whitespace character a space, 1 where a space follows a space).

        Both one byte longer than the window, for ranges that end where it does.
        """
        import numpy as np

        n = len(window)
        low, t, mark, twice = (self._bytes(n + 1, k) for k in range(4))
        low[n] = twice[0] = twice[n] = 0
        lower, t, mark = low[:n], t[:n], mark[:n].view(bool)
        np.less(np.subtract(window, 65, out=t), 26, out=mark)
        np.add(window, np.left_shift(mark.view(np.uint8), 5, out=t), out=lower)
        np.less(np.subtract(window, 9, out=t), 5, out=mark)
        space = twice[:n].view(bool)
        np.less(np.subtract(window, 28, out=t), 4, out=space)
        np.logical_or(mark, space, out=mark)
        np.multiply(np.bitwise_xor(lower, 32, out=t), mark.view(np.uint8), out=t)
        np.bitwise_xor(lower, t, out=lower)
        np.equal(lower, 32, out=mark)
        np.logical_and(mark[1:], mark[:-1], out=space[1:])
        twice[0] = 0
        return low, twice


def stripped(data: Array, start: Array, end: Array) -> tuple[Array, Array]:
    """Bounds of ASCII units without whitespace around them. One step per whitespace character, over the units that have one more."""
    import numpy as np

    space = np.zeros(256, bool)
    space[list(_SPACES)] = True
    start, end = start.copy(), end.copy()
    for edge, at, step in ((start, 0, 1), (end, -1, -1)):
        left = np.flatnonzero(end > start)
        for _ in range(64):
            left = left[space[data[edge[left] + at]]]
            edge[left] += step
            left = left[end[left] > start[left]]
            if not len(left):
                break
        for k in left.tolist():  # more than that: rare, and perhaps very many
            line = data[int(start[k]) : int(end[k])].tobytes()
            text = line.lstrip(_SPACES) if step > 0 else line.rstrip(_SPACES)
            edge[k] += step * (len(line) - len(text))
    return start, end


@lru_cache(maxsize=8)
def table(mode: str) -> tuple[bytes, bytes]:
    """(what each byte becomes, bytes that go)."""
    made = bytearray(bytes(range(256)).lower())  # ASCII letters only
    if mode == "casefold":
        for c in _SPACES:
            made[c] = 32
        return bytes(made), b""
    if mode == "ccnet":
        for c in b"0123456789":
            made[c] = 48
    return bytes(made), bytes(c for c in range(128) if c not in _ALNUM)


def packed(data: Array, start: Array, end: Array, between: int) -> Array:
    """The units (at least one) one after the other, each with this byte behind it."""
    import numpy as np

    from tamis.kernels.json_text import copy_spans

    size = end - start
    to = np.cumsum(size + 1) - size - 1
    buffer = np.empty(int(to[-1] + size[-1] + 1), np.uint8)
    copy_spans(data, start, size, buffer, to)
    buffer[to + size] = between
    return buffer


def collapsed(new: Array, spaces: bool) -> tuple[Array, Array, Array]:
    """(buffer, start, end) of units with BETWEEN behind each; with `spaces` every run of them made one, and none at the ends."""
    import numpy as np

    if spaces:
        space = new == 32
        again = space[1:] & (space[:-1] | (new[:-1] == BETWEEN))
        if again.any() or space[0]:
            new = new[np.concatenate([[not space[0]], ~again])]
    stops = np.flatnonzero(new == BETWEEN)
    begin = np.concatenate([[0], stops[:-1] + 1])
    if spaces:  # of the whitespace at the end one space is left
        stops = stops - ((stops > begin) & (new[np.maximum(stops - 1, 0)] == 32))
    return new, begin, stops
