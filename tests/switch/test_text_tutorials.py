"""Pipelines in the manner of the original's text tutorials, end to end, with small models."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tests.support.optional import optional

torch = optional("torch", reason="the extra `models` is not installed")
transformers = optional("transformers", reason="the extra `models` is not installed")

from tamis import InProcessExecutor  # noqa: E402
from tamis.pipeline import Pipeline  # noqa: E402
from tamis.stages.base import ProcessingStage  # noqa: E402
from tamis.stages.deduplication.semantic.kmeans import KMeansStage  # noqa: E402
from tamis.stages.resources import Resources  # noqa: E402
from tamis.stages.text.download.base import (  # noqa: E402
    DocumentDownloader,
    DocumentDownloadExtractStage,
    DocumentExtractor,
    DocumentIterator,
    URLGenerator,
)
from tamis.stages.text.embedders.base import EmbeddingCreatorStage  # noqa: E402
from tamis.stages.text.filters import DocumentFilter, Filter, Score, ScoreFilter  # noqa: E402
from tamis.stages.text.io.reader import JsonlReader  # noqa: E402
from tamis.stages.text.io.writer import JsonlWriter, ParquetWriter  # noqa: E402
from tamis.stages.text.modifiers import DocumentModifier, Modify, UnicodeReformatter  # noqa: E402
from tamis.stages.text.modules.add_id import AddId  # noqa: E402
from tamis.tasks import DocumentBatch, EmptyTask, FileGroupTask, Task  # noqa: E402
from tamis.utils.file_utils import get_all_file_paths_under  # noqa: E402
from tamis.utils.split_large_files import split_jsonl_file_by_size  # noqa: E402
from tests.stages.text.models import small_models as small  # noqa: E402
from tests.support.run_dirs import run_dir_path  # noqa: E402

RUN: dict[str, Any] = {"memory": "2GB", "progress": False}


def lines(folder: Path | str) -> list[dict[str, Any]]:
    paths = [p for p in sorted(Path(folder).rglob("*.jsonl")) if not p.is_relative_to(run_dir_path(folder))]
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


# -- a first pipeline: tasks of the user's own kind, made by a source of the user's own -------------------------------
class Sentences(Task[pd.DataFrame]):
    data: pd.DataFrame = field(default_factory=pd.DataFrame)

    @property
    def num_items(self) -> int:
        return len(self.data)

    def validate(self) -> bool:
        return True


class MakeSentences(ProcessingStage[EmptyTask, Sentences]):
    name: str = "MakeSentences"

    def __init__(self, n_tasks: int) -> None:
        self.n_tasks = n_tasks

    def inputs(self) -> tuple[list[str], list[str]]:
        return [], []

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], ["sentence"]

    def process(self, _: EmptyTask) -> list[Sentences]:
        frames = [pd.DataFrame({"sentence": [f"the fox reads data {i}", "a lazy dog"]}) for i in range(self.n_tasks)]
        return [Sentences(data=frame, dataset_name="sentences") for frame in frames]


class CountWords(ProcessingStage[Sentences, Sentences]):
    name: str = "CountWords"
    resources: Resources = Resources(cpus=1.0)
    batch_size: int = 1

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], ["sentence"]

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], ["sentence", "word_count"]

    def process(self, task: Sentences) -> Sentences:
        task.data["word_count"] = task.data["sentence"].str.split().str.len()
        return task


class Sentiment(ProcessingStage[Sentences, Sentences]):
    name: str = "Sentiment"
    batch_size: int = 2

    def __init__(self, model_name: str, batch_size: int) -> None:
        self.model_name, self.batch_size = model_name, batch_size
        self.model: Any = None

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], ["sentence", "word_count"]

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], ["sentence", "word_count", "sentiment"]

    def setup_on_node(self, node_info: Any, _: Any) -> None:
        assert hasattr(node_info, "node_id")

    def setup(self, _: Any) -> None:
        self.model = transformers.AutoModelForSequenceClassification.from_pretrained(self.model_name)
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(self.model_name)

    def process_batch(self, tasks: list[Sentences]) -> list[Sentences]:
        texts = [text for task in tasks for text in task.data["sentence"].tolist()]
        tokens = self.tokenizer(texts, return_tensors="pt", padding=True, truncation=True, max_length=64)
        tokens.pop("token_type_ids", None)
        with torch.no_grad():
            labels = self.model(**tokens).logits.argmax(-1).tolist()
        results = []
        for task in tasks:
            frame = task.data.copy()
            frame["sentiment"] = [labels.pop(0) for _ in range(len(frame))]
            results.append(Sentences(dataset_name=task.dataset_name, data=frame, _metadata=task._metadata))
        return results

    def process(self, task: Sentences) -> Sentences:
        return self.process_batch([task])[0]


def test_a_first_pipeline_of_own_tasks(tmp_path: Path) -> None:
    model = str(small.sequence_classifier(tmp_path / "model"))
    pipeline = Pipeline(name="first", description="own tasks")
    pipeline.add_stage(MakeSentences(3)).add_stage(CountWords()).add_stage(Sentiment(model, batch_size=2))
    assert "MakeSentences" in pipeline.describe()
    results = pipeline.run(InProcessExecutor(), **RUN)
    assert [type(task) for task in results] == [Sentences] * 3
    assert results[0].data["word_count"].tolist() == [5, 3]
    assert all(set(task.data.columns) == {"sentence", "word_count", "sentiment"} for task in results)


# -- fine-tuning data: download, filters and modifiers over several fields ---------------------------------------------
class OneFile(URLGenerator):
    def generate_urls(self) -> list[str]:
        return ["https://example.com/mails.csv"]


class FromMemory(DocumentDownloader):
    def _get_output_filename(self, url: str) -> str:
        return url.rpartition("/")[2]

    def _download_to_path(self, url: str, path: str) -> tuple[bool, str | None]:
        mails = [("Lunch", "See you at noon", "social"), ("Empty", "", "none"), ("Long", "word " * 50, "work")]
        rows = [f'"<s>{subject}|{body}|{category}<s>"' for subject, body, category in mails]
        Path(path).write_text("header\n" + "\n".join(rows) + "\n")
        return True, None


class Mails(DocumentIterator):
    def iterate(self, file_path: str) -> Iterator[dict[str, str]]:
        text = "".join(Path(file_path).read_text().splitlines(keepends=True)[1:])
        for i, mail in enumerate(re.finditer(r"\"<s>.*?<s>\"", text, re.DOTALL)):
            yield {"id": f"mail-{i}", "raw_content": mail.group().strip('"').strip()}

    def output_columns(self) -> list[str]:
        return ["id", "raw_content"]


class Parts(DocumentExtractor):
    def extract(self, record: dict[str, str]) -> dict[str, str]:
        subject, body, category = record["raw_content"].removeprefix("<s>").removesuffix("<s>").split("|")
        return {"subject": subject, "body": body, "category": category}

    def input_columns(self) -> list[str]:
        return ["id", "raw_content"]

    def output_columns(self) -> list[str]:
        return ["subject", "body", "category"]


class Empty(DocumentFilter):
    def score_document(self, text: str) -> bool:
        return not text.strip()

    def keep_document(self, score: bool) -> bool:
        return score


class ShortBody(DocumentFilter):
    def __init__(self) -> None:
        super().__init__()
        self._name = "short_body"

    def score_document(self, text: str) -> int:
        return len(text)

    def keep_document(self, score: int) -> bool:
        return score <= 100


class AddPeriod(DocumentModifier):
    def modify_document(self, text: str) -> str:
        return text + "."


class Chat(DocumentModifier):
    def modify_document(self, subject: str, body: str, category: str) -> str:
        return f"<{subject}|{body}|{category}>"


class CountTokens(DocumentModifier):
    def __init__(self, tokenizer: Any) -> None:
        super().__init__()
        self.tokenizer = tokenizer

    def modify_document(self, text: str) -> int:
        return len(self.tokenizer(text)["input_ids"])


def test_fine_tuning_data(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(small.sequence_classifier(tmp_path / "model")))
    source = DocumentDownloadExtractStage(
        url_generator=OneFile(), downloader=FromMemory(str(tmp_path / "raw")), iterator=Mails(), extractor=Parts()
    )
    fields = ["subject", "body", "category"]
    stages: list[Any] = [
        source,
        ScoreFilter(filter_obj=ShortBody(), text_field="body"),
        ScoreFilter(filter_obj=[Empty(), Empty(), Empty()], text_field=fields, invert=True),
        Modify(modifier_fn=[UnicodeReformatter()] * 3, input_fields=fields, output_fields=fields),
        Modify(modifier_fn=AddPeriod(), input_fields=["category"], output_fields=["category"]),
        Modify(modifier_fn=Chat(), input_fields=[fields], output_fields=["text"]),
        Modify(modifier_fn=CountTokens(tokenizer), input_fields=["text"], output_fields=["num_tokens"]),
        JsonlWriter(str(tmp_path / "curated")),
    ]
    results = Pipeline("mails", stages=stages).run(InProcessExecutor(), **RUN)
    assert results
    (mail,) = lines(tmp_path / "curated")
    assert mail["text"] == "<Lunch|See you at noon|social.>"
    assert isinstance(mail["num_tokens"], int)


# -- curriculum data: large files are split, rows are judged by several fields, the output is sorted -------------------
class Reasoning(DocumentFilter):
    def score_document(self, text: str) -> int:
        return 1 if text == "on" else 0

    def keep_document(self, score: int) -> bool:
        return score == 1


def well_formed(answer: str) -> bool:
    return "\\boxed{}" not in answer


class CompletionTokens(ProcessingStage[DocumentBatch, DocumentBatch]):
    def __init__(self, tokenizer: str, most: int) -> None:
        self.name, self.tokenizer_identifier, self.most = "completion_tokens", tokenizer, most

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], ["input", "output"]

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], ["completion_token_count"]

    def setup(self, _: Any = None) -> None:
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(self.tokenizer_identifier)

    def process(self, batch: DocumentBatch) -> DocumentBatch | None:
        df = batch.to_pandas()
        if df.empty:
            return None
        encoded = self.tokenizer(df["output"].tolist(), add_special_tokens=False)["input_ids"]
        df["completion_token_count"] = pd.Series([len(ids) for ids in encoded], index=df.index)
        assert df["turns"].sum() == df["turns"].astype("int64").sum()
        df = df[(df["completion_token_count"] > 0) & (df["completion_token_count"] <= self.most)]
        return DocumentBatch(
            task_id=batch.task_id, dataset_name=batch.dataset_name, data=df.nsmallest(len(df), "turns"),
            _metadata=batch._metadata, _stage_perf=batch._stage_perf,
        )  # fmt: skip


def test_curriculum_data(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    rows = [
        {"input": [{"role": "user", "content": f"question {i}"}], "output": "the fox " * (i % 7), "turns": i % 3,
         "reasoning": "on" if i % 2 else "off", "system_prompt": ""}
        for i in range(60)
    ]  # fmt: skip
    (tmp_path / "in/chat.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    tokenizer = str(small.sequence_classifier(tmp_path / "model"))
    shards = tmp_path / "shards"
    shards.mkdir()
    for path in get_all_file_paths_under(str(tmp_path / "in"), recurse_subdirectories=True, keep_extensions="jsonl"):
        split_jsonl_file_by_size(input_file=path, output_path=str(shards), target_size_mb=1)
    counts = {}
    for name, invert in (("on", False), ("off", True)):
        pipeline = Pipeline(name=name, description="a curriculum")
        pipeline.add_stage(JsonlReader(file_paths=str(shards)))
        pipeline.add_stage(ScoreFilter(Reasoning(), text_field="reasoning", invert=invert))
        pipeline.add_stage(Filter(well_formed, "output"))
        pipeline.add_stage(CompletionTokens(tokenizer, most=20))
        kept = ["input", "output", "completion_token_count"]
        pipeline.add_stage(JsonlWriter(str(tmp_path / name), fields=kept))
        pipeline.run(InProcessExecutor(), **RUN)
        counts[name] = lines(tmp_path / name)
    for kept_rows in counts.values():
        assert [set(row) for row in kept_rows] == [{"input", "output", "completion_token_count"}] * len(kept_rows)
        assert all(isinstance(row["completion_token_count"], int) for row in kept_rows)
    assert len(counts["on"]) + len(counts["off"]) == sum(bool(row["output"]) for row in rows)
    assert counts["on"][0]["input"][0]["role"] == "user"


# -- clusters of documents: embed, cluster, score, write by cluster, prune ---------------------------------------------
class Quality(DocumentFilter):
    def score_document(self, text: str) -> float:
        return float(len(text.split()) % 6)

    def keep_document(self, _: float) -> bool:
        return True


@dataclass
class ClusterWriter(JsonlWriter):
    """A writer of the user's own, over the built-in one: one folder for each cluster of the input."""

    name: str = "cluster_writer"

    def process(self, task: DocumentBatch) -> FileGroupTask:
        (source,) = task._metadata["source_files"]
        parent = self.fs._parent(source).rpartition("/")[2]
        assert parent.startswith("centroid=")
        path = self.fs.sep.join([self._fs_path, f"{parent}/{task.task_id}.{self.get_file_extension()}"])
        self.write_data(task, path)
        return FileGroupTask(dataset_name=task.dataset_name, data=[path], _metadata=task._metadata)


def test_clusters_of_documents(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number in range(2):
        texts = small.texts(20)[number * 10 :][:10]
        (tmp_path / f"in/{number}.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in texts))
    model = str(small.sequence_classifier(tmp_path / "model"))
    Pipeline(
        "embed",
        stages=[
            JsonlReader(str(tmp_path / "in"), files_per_partition=1),
            AddId(id_field="doc_id"),
            EmbeddingCreatorStage(
                model_identifier=model, use_sentence_transformer=False, text_field="text",
                embedding_field="embeddings", max_seq_length=32, padding_side="right",
                embedding_pooling="mean_pooling", model_inference_batch_size=8, transformers_init_kwargs={},
            ),
            ParquetWriter(str(tmp_path / "embedded"), fields=["doc_id", "text", "embeddings"]),
        ],
    ).run(InProcessExecutor(), **RUN)  # fmt: skip
    Pipeline(
        "cluster",
        stages=[
            KMeansStage(
                n_clusters=4, id_field="doc_id", embedding_field="embeddings", input_path=str(tmp_path / "embedded"),
                output_path=str(tmp_path / "clusters"), metadata_fields=["text"], n_init="auto",
                cache_path=str(tmp_path / "centroids"),
            )
        ],
    ).run(InProcessExecutor(), **RUN)  # fmt: skip
    assert np.load(tmp_path / "centroids/kmeans_centroids.npy").shape == (4, 32)
    from tamis.stages.text.io.reader import ParquetReader

    Pipeline(
        "score",
        stages=[
            ParquetReader(str(tmp_path / "clusters"), files_per_partition=1, fields=["doc_id", "text"]),
            Score([Quality()], score_field=["quality"], text_field="text"),
            ClusterWriter(str(tmp_path / "scored")),
        ],
    ).run(InProcessExecutor(), **RUN)
    folders = sorted(p.name for p in (tmp_path / "scored").iterdir() if p.name.startswith("centroid="))
    assert folders == sorted(p.name for p in (tmp_path / "clusters").iterdir() if p.name.startswith("centroid="))
    assert sorted(row["quality"] for row in lines(tmp_path / "scored"))
    assert len(lines(tmp_path / "scored")) == 20
