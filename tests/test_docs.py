"""The documentation is true: code blocks and recipes run, the reference is current, odd records are as listed."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tamis.recipe.load import RECIPE_SETTINGS, TOP_LEVEL
from tests.stages.text.tokens import small_tokenizers
from tests.support.run_dirs import run_dir_path
from tests.support.warm_python import run_python

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])  # CONTRIBUTING.md: test_contributing.py
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def run(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = run_python(*args, cwd=cwd, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def blocks(page: Path, language: str) -> list[str]:
    return [text for kind, text in _BLOCK.findall(page.read_text(encoding="utf-8")) if kind == language]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    lines = [json.dumps({"id": i, "text": "word " * i}) for i in range(10)]
    (tmp_path / "data/a.jsonl").write_text("\n".join(lines) + "\n")
    (tmp_path / "data/b.jsonl").write_text(
        '{"id": 10, "text": null}\n{"id": 11, "text": "the last one of these documents"}\n'
    )
    return tmp_path


# What a block shows -> the package of an extra that it needs. There is not one for every Python.
NEEDS = {"import torch\n": "torch", 'lang="ja"': "MeCab", "from tokenizers import": "tokenizers"}
# Each is a program of its own; libraries are loaded once for all of a page.
IN_ORDER = """
import runpy, sys
for program in sys.argv[1:]:
    runpy.run_path(program, run_name="__main__")
"""


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_code_and_recipes_of_a_page_run(page: Path, place: Path) -> None:
    modules, programs, left_out = [], [], []
    if page.name == "choose.md" and find_spec("tokenizers"):
        small_tokenizers.save(place / "models/llama3")
    for i, code in enumerate(blocks(page, "python")):
        name = re.match(r"# ([\w/]+)\.py\n", code)
        if name is not None:  # a module that what follows on the page uses
            (place / name[1]).parent.mkdir(exist_ok=True)
            (place / f"{name[1]}.py").write_text(code)
            modules += [] if "/" in name[1] else [name[1]]
            continue
        missing = [f"{name} (block {i})" for sign, name in NEEDS.items() if sign in code and not find_spec(name)]
        if missing:
            left_out += missing
            continue
        (place / f"block{i}.py").write_text(code)
        programs.append(f"block{i}.py")
    if programs:
        (place / "in_order.py").write_text(IN_ORDER)
        run("in_order.py", *programs, cwd=place)
    for recipe in blocks(page, "yaml"):
        name = re.match(r"# (\w+\.yaml)\n", recipe)
        assert name is not None, "the first line of a recipe in the docs names its file"
        if "models/" in recipe and not (place / "models").exists():
            left_out.append("tokenizers (a recipe)")
            continue
        (place / name[1]).write_text(recipe)
        allowed = [part for module in modules for part in ("--allow-module", module)]
        done = run("-m", "tamis.cli.start", "run", name[1], "--json", *allowed, cwd=place)
        assert json.loads(done.stdout)["status"] == "finished"
    if left_out:
        pytest.skip(f"parts of {page.name} need what is not installed: {', '.join(left_out)}; the others ran")


def commands_of(page: Path) -> list[list[str]]:
    """Return the words after `tamis` of every command in the shell blocks of a page."""
    found: list[list[str]] = []
    for line in "".join(blocks(page, "bash")).replace("s3://", "bucket/").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        command: list[str] = []
        for word in [*lexer, ";"]:
            if set(word) <= set(";&|<>"):
                found += [command[1:]] if command[:1] == ["tamis"] else []
                command = []
            elif command or not re.match(r"[A-Z_]+=", word):
                command.append(word)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_commands_of_a_page_have_the_options_that_it_shows(page: Path) -> None:
    from tamis.cli.main import app
    from tamis.cli.parsing.arguments import Command

    for words in commands_of(page):
        if words[0] == "--version":
            continue
        member, rest = app[words[0]], words[1:]
        if words[0] == "merge":
            member, rest = app[words[1]], words[2:]
        if not isinstance(member, Command):
            name = rest.pop(0) if rest[0] in member else member.fallback
            member = member[name]
        assert isinstance(member, Command)
        member.read(rest)  # raises Misuse for what the command does not have


EXAMPLES = {
    "own_stage.py": "count words: 12 in, 12 out\ntoo few words: 12 in, 7 out\nfinished: 7 documents in",
    "notebook.py": "[{'text': ''}, {'text': 'WORD '}, {'text': 'WORD WORD '}]\n12 documents, already\n",
    "in_process.py": "12 documents written\n",
}


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_examples_run_as_they_are_in_any_folder(name: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "alone.py").write_text((ROOT / "examples" / name).read_text())  # it needs no file beside it
    assert EXAMPLES[name] in run(str(tmp_path / "alone.py"), cwd=tmp_path / "empty").stdout
    assert list((tmp_path / "empty").iterdir()) == []


def test_an_example_takes_data_of_ones_own(place: Path) -> None:
    printed = run(str(ROOT / "examples/own_stage.py"), "data", "words", cwd=place).stdout
    assert "too few words: 12 in, 6 out" in printed
    assert list((place / "words").glob("part-*"))


def test_every_example_is_tested() -> None:
    assert sorted(p.name for p in (ROOT / "examples").glob("*.py")) == sorted(EXAMPLES)


# Others are for images (tests/cli/test_images.py), videos (tests/stages/video) and crawls
# (tests/curation/test_web_preset.py).
OTHERS = ("images-", "video-", "fineweb")
SHIPPED = sorted(p.stem for p in (ROOT / "src/tamis/recipe/presets").glob("*.yaml") if not p.stem.startswith(OTHERS))


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_recipes_run(name: str, place: Path) -> None:
    options = ["--set", "input=data", "--set", "output=out", "--memory", "512MB", "--json"]
    if name == "tokenize":
        pytest.importorskip("tokenizers")
        small_tokenizers.save(place / "tok")
        options += ["--set", "write.tokens.tokenizer=tok"]
    about = json.loads(run("-m", "tamis.cli.start", "run", name, *options, cwd=place).stdout)
    assert about.get("n_records", about.get("n_documents")) == 12
    assert name not in ("copy", "to_parquet") or about["n_written"] == 12


@pytest.mark.parametrize("name", ["cli", "stages", "exit-codes", "environment", "metrics"])
def test_the_reference_is_up_to_date(name: str) -> None:
    from tamis.cli.reference import GENERATED_PAGES

    page = (ROOT / f"docs/reference/{name}.md").read_text(encoding="utf-8")
    assert page == GENERATED_PAGES[name](), "run: python -m tamis.cli.reference docs"


def test_every_exception_has_an_exit_code_with_a_meaning() -> None:
    from tamis import errors

    codes = {v.exit_code for v in vars(errors).values() if isinstance(v, type) and issubclass(v, errors.TamisError)}
    assert codes | {0, 130} == set(errors.EXIT_CODES)


def test_every_environment_variable_is_on_its_page() -> None:
    from tamis.cli import environment

    declarations = Path(environment.__file__)
    code = [ROOT / "hatch_build.py", *(p for p in (ROOT / "src").rglob("*.py") if p.name != "reference.py")]
    named = {
        name
        for path in code
        if path != declarations
        for name in re.findall(r"\bTAMIS_[A-Z_]+", path.read_text(encoding="utf-8"))
    }
    assert {v.name for v in environment.VARIABLES} | set(environment.INTERNAL) == named


def test_the_table_of_settings_is_that_of_their_declarations() -> None:
    from tamis.cli.reference import with_settings

    page = (ROOT / "docs/reference/recipes.md").read_text(encoding="utf-8")
    assert page == with_settings(page), "run: python -m tamis.cli.reference docs"


def test_every_field_and_setting_of_a_recipe_is_on_their_page() -> None:
    page = (ROOT / "docs/reference/recipes.md").read_text(encoding="utf-8")
    listed = {
        name for row in re.findall(r"^\| (`[^|]+) \|", page, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)
    }
    assert listed == {*TOP_LEVEL, "input", "output", *RECIPE_SETTINGS, "schema"}


def test_readme() -> None:
    from tamis.cli.main import app

    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 150
    for name in app:
        assert f"`tamis {name}" in text


# The tables of docs/reference/formats.md: record, what JSONL output holds (or the reason in quarantine), the Parquet
# type and
# value.
ODD = [
    (b'{"x": NaN}\n', b'{"x": NaN}\n', "double", None),
    (b'{"x": -Infinity}\n', b'{"x": -Infinity}\n', "double", float("-inf")),
    (b'{"x": 1e999}\n', b'{"x": 1e999}\n', "double", float("inf")),
    (b'{"x": 0.10000000000000000555}\n', b'{"x": 0.10000000000000000555}\n', "double", 0.1),
    (b'{"x": 18446744073709551615}\n', b'{"x": 18446744073709551615}\n', "uint64", 18446744073709551615),
    (b'{"x": 18446744073709551616}\n', b'{"x": 18446744073709551616}\n', "large_string", "18446744073709551616"),
    (b'{"x": "\\ud800"}\n', b'{"x": "\\ud800"}\n', "large_string", "\ufffd"),
    (b'{"x": "\\u0000"}\n', b'{"x": "\\u0000"}\n', "large_string", "\0"),
    (b'{"x": 1, "x": 2}\n', b'{"x": 1, "x": 2}\n', "int64", 2),
    (b'\xef\xbb\xbf{"x": 1}\r\n\r\n', b'{"x": 1}\n', "int64", 1),
    (b'{"x": 1}', b'{"x": 1}\n', "int64", 1),
    (b' {"x" : 1 } \n', b' {"x" : 1 } \n', "int64", 1),
    (b'{"x": "\xff"}\n', "not valid UTF-8", None, None),
    (b'{"x": "\xed\xa0\x80"}\n', "not valid UTF-8", None, None),
    (b'{"x": "\xc0\xaf"}\n', "not valid UTF-8", None, None),
    (b'{"x": ' + b"[" * 1200 + b"]" * 1200 + b"}\n", "nested deeper than 1000 levels", None, None),
    (b"[1]\n", "valid JSON, but not an object", None, None),
    (b'{"x": 1} // why\n', "not valid JSON", None, None),
    (b'{"x": 1,}\n', "not valid JSON", None, None),
    (b'{"x": 01}\n', "not valid JSON", None, None),
    (b'{"x": "a\tb"}\n', "not valid JSON", None, None),
    (b'{"x": 1} {"x": 2}\n', "not valid JSON", None, None),
    (b'{"x": 1}\n{"x": 2.5}\n', b'{"x": 1}\n{"x": 2.5}\n', "double", 1.0),
    (
        b'{"x": 9007199254740993}\n{"x": 2.5}\n',
        b'{"x": 9007199254740993}\n{"x": 2.5}\n',
        "large_string",
        "9007199254740993",
    ),
    (b'{"x": 1.0}\n{"x": "a"}\n', b'{"x": 1.0}\n{"x": "a"}\n', "large_string", "1"),
    (b'{"x": true}\n{"x": "a"}\n', b'{"x": true}\n{"x": "a"}\n', "large_string", "true"),
    (
        b'{"x": {"a": 1}}\n{"x": {"b": "q"}}\n',
        b'{"x": {"a": 1}}\n{"x": {"b": "q"}}\n',
        "struct<a: int64, b: large_string>",
        {"a": 1, "b": None},
    ),
    (b'{"x": [1]}\n{"x": [2.5]}\n', b'{"x": [1]}\n{"x": [2.5]}\n', "list<element: double>", [1.0]),
    (
        b'{"x": {"b": 1, "a": 2}}\n{"x": [1]}\n',
        b'{"x": {"b": 1, "a": 2}}\n{"x": [1]}\n',
        "large_string",
        '{"a":2,"b":1}',
    ),
    (b'{"x": null}\n{}\n', b'{"x": null}\n{}\n', "null", None),
]


@pytest.mark.parametrize(("raw", "expected", "kind", "value"), ODD, ids=range(len(ODD)))
def test_odd_records(raw: bytes, expected: bytes | str, kind: str | None, value: object, tmp_path: Path) -> None:
    from tamis import InProcessExecutor, Pipeline
    from tamis.observe.quarantine import read_entries
    from tamis.stages.text.io.reader import JsonlReader
    from tamis.stages.text.io.writer import JsonlWriter, ParquetWriter

    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.jsonl").write_bytes(raw)
    for writer in (JsonlWriter(str(tmp_path / "jsonl")), ParquetWriter(str(tmp_path / "parquet"))):
        Pipeline("odd", stages=[JsonlReader(str(tmp_path / "in")), writer]).execute(
            InProcessExecutor(), quarantine_limit="100%"
        )
    files = sorted((tmp_path / "jsonl").glob("*.jsonl"))
    if isinstance(expected, str):
        assert b"".join(f.read_bytes() for f in files) == b""
        assert [e.reason for e in read_entries(run_dir_path(tmp_path / "jsonl") / "quarantine")] == [expected]
        return
    assert b"".join(f.read_bytes() for f in files) == expected
    table = pq.read_table(next((tmp_path / "parquet").glob("*.parquet")))
    assert str(table.schema.field("x").type) == kind
    if b"NaN" not in raw:
        assert table.column("x")[0].as_py() == value


def test_added_fields_absent_and_null(tmp_path: Path) -> None:
    from tamis import InProcessExecutor, Pipeline, processing_stage
    from tamis.stages.text.io.reader import JsonlReader
    from tamis.stages.text.io.writer import JsonlWriter

    @processing_stage(name="add")
    def add(batch):  # type: ignore[no-untyped-def]
        return batch.with_column("y", [None, 5, None][: batch.num_items])

    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.jsonl").write_text('{"x": 1}\n{ "x": null }\n{"z": 1}\n')
    Pipeline("add", stages=[JsonlReader(str(tmp_path / "in")), add, JsonlWriter(str(tmp_path / "out"))]).execute(
        InProcessExecutor()
    )
    assert next((tmp_path / "out").glob("*.jsonl")).read_text() == '{"x": 1}\n{ "x": null ,"y":5}\n{"z": 1}\n'


# Runs the cells of a notebook as a kernel does: in one namespace that is `__main__`, without a file of their own.
CELLS = """
import json, linecache, sys
for number, cell in enumerate(json.load(open(sys.argv[1]))["cells"]):
    if cell["cell_type"] == "code":
        source, name = "".join(cell["source"]), f"<cell {number}>"
        linecache.cache[name] = (len(source), None, source.splitlines(True), name)
        exec(compile(source, name, "exec"))
"""
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda p: p.name)
def test_notebooks_run(notebook: Path, tmp_path: Path) -> None:
    content = json.loads(notebook.read_text(encoding="utf-8"))
    assert content["nbformat"] == 4
    printed = run("-c", CELLS, str(notebook), cwd=tmp_path).stdout
    shown = [line for cell in content["cells"] for out in cell.get("outputs", []) for line in out["text"]]
    assert shown, "the notebook is stored with what it prints"
    assert "already" in printed  # the cell that runs again repeats no work
    assert (tmp_path / "notebook-output").is_dir()


def test_there_is_a_notebook() -> None:
    assert NOTEBOOKS
