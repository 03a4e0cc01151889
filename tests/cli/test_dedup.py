"""`tamis dedup`, and recipes with a workflow."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_runner import CliRunner
from command import tamis

from tamis.cli.main import app


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    words = [f"word{i}" for i in range(60)]
    near = [*words[:30], "changed", *words[31:]]
    docs = [" ".join(words), " ".join(near), " ".join(words), "something else entirely, and on its own"]
    (folder / "a.jsonl").write_text("".join(json.dumps({"id": i, "text": t}) + "\n" for i, t in enumerate(docs)))
    return folder


def ids(folder: Path) -> list[int]:
    return [json.loads(line)["id"] for p in sorted(folder.glob("*.jsonl")) for line in p.read_text().splitlines()]


def run(*arguments: object) -> tuple[int, str]:
    told = tamis(*arguments)
    return told.exit_code, told.output


def test_exact_and_fuzzy(source: Path, tmp_path: Path) -> None:
    code, said = run("dedup", "exact", source, tmp_path / "exact", "--memory", "512MB", "--max-source-loss", "100%")
    assert code == 0, said
    assert ids(tmp_path / "exact") == [0, 1, 3]
    assert "duplicates" in said
    assert (tmp_path / "exact" / "_tamis" / "report.html").exists()
    code, said = run(
        "dedup", "fuzzy", source, tmp_path / "fuzzy", "--memory", "512MB", "--threshold", "0.6", "--bands", "40",
        "--rows", "3", "--json", "--keep", "first",
    )  # fmt: skip
    assert code == 0, said
    about = json.loads(said)
    assert ids(tmp_path / "fuzzy") == [0, 3]
    assert (about["n_documents"], about["n_equal"], about["n_similar"]) == (4, 1, 1)
    assert about["duplicates"] == str(tmp_path / "fuzzy" / "_tamis" / "duplicates")
    code, said = run("dedup", "exact", source, tmp_path / "exact", "--memory", "512MB")
    assert (code, "finished earlier" in said) == (0, True)
    code, said = run("resume", tmp_path / "exact")
    assert (code, "run the same command again" in said) == (2, True)


def test_a_plan_writes_nothing(source: Path, tmp_path: Path) -> None:
    code, said = run("dedup", "fuzzy", source, tmp_path / "out", "--plan", "--memory", "1GB")
    assert code == 0, said
    assert "8 bytes x hashes x documents x bands per pass / bands" in said
    assert not (tmp_path / "out").exists()
    code, said = run("dedup", "exact", source, tmp_path / "out", "--plan", "--json", "--memory", "1GB")
    assert json.loads(said)["n_documents"] == 4
    assert not (tmp_path / "out").exists()


def test_a_plan_looks_at_the_scratch_folder_and_says_sizes_that_can_be_read(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "small").mkdir()
    monkeypatch.setattr("tamis.dedup.planning.free_at", lambda folder: 700 if str(folder).endswith("small") else 10**12)

    def here(*arguments: object) -> tuple[int, str]:
        told = CliRunner().invoke(app, [*map(str, arguments), "--memory", "1GB"])
        return told.exit_code, " ".join(told.output.split())

    where = ("--scratch", tmp_path / "small")
    for command in (("dedup", "fuzzy", source, tmp_path / "out", "--plan"), ("plan", "dedup", "fuzzy", source)):
        code, said = here(*command, *where)
        assert code == 4
        assert "keys of about 4 documents need 704 B of free disk at least, there are 700 B" in said
    code, said = here("dedup", "exact", source, tmp_path / "out", "--plan", *where)
    assert (code, f"in {tmp_path / 'small'}; 700 B free" in said) == (0, True)
    code, said = here("dedup", "fuzzy", source, tmp_path / "out", "--plan")
    assert (code, "1 TB free" in said) == (0, True)


def test_recipes_with_a_workflow(source: Path, tmp_path: Path) -> None:
    sets = ["--set", f"input={source}", "--set", f"output={tmp_path / 'out'}", "--memory", "512MB"]
    code, said = run("plan", "dedup_fuzzy", *sets)
    assert (code, "about 4" in said) == (0, True)
    code, said = run("run", "dedup_exact", *sets)
    assert code == 0, said
    assert ids(tmp_path / "out") == [0, 1, 3]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--normalize", "lower"], "normalize_text must be"),
        (["--keep", "best"], "goes with keep_by"),
        (["--max-source-loss", "200%"], "max_source_loss"),
    ],
)
def test_mistakes_are_one_line(source: Path, tmp_path: Path, more: list[str], message: str) -> None:
    code, said = run("dedup", "exact", source, tmp_path / "out", *more)
    assert code == 2
    assert message in said
    assert "Traceback" not in said


def test_input_that_is_not_there(tmp_path: Path) -> None:
    code, said = run("dedup", "exact", tmp_path / "nowhere", tmp_path / "out", "--memory", "512MB")
    assert code == 2
    assert "nowhere" in said


@pytest.mark.parametrize("option", [("--pooling", "mean_pooling"), ("--text-field", "body")])
def test_options_for_a_model_are_refused_without_one(option: tuple[str, str], source: Path, tmp_path: Path) -> None:
    code, said = run("dedup", "semantic", source, tmp_path / "out", *option)
    assert (code, f"error: {option[0]} goes with --model" in said) == (2, True)
    assert not (tmp_path / "out").exists()
