"""Terminal output: data cannot steer the terminal."""

from __future__ import annotations

import json

import pytest

from tamis.cli.show import bar, print_json, print_lines, print_table, printable


def test_control_characters_and_markup_are_text(capsys: pytest.CaptureFixture[str]) -> None:
    print_table("T [red]", ["a [b]x[/b]"], [["[bold]x[/bold]"], ["\x1b[31mred\n\ud800"]])
    print_lines(["[/nonsense] \x07"])
    out = capsys.readouterr().out
    assert "[bold]x[/bold]" in out
    assert "\\x1b[31mred\\n\\ud800" in out
    assert "[/nonsense] \\x07" in out
    assert "T [red]" in out
    assert "\x1b" not in out


def test_long_lines_are_not_cut(capsys: pytest.CaptureFixture[str]) -> None:
    print_lines(["x" * 500])
    assert capsys.readouterr().out == "x" * 500 + "\n"


def test_json_of_odd_text_is_ascii(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"a": "\ud800é"})
    out = capsys.readouterr().out
    assert out.isascii()
    assert json.loads(out) == {"a": "\ud800é"}


def test_bars() -> None:
    assert [bar(share, 8) for share in (0, 0.001, 0.25, 1)] == ["", "▏", "██", "████████"]
    assert printable("é 漢") == "é 漢"
