"""The Unicode table against Python's own str methods, for every code point."""

from __future__ import annotations

import numpy as np
import pytest

from tamis.kernels.text import _unicode as u

CHARACTERS = [chr(code) for code in range(0x110000)]
FLAGS = u.FLAGS.reshape(-1, 256)[u.PAGE_OF].reshape(-1)  # of each of them


@pytest.mark.parametrize(
    ("flag", "method"),
    [
        (u.SPACE, str.isspace),
        (u.ALPHA, str.isalpha),
        (u.DECIMAL, str.isdecimal),
        (u.DIGIT, str.isdigit),
        (u.NUMERIC, str.isnumeric),
        (u.ALNUM, str.isalnum),
        (u.UPPER, str.isupper),
        (u.LOWER, str.islower),
        (u.BREAK, lambda c: len(f"{c}x".splitlines()) == 2),
        (u.BULLET, lambda c: c in u.BULLETS),
        (u.TERMINAL, lambda c: c in u.TERMINAL_MARKS),
        (u.SYMBOL, lambda c: c in u.SYMBOLS),
        (u.ANGLE, lambda c: c in "⟨⟩"),
        (u.ELLIPSIS, lambda c: c == "…"),
    ],
)
def test_every_code_point(flag: int, method: object) -> None:
    assert callable(method)
    expected = np.fromiter(map(method, CHARACTERS), bool, len(CHARACTERS))
    assert list(map(hex, np.flatnonzero((FLAGS & flag != 0) != expected))) == []


def test_size_and_lists() -> None:
    assert (u.PAGE_OF.size, u.FLAGS.size % 256) == (4352, 0)
    assert u.FLAGS.nbytes < 120_000
    assert (len(u.BULLETS), len(u.TERMINAL_MARKS), len(u.SYMBOLS)) == (12, 159, 129)
    assert u.ranges("21 2e-30") == [0x21, 0x2E, 0x2F, 0x30]
