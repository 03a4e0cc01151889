"""Retry policy for stores: the failures that are retried, after how long, and how often.

`call_with_retries` is pure but for sleeping.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from tamis.errors import StoreError

T = TypeVar("T")


class Policy(NamedTuple):
    """Eight tries in about a minute: longer than a store's usual hiccup, shorter than a user's patience."""

    n_tries: int = 8
    first_s: float = 0.1
    most_s: float = 10.0

    def wait_s(self, n_failed: int, chance: float) -> float:
        """Return twice the wait after each failure, shortened at random so that workers do not return at once.

        >>> [round(Policy().wait_s(n, 1.0), 1) for n in (1, 2, 3, 12)]
        [0.1, 0.2, 0.4, 10.0]
        """
        return min(self.most_s, self.first_s * 2.0 ** (n_failed - 1)) * (0.5 + chance / 2)


class Temporary(Exception):
    """A failure that may pass: a 500, a request to slow down, a connection that was cut.

    `what` is reported if it does not.
    """

    def __init__(self, what: str, slow_down: bool = False) -> None:
        super().__init__(what)
        self.what, self.slow_down = what, slow_down


POLICY = Policy()


def call_with_retries(
    call: Callable[[], T], doing: str, policy: Policy = POLICY, sleep: Callable[[float], None] = time.sleep
) -> T:
    """Return the result of `call`, retrying while it raises Temporary; raise StoreError after too many failures.

    `call` may record its progress: one that reads a range continues where the connection was cut.
    """
    n_failed = 0
    while True:
        try:
            return call()
        except Temporary as exc:
            n_failed += 1
            if n_failed >= policy.n_tries:
                raise StoreError(
                    f"{doing}: failed {n_failed} times, the last time with: {exc.what}. Nothing is lost: the same "
                    "command resumes once the store answers"
                ) from exc
            import random  # here: most processes never meet a failure

            slower = 3 if exc.slow_down else 0
            sleep(policy.wait_s(n_failed + slower, random.random()))
