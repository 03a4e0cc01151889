"""What is typed, read by the signatures of commands; and the help that is made of them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import pytest

from tamis.cli.parsing.arguments import Argument, Command, Commands, Misuse, Option
from tamis.cli.parsing.help import command_help, group_help


def sieve(
    source: Annotated[str, Argument(metavar="IN", help="What to read.")],
    target: Annotated[Path | None, Argument(metavar="OUT", help="Where to.")] = None,
    memory: Annotated[str | None, Option(help="The budget.")] = None,
    workers: Annotated[int | None, Option(min=1, help="How many.")] = None,
    share: Annotated[float, Option(min=0, max=1, help="How much.")] = 0.5,
    mode: Annotated[Literal["fast", "slow"] | None, Option(help="How.")] = None,
    set_: Annotated[list[str] | None, Option("--set", metavar="KEY=VALUE", help="Set something.")] = None,
    quiet: Annotated[bool, Option("--quiet", "-q", help="Say nothing.")] = False,
    open_: Annotated[bool, Option("--open/--no-open", help="Open it.")] = True,
) -> None:
    """Sieve what is in a file
    or in many.

    Second paragraph.

    Example: tamis sieve a b
    """  # noqa: D205 - a summary of two lines is what is tested


def several(
    paths: Annotated[list[str], Argument(metavar="PATHS", help="Any number.")],
    last: Annotated[str, Argument(help="The last one.")],
) -> None:
    """Many and one."""


SIEVE, SEVERAL = Command("tamis sieve", sieve), Command("tamis several", several)


def read(*typed: str) -> dict[str, Any]:
    """Return the values that were typed, without defaults."""
    values, nothing = SIEVE.read(typed), SIEVE.read(["x"])
    return {name: value for name, value in values.items() if value != nothing[name]} | {"source": values["source"]}


def test_defaults() -> None:
    assert SIEVE.read(["a"]) == {
        "source": "a",
        "target": None,
        "memory": None,
        "workers": None,
        "share": 0.5,
        "mode": None,
        "set_": None,
        "quiet": False,
        "open_": True,
    }


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("a b", {"source": "a", "target": Path("b")}),
        (
            "--memory 1GB a --workers=3 b -q",
            {"source": "a", "target": Path("b"), "memory": "1GB", "workers": 3, "quiet": True},
        ),
        ("a --set x=1 --set=y=2", {"source": "a", "set_": ["x=1", "y=2"]}),
        ("a --no-open", {"source": "a", "open_": False}),
        ("a --open", {"source": "a"}),
        ("a --mode slow --share 0.25", {"source": "a", "mode": "slow", "share": 0.25}),
        ("a -- --quiet", {"source": "a", "target": Path("--quiet")}),
        ("-5", {"source": "-5"}),
        ("a --memory=", {"source": "a", "memory": ""}),
        ("a --memory -1", {"source": "a", "memory": "-1"}),
        ("-", {"source": "-"}),
    ],
)
def test_reading(typed: str, expected: dict[str, Any]) -> None:
    assert read(*typed.split()) == expected


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("", "IN is missing"),
        ("a b c", "one argument too many: 'c'"),
        ("a --memroy 1", "no such option: --memroy; did you mean --memory?"),
        ("a --quiet=1", "--quiet takes no value, got '1'"),
        ("a --memory", "--memory: expected TEXT, got nothing"),
        ("a --memory --quiet", "--memory: expected TEXT, got --quiet"),
        ("a --workers 0", "--workers: expected a whole number of 1 or more, got '0'"),
        ("a --workers two", "--workers: expected a whole number of 1 or more, got 'two'"),
        ("a --share nan", "--share: expected a number from 0 to 1, got 'nan'"),
        ("a --mode quick", "--mode: expected fast or slow, got 'quick'"),
        ("a -x", "no such option: -x"),
    ],
)
def test_mistakes_say_what_was_expected(typed: str, message: str) -> None:
    with pytest.raises(Misuse) as caught:
        SIEVE.read(typed.split())
    assert str(caught.value) == message


@pytest.mark.parametrize("typed", ["inf", "-inf", "nan", "1e999"])
def test_a_number_is_a_finite_one(typed: str) -> None:
    def wait(seconds: Annotated[float, Option(min=0.1, help="How long.")] = 1.0) -> None:
        """Wait."""

    with pytest.raises(Misuse, match=rf"--seconds: expected a number of 0.1 or more, got '{typed}'"):
        Command("tamis wait", wait).read([f"--seconds={typed}"])


def test_a_whole_number_may_be_too_long_for_a_float() -> None:
    assert SIEVE.read(["a", "--workers", "9" * 320])["workers"] == int("9" * 320)


def test_an_argument_that_takes_many_leaves_the_others_theirs() -> None:
    assert SEVERAL.read(["a", "b", "c"]) == {"paths": ["a", "b"], "last": "c"}
    with pytest.raises(Misuse, match="PATHS is missing"):
        SEVERAL.read(["c"])


def group() -> Commands:
    commands = Commands("tamis", help="All of it.")
    commands.command("sieve")(sieve)
    commands.command("several")(several)
    return commands


def test_help_of_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    assert command_help(SIEVE).splitlines() == [
        "usage: tamis sieve [OPTIONS] IN [OUT]",
        "",
        "  Sieve what is in a file or in many.",
        "",
        "  Second paragraph.",
        "",
        "  Example: tamis sieve a b",
        "",
        "Arguments:",
        "  IN   What to read.",
        "  OUT  Where to.",
        "",
        "Options:",
        "  --memory TEXT       The budget.",
        "  --workers NUMBER    How many.",
        "  --share NUMBER      How much. Default: 0.5.",
        "  --mode fast|slow    How.",
        "  --set KEY=VALUE     Set something.",
        "  -q, --quiet         Say nothing.",
        "  --open / --no-open  Open it.",
        "  -h, --help          Show this page.",
    ]


def test_help_of_a_group(capsys: pytest.CaptureFixture[str]) -> None:
    text = group_help(group())
    assert "  sieve    Sieve what is in a file or in many.\n  several  Many and one.\n" in text
    assert "--version" in text
    for typed in ([], ["--help"], ["-h"]):
        group()(typed)
        assert capsys.readouterr().out == text + "\n"


def test_an_unknown_command_names_similar_ones() -> None:
    with pytest.raises(Misuse, match="no such command: seive; did you mean sieve"):
        group()(["seive"])
    with pytest.raises(Misuse, match="no such option: --sieve") as caught:
        group()(["--sieve"])
    assert caught.value.usage == "tamis COMMAND [OPTIONS] ..."


def test_a_group_may_mean_one_command_by_default(capsys: pytest.CaptureFixture[str]) -> None:
    commands = Commands("tamis", help="", fallback="sieve")
    commands.command("sieve")(lambda: None)
    seen: list[Any] = []

    def sieve(source: Annotated[str, Argument(help="x")]) -> None:
        seen.append(source)

    commands.command("sieve")(sieve)
    commands(["data"])
    assert seen == ["data"]
    commands(["--help"])
    assert "Commands:" in capsys.readouterr().out
