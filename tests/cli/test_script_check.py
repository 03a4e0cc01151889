"""Scripts are read, never run: what they use is found, and judged by what is in the package."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tamis.cli.doctor.script_check import DIFFERS, MISSING, WORKS, check_script, find, judge
from tamis.cli.doctor.script_uses import Use, read_script, uses_of
from tamis.cli.main import app
from tamis.errors import UsageError
from tests.support.cli_runner import CliRunner

SCRIPT = """
import os
import nemo_curator.utils.file_utils as fu
from nemo_curator.core.serve import InferenceServer
from nemo_curator.pipeline import Pipeline as P
from nemo_curator.stages.text.io.reader import JsonlReader
from nemo_curator.stages.text.filters.heuristic import WordCountFilter, WordCountFiltre

def main(options):
    with InferenceServer(models=[]) as client:
        client.start()
    pipeline: P = P(name="x", description="y")
    pipeline.add_stage(JsonlReader("in", field=["text"])).add_stage(WordCountFilter(1, 2, "en", 4)).run(memory="1GB")
    pipeline.frob()
    JsonlReader(**options)
    fu.get_all_file_paths_under("x", recurse_subdirectories=True)
    os.path.join("a", nonsense=1)
"""


def test_what_a_script_uses() -> None:
    uses = uses_of(SCRIPT)
    assert [u.path for u in uses if u.kind == "import"] == [
        "tamis.utils.file_utils",
        "tamis.core.serve.InferenceServer",
        "tamis.pipeline.Pipeline",
        "tamis.stages.text.io.reader.JsonlReader",
        "tamis.stages.text.filters.heuristic.WordCountFilter",
        "tamis.stages.text.filters.heuristic.WordCountFiltre",
    ]
    reader, count, client = (
        "tamis.stages.text.io.reader.JsonlReader",
        "tamis.stages.text.filters.heuristic.WordCountFilter",
        "tamis.core.serve.InferenceServer",
    )
    assert [u for u in uses if u.kind != "import"] == [
        Use(10, "call", client, keywords=("models",)),
        Use(11, "method", client, "start"),
        Use(12, "call", "tamis.pipeline.Pipeline", keywords=("name", "description")),
        Use(13, "call", reader, keywords=("field",), n_positional=1),
        Use(13, "method", "tamis.pipeline.Pipeline", "add_stage", n_positional=1),
        Use(13, "call", count, n_positional=4),
        Use(13, "method", "tamis.pipeline.Pipeline", "add_stage", n_positional=1),
        Use(13, "method", "tamis.pipeline.Pipeline", "run", keywords=("memory",)),
        Use(14, "method", "tamis.pipeline.Pipeline", "frob"),
        Use(15, "call", reader, complete=False),
        Use(
            16,
            "call",
            "tamis.utils.file_utils.get_all_file_paths_under",
            keywords=("recurse_subdirectories",),
            n_positional=1,
        ),
    ]


def test_what_is_said_of_it() -> None:
    found = {(f.line, f.what): (f.verdict, f.note) for f in judge(uses_of(SCRIPT))}
    assert found[5, "from tamis.pipeline import Pipeline"] == (WORKS, "")
    assert found[3, "from tamis.utils import file_utils"] == (WORKS, "")
    assert found[4, "from tamis.core.serve import InferenceServer"][0] == MISSING
    assert "serve the model" in found[4, "from tamis.core.serve import InferenceServer"][1]
    assert found[7, "from tamis.stages.text.filters.heuristic import WordCountFiltre"] == (
        MISSING,
        "there is no such name; did you mean tamis.stages.text.filters.heuristic.WordCountFilter?",
    )
    assert found[13, "JsonlReader(field=...)"] == (MISSING, "did you mean fields?")
    assert found[13, "WordCountFilter(...)"] == (
        MISSING,
        "4 arguments by position, and it takes 3: min_words, max_words, lang",
    )
    assert found[14, "Pipeline.frob()"] == (MISSING, "there is no such method")
    assert found[15, "JsonlReader(...)"][0] == DIFFERS
    assert len(found) == 10


def test_the_script_is_not_run(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(
        f"import nemo_curator\nopen({str(tmp_path / 'made')!r}, 'w')\nfrom tamis.tasks import EmptyTask\n"
    )
    assert check_script(script)["counts"] == {WORKS: 2, DIFFERS: 0, MISSING: 0}
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    "path",
    [
        "tamis.cli.start",
        "tamis.engine.run.run",
        "os.path",
        "tamis.stages.__main__",
        "tamis.stages.base.ProcessingStage.__init__",
        "tamis.nonsense",
    ],
)
def test_only_rooms_for_users_are_imported(path: str) -> None:
    assert judge([Use(1, "import", path)])[0].verdict == MISSING


def test_names_of_the_package_itself_and_of_things_in_things() -> None:
    from tamis import Pipeline
    from tamis.stages.base import ProcessingStage

    assert find("tamis.Pipeline") is Pipeline
    assert find("tamis.stages.base.ProcessingStage.process") is ProcessingStage.process
    assert judge(uses_of("from nemo_curator.stages.text.filters import *"))[0].verdict == DIFFERS
    assert uses_of("from .nemo_curator import x\nimport numpy\nfrom nemo_curators import y") == []


def test_notebooks_are_read_too(tmp_path: Path) -> None:
    cells = [
        {"cell_type": "markdown", "source": ["# from nemo_curator import no"]},
        {
            "cell_type": "code",
            "source": ["!pip install x\n", "%matplotlib inline\n", "from nemo_curator.tasks import EmptyTask"],
        },
        {"cell_type": "code", "source": "EmptyTask()"},
    ]
    path = tmp_path / "a.ipynb"
    path.write_text(json.dumps({"cells": cells}))
    assert [(u.line, u.kind) for u in uses_of(read_script(path))] == [(3, "import"), (4, "call")]
    path.write_text("{}")
    with pytest.raises(UsageError, match="this is no notebook"):
        read_script(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def f(:\n", "no Python that can be read in line 1"),
        ("(" * 10_000, "no Python|nested"),
        ("x = 1\0", "no Python"),
    ],
)
def test_what_cannot_be_read_is_reported(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        uses_of(text)


def test_the_command(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(
        "from nemo_curator.pipeline import Pipeline\nfrom nemo_curator.core.serve import InferenceServer\n"
    )
    shown = CliRunner().invoke(app, ["doctor", "--check-script", str(script)])
    assert shown.exit_code == 1
    assert "1 works, 0 differs, 1 missing" in shown.output
    found = json.loads(CliRunner().invoke(app, ["doctor", "--check-script", str(script), "--json"]).output)
    assert [f["verdict"] for f in found["findings"]] == [WORKS, MISSING]
    script.write_text("from nemo_curator.pipeline import Pipeline\n")
    shown = CliRunner().invoke(app, ["doctor", "--check-script", str(script)])
    assert (shown.exit_code, "Replace nemo_curator by tamis" in shown.output) == (0, True)
    script.write_text("import os\n")
    assert (
        "imports nothing of nemo_curator" in CliRunner().invoke(app, ["doctor", "--check-script", str(script)]).output
    )
    assert CliRunner().invoke(app, ["doctor", "--check-script", str(tmp_path / "none.py")]).exit_code != 0


def test_a_recipe_is_checked_like_a_script(tmp_path: Path) -> None:
    recipe = tmp_path / "job.yaml"
    recipe.write_text(
        "input: ${oc.env:DATA}\n"
        "stages:\n"
        "  - _target_: nemo_curator.stages.text.io.reader.JsonlReader\n"
        "    file_paths: data\n"
        "    chunk: 5\n"
        "  - _target_: nemo_curator.stages.audio.common.GetAudioDurationStage\n"
        "  - _target_: nemo_curator.stages.text.io.writer.JsonlWriter\n"
        "    path: data/clean\n"
    )
    found = check_script(recipe)["findings"]
    assert [(f["line"], f["verdict"]) for f in found] == [
        (3, "works"), (3, "missing"), (6, "missing"), (7, "works"), (7, "differs"),
    ]  # fmt: skip
    assert found[1]["what"] == "JsonlReader(chunk=...)"
    assert "audio is not here" in found[2]["note"]
    assert "data/clean is inside the input data" in found[4]["note"]
    recipe.write_text("stages: [")
    with pytest.raises(UsageError, match="this is no YAML"):
        check_script(recipe)


def findings_of(code: str) -> dict[tuple[int, str], tuple[str, str]]:
    return {(f.line, f.what): (f.verdict, f.note) for f in judge(uses_of(code)) if f.verdict != WORKS}


def test_names_end_with_what_binds_them() -> None:
    code = """
from nemo_curator.pipeline import Pipeline
from nemo_curator.stages.text.io.reader import JsonlReader
p = Pipeline("x")
print([p for p in "Ab" if p.isupper()], {p: p.lower() for p in "A"}, lambda p: p.strip())
def shadowed(p, JsonlReader):
    p.anything()
    JsonlReader(field=1)
for reader, p in []:
    p.anything()
class Job:
    def __init__(self):
        self.pipeline = Pipeline("y")
    def go(self):
        self.pipeline.go(), self.other.go()
def unrelated():
    p = Pipeline("z")
    p.nothing()
class JsonlReader:
    pass
JsonlReader(field=1)
Alias = Pipeline
Alias(nothing=1)
"""
    assert set(findings_of(code)) == {(15, "Pipeline.go()"), (18, "Pipeline.nothing()"), (23, "Pipeline(nothing=...)")}


def test_settings_of_a_run_are_checked() -> None:
    code = "from nemo_curator.pipeline import Pipeline\nPipeline('x').run(memory='1GB', memori='1GB')\n"
    assert findings_of(code) == {(2, "Pipeline.run(memori=...)"): (MISSING, "did you mean memory?")}


def test_names_of_earlier_releases_are_located(tmp_path: Path) -> None:
    found = findings_of(
        "from nemo_curator.stages.text.modules import ScoreFilter\n"
        "from nemo_curator.stages.text.filters import UrlsFilter\n"
        "from nemo_curator.utils import prompts\n"
    )
    assert [note for _, note in found.values()] == [
        "it is in another module: from tamis.stages.text.filters import ScoreFilter",
        "it is in another module: from tamis.stages.text.filters.heuristic import UrlsFilter",
        "keep prompts in the script",
    ]
    recipe = tmp_path / "job.yaml"
    recipe.write_text(
        "stages:\n  - _target_: nemo_curator.stages.text.modules.score_filter.ScoreFilter\n    text_field: text\n"
    )
    assert [f["verdict"] for f in check_script(recipe)["findings"]] == [WORKS]


def test_options_that_a_writer_refuses_are_found(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(
        "from nemo_curator.stages.text.io.reader import JsonlReader\n"
        "from nemo_curator.stages.text.io.writer import JsonlWriter\n"
        "JsonlReader('in', read_kwargs={'dtype': {'n': 'int64'}, 'storage_options': {'key': 'k'}, 'orient': 'split'})\n"
        "JsonlWriter('out', write_kwargs={'force_ascii': False, 'date_unit': 's'})\n"
        "JsonlWriter('out', write_kwargs={'force_ascii': flag})\n"
    )
    recipe = tmp_path / "job.yaml"
    recipe.write_text(
        "stages:\n- _target_: nemo_curator.stages.text.io.writer.JsonlWriter\n  path: out\n"
        "  write_kwargs: {force_ascii: true}\n"
    )

    def refused(path: Path) -> list[tuple[int, str]]:
        return [(f["line"], f["what"]) for f in check_script(path)["findings"] if f["verdict"] == MISSING]

    assert refused(script) == [
        (3, "JsonlReader(read_kwargs: orient='split')"),
        (4, "JsonlWriter(write_kwargs: date_unit='s')"),
    ]
    assert refused(recipe) == [(2, "JsonlWriter(write_kwargs: force_ascii=True)")]


def test_paths_inside_each_other() -> None:
    code = """
from nemo_curator.stages.text.io.reader import JsonlReader
from nemo_curator.stages.text.io.writer import JsonlWriter
JsonlReader("first"), JsonlWriter("second")
JsonlReader("second"), JsonlWriter("third")
JsonlReader("a"), JsonlWriter("a/b")
JsonlReader("c/d"), JsonlWriter("c")
JsonlWriter("e", mode="overwrite")
"""
    found = findings_of(code)
    assert {key: note.partition(":")[0] for key, (_, note) in found.items()} == {
        (6, "JsonlWriter('a/b')"): "a/b is inside the input a",
        (7, "JsonlWriter('c')"): "the input c/d is inside the output c",
        (8, "JsonlWriter(mode='overwrite')"): "removes only files that Tamis wrote",
    }


def test_what_behaves_otherwise_is_said_with_the_import(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(
        "from nemo_curator.stages.text.modifiers import MarkdownRemover\n"
        "from nemo_curator.stages.text.io.reader import JsonlReader\n"
        "from nemo_curator.stages.text.io.writer import JsonlWriter\n"
        'JsonlReader("in")\n'
        'JsonlWriter(path="in2/out")\n'
    )
    found = check_script(script)["findings"]
    assert [f["verdict"] for f in found] == ["differs", "works", "works"]
    assert "underscores" in found[0]["note"]
