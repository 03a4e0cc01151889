"""Scripts in the manner of NeMo Curator's documentation, with the one word changed, each checked for its result.

A script is written as its user has it, with `nemo_curator`; here that is replaced by `tamis`, nothing else. All run in
one process and with the executor that works in it, so that the suite stays cheap.
"""

from __future__ import annotations

import json
import re
import shutil
import warnings
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tamis.backends.local import InProcessExecutor
from tamis.stages.text.io.reader.ids import CURRENT

HERE = Path(__file__).parent
SCRIPTS = {
    f"{file.stem}: {part.partition(chr(10))[0]}": part.partition("\n")[2]
    for file in sorted(HERE.glob("*.scripts"))
    for part in re.split(r"^=== ", file.read_text(), flags=re.MULTILINE)[1:]
}
TEXTS = [
    ("a", "The first text has some words.", "en", 0.9), ("a", "Short one.", "en", 0.1),
    ("a", "Ein Text auf Deutsch. Mit zwei Saetzen.", "de", 0.6),
    ("a", "See http://example.org/a/long/path/to/it now", "en", 0.4),
    ("b", "Another text. It has two sentences.", "en", 0.8), ("b", "1 2 3 4 5 6 7 8 9 10 11 12", "xx", 0.0),
    ("b", "Un texte en francais, assez long.", "fr", 0.7), ("b", 'He said "hello" and went.', "en", 0.55),
    ("c", "Some words\n\n\n\nand more of them.", "en", 0.3), ("c", "line\nline\nline\nline", "en", 0.2),
    ("c", "antidisestablishmentarianism is a word", "en", 0.65), ("c", "The last text of all of them.", "en", 0.5),
]  # fmt: skip
LONG = " ".join(f"word{i}" for i in range(120))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("switch")
    for folder in ("data", "tables", "copies"):
        (place / folder).mkdir()
    for name in "abc":
        rows = [(text, lang, score) for file, text, lang, score in TEXTS if file == name]
        lines = [
            json.dumps({"id": f"{name}{i}", "text": t, "lang": lang, "score": s}) for i, (t, lang, s) in enumerate(rows)
        ]
        (place / "data" / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    pd.DataFrame({"text": ["x", "y", "z"], "year": [1999, 2005, 2020]}).to_parquet(place / "tables" / "t.parquet")
    copies = [LONG, "something else", LONG, "a third text", "something else"]
    (place / "copies" / "c.jsonl").write_text(
        "".join(json.dumps({"id": i, "text": t}) + "\n" for i, t in enumerate(copies))
    )
    return place


def test_there_are_enough() -> None:
    assert len(SCRIPTS) >= 60


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_runs_with_one_word_changed(
    name: str, files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "job"
    shutil.copytree(files, place)
    monkeypatch.chdir(place)
    monkeypatch.setattr("tamis.backends.local.LocalExecutor", InProcessExecutor)
    monkeypatch.setenv("TAMIS_MEMORY", "400MB")
    code = SCRIPTS[name].replace("nemo_curator", "tamis")
    scope: dict[str, Any] = {"__name__": "__main__"}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # a summary of quarantined documents is no error of the script
            exec(compile(code, f"<{name}>", "exec"), scope)
    finally:
        CURRENT.clear()
