"""Terminal output: data cannot steer the terminal."""

from __future__ import annotations

import io
import json

import pytest

from tamis.cli.terminal.show import bar, print_folded, print_json, print_lines, print_table, table_lines
from tamis.terminal import LiveLine, Screen, cells, is_terminal, printable, styled


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


def test_figures_are_folded_between_words(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    lines = ["output       about 10.6 MB in /a/folder; 64.6 GB free", "", "from one earlier run of this pipeline"]
    print_folded(lines)
    assert capsys.readouterr().out.splitlines() == lines  # a file or a pipe
    monkeypatch.setattr("tamis.cli.terminal.show.is_terminal", lambda stream: True)
    monkeypatch.setattr("tamis.cli.terminal.show.width_of", lambda stream: 34)
    print_folded(lines)
    assert capsys.readouterr().out.splitlines() == [
        "output       about 10.6 MB in",
        "             /a/folder; 64.6 GB",
        "             free",
        "",
        "from one earlier run of this",
        "pipeline",
    ]


def test_json_of_odd_text_is_ascii(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"a": "\ud800é"})
    out = capsys.readouterr().out
    assert out.isascii()
    assert json.loads(out) == {"a": "\ud800é"}


def test_bars() -> None:
    assert [bar(share, 8) for share in (0, 0.001, 0.25, 1)] == ["", "▏", "██", "████████"]
    assert printable("é 漢") == "é 漢"


def test_wide_cells_are_folded_and_short_ones_stay_whole(capsys: pytest.CaptureFixture[str]) -> None:
    print_table("Files", ["path", "n"], [["/a" * 120, "1,234"], ["日本", "5"]], right=(1,))
    title, blank, *lines, last = capsys.readouterr().out.splitlines()
    assert (title, blank, last) == ("Files", "", "")
    assert max(map(cells, lines)) <= 160
    assert "".join(line.split()[0] for line in lines[2:4]) == "/a" * 120
    assert lines[2].endswith("1,234")
    assert lines[-1] == " 日本" + " " * (cells(lines[2]) - 6) + "5"


def test_an_old_locale_gets_question_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written, encoding="ascii", write_through=True))
    print_table("Größe", ["a"], [["漢"]])
    assert written.getvalue() == b"Gr??e\n\n a\n ??\n ?\n\n"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_live_line_is_cut_and_cleared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    assert is_terminal(stream)
    line = LiveLine(stream)
    line.show("x" * 50)
    line.above("a note")
    line.close()
    shown = "x" * 18 + "…"
    assert stream.getvalue() == f"\r\x1b[2K{shown}\r\x1b[2K\x1b[1ma note\x1b[0m\n{shown}\r\x1b[2K"
    monkeypatch.setenv("TERM", "dumb")
    assert not is_terminal(stream)


def test_a_screen_shows_what_fits_and_gives_the_terminal_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "10")
    monkeypatch.setenv("LINES", "4")
    stream = Terminal()

    def interrupted() -> None:
        with Screen(stream) as screen:
            screen.show([f"line {i} of many" for i in range(9)])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    told = stream.getvalue()
    assert told.startswith("\x1b[?1049h")
    assert told.endswith("\x1b[?1049l")
    assert [f"line {i} of…" in told for i in range(5)] == [True, True, True, False, False]


def test_names_are_never_broken_at_80_columns() -> None:
    long = "gopher_quality: too_few_stop_words_of_the_language_of_the_document"
    rows = [(long, "1,234", "5 MB", "a-document-with-a-long-name-1, a-document-with-a-long-name-2")]
    lines = table_lines(["rule", "documents", "bytes", "for example"], rows, [1, 2], 80)
    assert max(map(len, lines)) <= 80
    words = [word for line in lines for word in line.split()]
    assert {w for cell in rows[0] for w in cell.split()} <= set(words)


def test_color_is_for_terminals_that_want_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert styled("error:", "red", Terminal()) == "\x1b[1;31merror:\x1b[0m"
    assert styled("error:", "red", io.StringIO()) == "error:"
    monkeypatch.setenv("NO_COLOR", "1")
    assert styled("error:", "red", Terminal()) == "error:"
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert styled("error:", "red", Terminal()) == "error:"


def test_a_long_path_folds_what_follows_and_no_reason() -> None:
    row = ["/" + "x" * 89, "493,890", "43", "bytes", "not valid JSON", "", '{"id": "broken", "text": "not closed}']
    columns = ["file", "offset", "length", "unit", "reason", "stage", "begins with"]
    lines = table_lines(columns, [row], [1, 2], 160)
    assert any("not valid JSON" in line for line in lines)
    assert max(map(len, lines)) <= 160
