"""Configurations in the manner of the original's, each run as documented: filters of text and code, workflows.

A configuration is a recipe for Hydra: what it does not know has no value (`???`) and is given on the command line.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
import yaml

import tamis
from tamis import InProcessExecutor
from tamis.config.run import (
    create_executor_from_yaml,
    create_pipeline_from_yaml,
    create_ray_client_from_yaml,
    parse,
)
from tamis.core.client import RayClient
from tamis.errors import UsageError
from tamis.recipe.load import load_recipe
from tests.stages.text.filters.test_fasttext_filters import two_words

HYDRA = {
    "defaults": ["_self_", {"override hydra/job_logging": "none"}, {"override hydra/hydra_logging": "none"}],
    "hydra": {"run": {"dir": "."}, "output_subdir": None},
    "documentation": "What it is for.\n",
    "input_path": "???",
    "output_path": "???",
    "text_field": "text",
}
CLUSTER = {"_target_": "tamis.core.client.RayClient", "num_cpus": None, "num_gpus": 4}
SENTENCE = "The cat and the dog of this house have {} in the {} garden with us."
GOOD = "\n\n".join(" ".join(SENTENCE.format(f"thing{i}{j}", f"green{j}{i}") for j in range(4)) for i in range(3))
RUN: dict[str, Any] = {"progress": False, "memory": "600MB"}


def filters(folder: Path, **filters: dict[str, Any]) -> Path:
    """Write a configuration that reads JSONL, applies the filters (`module__Class`: parameters), and writes JSONL."""
    reader = {"file_paths": "${input_path}", "files_per_partition": None, "blocksize": None, "fields": None}
    stages: list[dict[str, Any]] = [{"_target_": "tamis.stages.text.io.reader.JsonlReader", **reader}]
    for name, parameters in filters.items():
        path = f"tamis.stages.text.filters.{name.replace('__', '.')}"
        stage = {"_target_": "tamis.stages.text.filters.score_filter.ScoreFilter"}
        stages.append(
            {
                **stage,
                "filter_obj": {"_target_": path, **parameters},
                "text_field": "${text_field}",
                "score_field": None,
            }
        )
    writer = {"_target_": "tamis.stages.text.io.writer.JsonlWriter", "path": "${output_path}", "fields": None}
    unknown = {value[2:-1]: "???" for p in filters.values() for value in p.values() if str(value).startswith("${")}
    return configuration(folder, {**HYDRA, **unknown, "stages": [*stages, writer]})


def configuration(folder: Path, recipe: dict[str, Any]) -> Path:
    path = folder / "pipeline.yaml"
    path.write_text(yaml.safe_dump(recipe, sort_keys=False))
    return path


def documents(folder: Path, texts: list[str], n_files: int = 2) -> str:
    (folder / "in").mkdir()
    for n in range(n_files):
        rows = [{"id": i, "text": text} for i, text in enumerate(texts) if i % n_files == n]
        (folder / f"in/{n}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(folder / "in")


def run_with(path: Path, **values: str) -> list[int]:
    """Run a configuration with values for what it leaves open; return the ids of the documents that it wrote."""
    pipeline = load_recipe(path, overrides=values).pipeline()
    tasks = pipeline.run(InProcessExecutor(), **RUN)
    lines = [line for task in tasks for file in task.data for line in Path(file).read_text().splitlines()]
    return sorted(json.loads(line)["id"] for line in lines)


def test_english_text_by_the_documented_command(tmp_path: Path) -> None:
    string, repetition = "heuristic__string__", "heuristic__repetition__"
    ngrams = {f"{repetition}RepeatingTopNGramsFilter": {"n": 2, "max_repeating_ngram_ratio": 0.2}}
    filters(
        tmp_path,
        **{
            f"{string}NonAlphaNumericFilter": {"max_non_alpha_numeric_to_text_ratio": 0.25},
            f"{string}SymbolsToWordsFilter": {"max_symbol_to_word_ratio": 0.1},
            f"{string}NumbersFilter": {"max_number_to_text_ratio": 0.15},
            f"{string}UrlsFilter": {"max_url_to_text_ratio": 0.2},
            f"{string}WhiteSpaceFilter": {"max_white_space_ratio": 0.25},
            f"{string}ParenthesesFilter": {"max_parentheses_ratio": 0.1},
            f"{string}BoilerPlateStringFilter": {
                "remove_if_at_top_or_bottom": True,
                "max_boilerplate_string_ratio": 0.4,
            },
            f"{repetition}RepeatedLinesFilter": {"max_repeated_line_fraction": 0.7},
            f"{repetition}RepeatedParagraphsFilter": {"max_repeated_paragraphs_ratio": 0.7},
            f"{repetition}RepeatedLinesByCharFilter": {"max_repeated_lines_char_ratio": 0.8},
            f"{string}WordCountFilter": {"min_words": 50, "max_words": 100000},
            f"{string}PunctuationFilter": {"max_num_sentences_without_endmark_ratio": 0.85},
            f"{string}WordsWithoutAlphabetsFilter": {"min_words_with_alphabets": 0.8},
            f"{string}CommonEnglishWordsFilter": {"min_num_common_words": 2, "stop_at_false": True},
            f"{string}MeanWordLengthFilter": {"max_mean_word_length": 10, "min_mean_word_length": 3},
            f"{string}LongWordFilter": {"max_word_length": 1000},
            f"{string}EllipsisFilter": {"max_num_lines_ending_with_ellipsis_ratio": 0.3},
            **ngrams,
            f"{repetition}RepeatingDuplicateNGramsFilter": {"n": 5, "max_repeating_duplicate_ngram_ratio": 0.99},
            f"{string}BulletsFilter": {"max_bullet_lines_ratio": 0.9},
        },
    )
    same = "a line of words that stays the same\n" * 60
    foreign = " ".join(f"xylo{i} brunt{i} kalem{i}" for i in range(30)).replace("0", "o") + "."
    texts = [GOOD, "too short", same, "1234 5678 " * 60, "(" * 40 + ")" * 40 + GOOD[:80], foreign]
    source = documents(tmp_path, texts)
    paths = os.pathsep.join([str(Path(tamis.__file__).resolve().parents[1]), os.environ.get("PYTHONPATH", "")])
    values = [f"input_path={source}", "output_path=out"]  # the name of the file, pipeline.yaml, may be left out
    command = [sys.executable, "-m", "tamis.config.run", *values]
    env = {**os.environ, "PYTHONPATH": paths, "TAMIS_MEMORY": "600MB"}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    written = [
        json.loads(line)["id"] for path in (tmp_path / "out").iterdir() for line in path.read_text().splitlines()
    ]
    assert written == [0]


class Words:
    """Stands for SentencePiece, which may not be installed: tokens are words and ends of lines."""

    def __init__(self, model_file: str) -> None:
        assert os.path.isfile(model_file)

    def encode(self, text: str) -> list[str]:
        return re.findall(r"\S+|\n", text)


def test_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentencepiece", SimpleNamespace(SentencePieceProcessor=Words))
    code = "heuristic__code__"
    path = filters(
        tmp_path,
        **{
            f"{code}PythonCommentToCodeFilter": {"min_comment_to_code_ratio": 0.001, "max_comment_to_code_ratio": 0.85},
            f"{code}NumberOfLinesOfCodeFilter": {"min_lines": 5, "max_lines": 20000},
            f"{code}TokenizerFertilityFilter": {
                "path_to_tokenizer": "${path_to_tokenizer}",
                "min_char_to_token_ratio": 2,
            },
        },
    )
    good = "# adds two numbers\ndef add(first, second):\n    result = first + second\n    return result\n\nadd(1, 2)\n"
    texts = [good, good.replace("# adds two numbers\n", ""), "# all of it\nx = 1\n", "# a b c\n" + "a\nb\n" * 9]
    (tmp_path / "tokenizer.model").write_text("")
    values = {"input_path": documents(tmp_path, texts), "output_path": str(tmp_path / "out")}
    assert run_with(path, **values, path_to_tokenizer=str(tmp_path / "tokenizer.model")) == [0]
    with pytest.raises(UsageError, match="path_to_tokenizer: has no value yet; set it with --set"):
        load_recipe(path, overrides=values)


def test_languages_and_quality_by_fasttext(tmp_path: Path) -> None:
    path = filters(
        tmp_path,
        fasttext__fasttext_filters__FastTextLangId={"model_path": "${langid_model}", "min_langid_score": 0.3},
        fasttext__fasttext_filters__FastTextQualityFilter={
            "model_path": "${quality_model}",
            "label": "__label__hq",
            "alpha": 3,
            "seed": 42,
        },
    )
    texts = ["hello good"] * 40 + ["hello bad"] * 40 + ["nothing known", ""]
    langid = two_words(tmp_path / "langid.bin", {"hello": ("en", 0.9), "bonjour": ("fr", 0.9)})
    quality = two_words(tmp_path / "quality.bin", {"good": ("hq", 0.999), "bad": ("cc", 0.999)})
    values = {"input_path": documents(tmp_path, texts), "output_path": str(tmp_path / "out")}
    kept = run_with(path, **values, langid_model=langid, quality_model=quality)
    n_good, n_bad = sum(i < 40 for i in kept), sum(40 <= i < 80 for i in kept)
    assert kept[-1] < 80
    assert n_good > 35
    assert n_bad < 35  # some pass: the limit is drawn for each document


@pytest.mark.parametrize("kind", ["exact", "fuzzy"])
def test_duplicates(kind: str, tmp_path: Path) -> None:
    name = {"exact": "ExactDeduplicationWorkflow", "fuzzy": "FuzzyDeduplicationWorkflow"}[kind]
    parameters: dict[str, Any] = {
        "input_path": "${input_path}", "output_path": "${output_path}", "input_filetype": "${input_filetype}",
        "input_blocksize": "1GiB", "input_file_extensions": None, "read_kwargs": None, "write_kwargs": None,
        "text_field": "${text_field}", "perform_removal": False, "env_vars": None,
    }  # fmt: skip
    if kind == "exact":
        parameters |= {"assign_id": True, "id_field": "${id_field}"}
    else:
        parameters |= {
            "cache_path": "${cache_path}", "cache_kwargs": None, "seed": 42, "char_ngrams": 24, "num_bands": 20,
            "minhashes_per_band": 13, "use_64_bit_hash": False, "bands_per_iteration": 5,
        }  # fmt: skip
    workflow = {"_target_": f"tamis.stages.deduplication.{kind}.workflow.{name}", **parameters}
    recipe = {**HYDRA, "input_filetype": "jsonl", "ray_client": CLUSTER, "workflow": [workflow]}
    recipe |= {"cache_path": "???"} if kind == "fuzzy" else {"id_field": None}
    path = configuration(tmp_path, recipe)
    texts = [GOOD, "something else that is short", GOOD, f"{GOOD} One word more.", "a last text"]
    output = tmp_path / "out"
    values = {"input_path": documents(tmp_path, texts), "output_path": str(output)}
    values |= {"cache_path": str(output / "cache")} if kind == "fuzzy" else {}
    found: Any = load_recipe(path, overrides=values).workflow
    result = found.run(executor=InProcessExecutor(), **RUN)
    assert result.get_metadata("num_duplicates") == {"exact": 1, "fuzzy": 2}[kind]
    assert len(pd.read_parquet(output / f"{kind.title()}DuplicateIds")) == {"exact": 1, "fuzzy": 2}[kind]
    assert (output / f"{kind}_id_generator.json").is_file()


def test_what_a_configuration_describes(tmp_path: Path) -> None:
    path = filters(tmp_path, heuristic__string__WordCountFilter={"min_words": 2})
    recipe = yaml.safe_load(path.read_text()) | {"input_path": "in", "output_path": "out"}
    assert create_executor_from_yaml(recipe) is None
    executor = create_executor_from_yaml(recipe | {"backend": "in_process", "execution_mode": "batch"})
    assert isinstance(executor, InProcessExecutor)
    assert executor.settings() == {"mode": "batch"}
    (tmp_path / "other.yaml").write_text("backend: in_process\n")
    assert isinstance(create_executor_from_yaml(tmp_path / "other.yaml"), InProcessExecutor)
    with pytest.raises(UsageError, match="expected one of local, in_process"):
        create_executor_from_yaml({"backend": "dask"})
    assert isinstance(create_ray_client_from_yaml(recipe), RayClient)
    client = create_ray_client_from_yaml(recipe | {"ray_client": {**CLUSTER, "num_cpus": 3}})
    assert client.num_cpus == 3
    assert [s.name for s in create_pipeline_from_yaml(recipe, log_config=False).stages][-1] == "jsonl_writer"
    assert parse(["input_path=in"]) == ("./pipeline.yaml", {"input_path": "in"})


def test_a_workflow_is_built_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    workflow = {"_target_": "tamis.stages.deduplication.exact.ExactDeduplicationWorkflow"}
    workflow |= {"input_path": documents(tmp_path, ["a", "a"]), "output_path": str(tmp_path / "out")}
    with caplog.at_level("INFO", "tamis.config"):
        found = create_pipeline_from_yaml({"workflow": [{**workflow, "input_filetype": "jsonl"}]})
    assert len(caplog.records) == 1
    assert found.run(executor=InProcessExecutor(), **RUN).get_metadata("num_duplicates") == 1
