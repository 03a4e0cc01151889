"""The text format of Prometheus: literally, and read back by a strict reader."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tamis.observe.metrics.exposition import MetricFamily, number, render
from tamis.terminal import printable
from tests.support.strict_exposition import parse


def test_families_as_text() -> None:
    read = MetricFamily("tamis_documents_total", "Documents.").add(3, {"state": "read"}).add(2, {"state": "written"})
    level = MetricFamily("tamis_pressure_level", "How much\nit presses: \\o/").add(0)
    assert render([read, level]) == (
        "# HELP tamis_documents_total Documents.\n"
        "# TYPE tamis_documents_total counter\n"
        'tamis_documents_total{state="read"} 3\n'
        'tamis_documents_total{state="written"} 2\n'
        "# HELP tamis_pressure_level How much\\nit presses: \\\\o/\n"
        "# TYPE tamis_pressure_level gauge\n"
        "tamis_pressure_level 0\n"
    )


def test_labels_are_escaped() -> None:
    family = MetricFamily("tamis_x", "x").add(1, {"stage": 'a"b\\c\nd\re', "other": ""})
    assert render([family]).splitlines()[2] == 'tamis_x{stage="a\\"b\\\\c\\nd\\\\re",other=""} 1'


def test_what_is_not_known_is_left_out() -> None:
    assert render([MetricFamily("tamis_x", "x").add(None), MetricFamily("tamis_y", "y")]) == ""


def test_long_names_are_cut_and_half_characters_replaced() -> None:
    family = MetricFamily("tamis_x", "x").add(1, {"a": "x" * 500}).add(2, {"a": "\udcff"})
    assert parse(render([family])) == {"tamis_x": {(("a", "x" * 199 + "…"),): 1.0, (("a", "?"),): 2.0}}


def test_names_that_become_the_same_count_once() -> None:
    family = MetricFamily("tamis_x", "x").add(1, {"a": "x" * 500}).add(2, {"a": "x" * 501})
    assert parse(render([family])) == {"tamis_x": {(("a", "x" * 199 + "…"),): 2.0}}


def test_numbers() -> None:
    assert [number(v) for v in (7, 2**70, True, 0.1, -1.5e-9, math.inf, -math.inf, math.nan)] == [
        "7",
        "1180591620717411303424",
        "1",
        "0.1",
        "-1.5e-09",
        "+Inf",
        "-Inf",
        "NaN",
    ]


def test_a_counter_says_so_in_its_name() -> None:
    assert [MetricFamily(name, "x").kind for name in ("tamis_x_total", "tamis_x")] == ["counter", "gauge"]
    with pytest.raises(AssertionError):
        MetricFamily("9x", "x")


@given(
    st.dictionaries(st.text(max_size=20), st.floats(allow_nan=False) | st.integers(), max_size=8), st.text(min_size=1)
)
def test_whatever_a_stage_is_called_the_text_can_be_read(values: dict[str, float], said: str) -> None:
    family = MetricFamily("tamis_x", said.replace("\r", " "))
    for name, value in values.items():
        family.add(value, {"stage": name})
    if not values:
        return
    read = parse(render([family]))["tamis_x"]
    plain = {printable(k.encode("utf-8", "replace").decode(), keep="\n"): float(v) for k, v in values.items()}
    assert read == {(("stage", k),): v for k, v in plain.items()}
