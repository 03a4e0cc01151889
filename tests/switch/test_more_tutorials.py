"""More pipelines in the manner of the original's tutorials: stories from a download, tokens for Megatron."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tests.support.optional import optional

optional("torch", reason="the extra `models` is not installed")
transformers = optional("transformers", reason="the extra `models` is not installed")

from tamis import InProcessExecutor  # noqa: E402
from tamis.formats.megatron.index import read_index  # noqa: E402
from tamis.pipeline import Pipeline  # noqa: E402
from tamis.stages.text.download.base import (  # noqa: E402
    DocumentDownloader,
    DocumentDownloadExtractStage,
    DocumentIterator,
    URLGenerator,
)
from tamis.stages.text.filters import DocumentFilter, ScoreFilter  # noqa: E402
from tamis.stages.text.io.reader import ParquetReader  # noqa: E402
from tamis.stages.text.io.writer import JsonlWriter  # noqa: E402
from tamis.stages.text.io.writer.megatron_tokenizer import MegatronTokenizerWriter  # noqa: E402
from tamis.stages.text.modifiers import DocumentModifier, Modify  # noqa: E402
from tests.stages.text.models import small_models as small  # noqa: E402

STORIES = (
    "Once there was a cat.\nIt sat.\n<|end|>\nHe said \u201cyes\u201d and\n<|end|>\nShe said \u201cno\u201d.\n<|end|>\n"
)


class StoryUrls(URLGenerator):
    def generate_urls(self) -> list[str]:
        return ["https://stories.example/valid.txt"]


class StoryDownloader(DocumentDownloader):
    def _get_output_filename(self, url: str) -> str:
        return url.rpartition("/")[2]

    def _download_to_path(self, url: str, path: str) -> tuple[bool, str | None]:
        Path(path).write_text(STORIES)
        return True, None


class Stories(DocumentIterator):
    def iterate(self, file_path: str) -> Iterator[dict[str, Any]]:
        for story in Path(file_path).read_text().split("<|end|>"):
            if story.strip():
                yield {"text": " ".join(story.split("\n")).strip()}

    def output_columns(self) -> list[str]:
        return ["text"]


class Finished(DocumentFilter):
    def score_document(self, text: str) -> bool:
        return text.endswith((".", "!", "?", "\u201d"))

    def keep_document(self, score: bool) -> bool:
        return score


class PlainQuotes(DocumentModifier):
    def modify_document(self, text: str) -> str:
        return text.replace("\u201c", '"').replace("\u201d", '"')


def test_stories_are_downloaded_filtered_and_unified(tmp_path: Path) -> None:
    source = DocumentDownloadExtractStage(StoryUrls(), StoryDownloader(str(tmp_path / "raw")), Stories())
    stages: list[Any] = [source, ScoreFilter(Finished()), Modify(PlainQuotes()), JsonlWriter(str(tmp_path / "out"))]
    tasks = Pipeline("stories", stages=stages).run(InProcessExecutor(), progress=False)
    rows = [json.loads(line) for task in tasks for line in Path(task.data[0]).read_text().splitlines()]
    assert [row["text"] for row in rows] == ["Once there was a cat. It sat.", 'She said "no".']


def test_tokens_for_megatron_of_each_file(tmp_path: Path) -> None:
    tokenizer = str(small.sequence_classifier(tmp_path / "model"))
    (tmp_path / "in").mkdir()
    texts = small.texts(9)
    for i in range(3):
        pd.DataFrame({"text": texts[3 * i : 3 * i + 3]}).to_parquet(tmp_path / f"in/part_{i}.parquet")
    writer = MegatronTokenizerWriter(str(tmp_path / "tokens"), model_identifier=tokenizer)
    stages: list[Any] = [ParquetReader(str(tmp_path / "in")), writer]
    tasks = Pipeline("megatron", stages=stages).run(InProcessExecutor(), progress=False)
    assert [[Path(path).suffix for path in task.data] for task in tasks] == [[".bin", ".idx"]] * 3
    encode = transformers.AutoTokenizer.from_pretrained(tokenizer)
    expected = [len(encode(text, add_special_tokens=False)["input_ids"]) for text in texts]
    written = [read_index(path)[0] for path in sorted((tmp_path / "tokens").glob("*.idx"))]
    assert np.concatenate(written).tolist() == expected
