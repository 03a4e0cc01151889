"""VLLMEmbeddingModelStage: embeddings by a model of sentence-transformers, in vLLM where that is installed.

Without vLLM, or without a GPU, the stage embeds with EmbeddingCreatorStage (base.py), which needs neither.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

from tamis._lazy import np, pa
from tamis.errors import UsageError, check_choice
from tamis.memory.gpu import count_gpus
from tamis.secrets import Secret
from tamis.sizes import check_optional_integer
from tamis.stages.base import CompositeStage, ProcessingStage
from tamis.stages.resources import Resources
from tamis.stages.text import pretrained
from tamis.stages.text.embedders.base import EmbeddingCreatorStage
from tamis.stages.text.models import folder as folders
from tamis.stages.text.models.model import as_lists
from tamis.stages.text.models.utils import format_name_with_suffix
from tamis.tasks import DocumentBatch

_log = logging.getLogger("tamis.models")
_DTYPES = ("float16", "float32", "float64")
_AT_ONCE = 8192


def has_vllm() -> bool:
    import importlib.util

    return importlib.util.find_spec("vllm") is not None


class VLLMEmbeddingModelStage(CompositeStage[DocumentBatch, DocumentBatch]):
    """Adds an embedding of each text; null for a document without a text. All columns are kept.

    In vLLM where it is installed and there is a GPU, with `vllm_init_kwargs` for its engine; otherwise in the embedder
    of Tamis, which has no such settings. `pretokenize`: vLLM is given tokens (the embedder of Tamis always makes them
    before the model). `metadata_fields`: columns that the documents must have.
    """

    columns_in = ("text_field",)
    columns_out = ("embedding_field",)

    def __init__(
        self,
        model_identifier: str,
        vllm_init_kwargs: Mapping[str, Any] | None = None,
        text_field: str = "text",
        pretokenize: bool = True,
        embedding_field: str = "embeddings",
        max_chars: int | None = None,
        cache_dir: str | None = None,
        hf_token: str | None = None,
        verbose: bool = False,
        *,
        metadata_fields: Sequence[str] | None = None,
        model_inference_batch_size: int | None = _AT_ONCE,
        embedding_output_dtype: str = "float32",
    ) -> None:
        super().__init__()
        check_optional_integer(max_chars, "VLLMEmbeddingModelStage: max_chars")
        if model_inference_batch_size is not None and model_inference_batch_size < 0:
            raise UsageError(
                f"model_inference_batch_size must be a non-negative integer or None, got {model_inference_batch_size}"
            )
        check_choice("VLLMEmbeddingModelStage: embedding_output_dtype", embedding_output_dtype, _DTYPES)
        self.model_identifier, self.vllm_init_kwargs = model_identifier, dict(vllm_init_kwargs or {})
        self.text_field, self.pretokenize, self.embedding_field = text_field, pretokenize, embedding_field
        self.max_chars, self.cache_dir, self.verbose = max_chars, cache_dir, verbose
        self.hf_token = None if hf_token is None else Secret(hf_token)
        self.metadata_fields = list(dict.fromkeys(metadata_fields or ()))
        self.model_inference_batch_size = model_inference_batch_size
        self.embedding_output_dtype = embedding_output_dtype
        self.name = format_name_with_suffix(model_identifier, "_vllm")
        self.model: Any = None
        self.tokenizer: Any = None
        self._parts: list[ProcessingStage[Any, Any]] | None = None

    def inputs(self) -> Any:
        return ["data"], list(dict.fromkeys([self.text_field, *self.metadata_fields]))

    def outputs(self) -> Any:
        return ["data"], list(dict.fromkeys([*self.metadata_fields, self.embedding_field]))

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        if has_vllm() and count_gpus():
            return [_InVllm(self)]
        if self.vllm_init_kwargs:
            _log.warning(
                "%s: vllm_init_kwargs (%s) are for vLLM, which is %s; the embedder of Tamis is used",
                self.name, ", ".join(sorted(self.vllm_init_kwargs)),
                "without a GPU here" if has_vllm() else "not installed",
            )  # fmt: skip
        own = EmbeddingCreatorStage(
            self.model_identifier,
            use_sentence_transformer=self._says_how_to_pool(),
            text_field=self.text_field,
            embedding_field=self.embedding_field,
            cache_dir=self.cache_dir,
            max_chars=self.max_chars,
            hf_token=self.hf_token,
        )
        stages = own.decompose()
        if self.embedding_output_dtype != "float32":
            stages.append(_CastEmbeddings(self.embedding_field, self.embedding_output_dtype))
        return stages

    def _says_how_to_pool(self) -> bool:
        """Return True for a model of sentence-transformers, and for one that is not here yet, which usually is one."""
        try:
            return (pretrained.local(self.model_identifier, self.cache_dir) / "modules.json").exists()
        except FileNotFoundError:
            return True

    def setup(self, worker_metadata: Any = None) -> None:
        """Load the model, for use outside of a run."""
        if self._parts is None:
            self._parts = self.decompose()
            for stage in self._parts:
                stage.setup(worker_metadata)

    def process(self, task: DocumentBatch) -> DocumentBatch:
        """Embed the texts of one batch, for use outside of a run, which runs the parts of this stage instead."""
        self.setup()
        batch: Any = task
        for stage in self._parts or ():
            batch = stage.process(batch)
        embedded: DocumentBatch = batch
        return embedded

    def teardown(self) -> None:
        for stage in self._parts or ():
            stage.teardown()
        self._parts = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_parts": None}


class _CastEmbeddings(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Numbers of embeddings in another precision."""

    name = "embedding_dtype"

    def __init__(self, embedding_field: str, dtype: str) -> None:
        self.embedding_field, self.dtype = embedding_field, dtype

    def process(self, task: DocumentBatch) -> DocumentBatch:
        kind = pa.list_(pa.type_for_alias(self.dtype))
        return task.with_column(self.embedding_field, task.exact_column(self.embedding_field).cast(kind))


class _InVllm(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Embeds in vLLM's engine, which runs in the worker."""

    def __init__(self, settings: VLLMEmbeddingModelStage) -> None:
        self.name, self.settings = settings.name, settings
        self.resources = Resources(cpus=1.0, gpus=1.0)
        self._model: Any = None

    def inputs(self) -> Any:
        return self.settings.inputs()

    def outputs(self) -> Any:
        return self.settings.outputs()

    def setup_on_node(self, node_info: Any = None, worker_metadata: Any = None) -> None:
        """Fetch the model; CUDA does not survive a fork, so that workers load it."""
        self._folder()

    def _folder(self) -> Any:
        settings = self.settings
        return folders.open_folder(folders.fetch(settings.model_identifier, settings.cache_dir, settings.hf_token))

    def setup(self, worker_metadata: Any = None) -> None:
        if self._model is None:
            from tamis.stages.video.models.vllm_chat import make_engine

            self._model = make_engine(
                self._folder(),
                {
                    "runner": "pooling",
                    "enforce_eager": False,
                    "disable_log_stats": not self.settings.verbose,
                    **self.settings.vllm_init_kwargs,
                },
            )

    def process(self, task: DocumentBatch) -> DocumentBatch:
        self.setup()
        settings = self.settings
        texts = task.texts(settings.text_field).to_pylist()
        positions = [i for i, text in enumerate(texts) if text is not None]
        rows: list[Any] = [None] * len(texts)
        step = settings.model_inference_batch_size or max(1, len(positions))
        began_s = time.perf_counter()
        for first in range(0, len(positions), step):
            part = positions[first : first + step]
            prompts = self._prompts([texts[i][: settings.max_chars] for i in part])
            # -1: what is longer than the model takes is cut
            answers = self._model.embed(prompts, tokenization_kwargs={"truncate_prompt_tokens": -1}, use_tqdm=False)
            for i, answer in zip(part, answers, strict=True):
                rows[i] = np.asarray(answer.outputs.embedding, settings.embedding_output_dtype)
        self._log_metric("vllm_embedding_time", time.perf_counter() - began_s)
        present = as_lists([rows[i] for i in positions], np.dtype(settings.embedding_output_dtype).type)
        indices = np.full(len(texts), -1, np.int64)
        indices[positions] = np.arange(len(positions))
        column = present.take(pa.array(indices, mask=indices < 0))
        return task.with_column(settings.embedding_field, column)

    def _prompts(self, texts: list[str]) -> list[Any]:
        if not self.settings.pretokenize:
            return list(texts)
        longest = self._model.llm_engine.model_config.max_model_len
        ids = self._model.get_tokenizer()(texts, truncation=True, max_length=longest)["input_ids"]
        return [{"prompt_token_ids": row} for row in ids]

    def teardown(self) -> None:
        self._model = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_model": None}
