"""Scores in two bytes: intervals that hold them, in their order, exact where it matters; and the files they lie in."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tamis.errors import FormatError
from tamis.formats.scratch.score_file import (
    BEYOND,
    NO_NUMBER,
    RELATIVE_WIDTH,
    ScoreKey,
    ScoreTable,
    codes_of,
    encode_scores,
    ends_of,
    read_scores,
)

SOME = [0.0, -0.0, 5e-324, 2**-25, 2**-24, 0.1, 1.0, 1.5, 1024.0, 1025.0, 2**39, 2.0**40, 1e300, math.inf]


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # a busy machine is no fault
@given(
    st.lists(
        st.floats(allow_nan=False) | st.integers(-2000, 2000).map(float) | st.sampled_from(SOME),
        min_size=1,
        max_size=40,
    )
)
def test_every_number_is_in_the_interval_of_its_code_and_codes_are_in_order(numbers: list[float]) -> None:
    values = np.array(numbers + [-x for x in numbers])
    codes = codes_of(values)
    low, high = ends_of(codes)
    assert ((low <= values) & (values <= high)).all()
    ordered = codes[np.argsort(values, kind="stable")].astype(int)
    assert (np.diff(ordered) >= 0).all()
    narrow = (np.abs(values) >= 2**-24) & (np.abs(codes.astype(int)) < BEYOND)
    assert (high[narrow] - low[narrow] <= np.abs(values[narrow]) * RELATIVE_WIDTH).all()


def test_zero_and_whole_numbers_up_to_1024_have_a_code_of_their_own() -> None:
    codes = codes_of(np.arange(0, 1025, dtype=float))
    assert len(set(codes.tolist())) == 1025
    assert [float(e[0]) for e in ends_of(codes_of(np.zeros(1)))] == [0.0, 0.0]


def test_no_number_is_distinguished() -> None:
    codes = codes_of(np.array([math.nan, -3.0, 0.0]))
    assert codes[0] == NO_NUMBER
    assert np.isnan(ends_of(codes)[0]).tolist() == [True, False, False]
    assert codes_of(np.empty(0)).tolist() == []


def table(n: int = 1000, n_rules: int = 5) -> ScoreTable:
    rng = np.random.default_rng(3)
    codes = {ScoreKey("stage", f"rule {i}", i % 2 == 0): codes_of(rng.random(n)) for i in range(n_rules)}
    return ScoreTable(
        np.repeat(np.arange(4, dtype=np.int32), n // 4), rng.integers(0, 1 << 40, n), rng.integers(0, 9000, n), codes
    )


def test_a_file_gives_back_what_was_put_in(tmp_path: Path) -> None:
    given, path = table(), tmp_path / "scores.bin"
    path.write_bytes(encode_scores(given))
    found = read_scores(str(path))
    assert list(found.codes) == list(given.codes)
    for name in ("file", "offset", "n_bytes"):
        assert (getattr(found, name) == getattr(given, name)).all()
    assert all((found.codes[k] == given.codes[k]).all() for k in given.codes)
    assert found.is_last
    one = read_scores(str(path), {("stage", "rule 2")})
    assert [k.score for k in one.codes] == ["rule 2"]
    path.write_bytes(encode_scores(ScoreTable(*(np.empty(0, np.int64) for _ in range(3)), is_last=False)))
    assert (len(read_scores(str(path))), read_scores(str(path)).is_last) == (0, False)


@pytest.mark.parametrize(
    "change",
    [
        lambda d: b"",
        lambda d: d[: len(d) // 2],
        lambda d: b"{}\n" + d,
        lambda d: d.replace(b'"n": 1000', b'"n": 1001'),
        lambda d: d.replace(b'"n": 1000', b'"n": 999999999999'),
        lambda d: d.replace(b'"n": 1000', b'"n": -1'),
        lambda d: d[:-200] + bytes(200),
        lambda d: d.replace(b"tamis scores 1", b"tamis scores 2"),
        lambda d: b'{"format": "tamis scores 1", "n": 1, "last": true, "blocks": [1], "scores": []}\n',
        lambda d: b"[" * 100_000,
    ],
)
def test_a_damaged_or_hostile_file_is_refused(tmp_path: Path, change) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "scores.bin"
    path.write_bytes(change(encode_scores(table())))
    with pytest.raises(FormatError, match="no score file, or a damaged one"):
        read_scores(str(path))
