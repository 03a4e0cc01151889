"""Scratch files and who still needs them. Pure: the paths are removed by whoever carries out Discard."""

from __future__ import annotations

from collections.abc import Iterable


class Scratch:
    """Blocks between processes, counted in bytes and in users (halves of a split unit share one file)."""

    def __init__(self) -> None:
        self._bytes: dict[str, int] = {}
        self._users: dict[str, int] = {}

    def add(self, path: str, n_bytes: int) -> None:
        self._bytes[path], self._users[path] = n_bytes, 1

    def share(self, path: str) -> None:
        """Count one more unit that needs the file."""
        if path in self._users:
            self._users[path] += 1

    def free(self, paths: Iterable[str]) -> list[str]:
        """Count one unit less for each of these files; return those that no unit needs any more."""
        gone = []
        for path in paths:
            users = self._users.get(path, 1) - 1
            if users > 0:
                self._users[path] = users
                continue
            self._users.pop(path, None)
            self._bytes.pop(path, None)
            gone.append(path)
        return gone

    def bytes_of(self, path: str) -> int:
        return self._bytes.get(path, 0)

    @property
    def total_bytes(self) -> int:
        return sum(self._bytes.values())
