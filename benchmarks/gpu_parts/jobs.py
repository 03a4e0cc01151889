"""The jobs with a model: model, size, how much of each document it reads, and the rates to reach."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

CARD_TFLOPS = 790.0  # what an H200 does in bf16, measured with matrix products
BUSY = 0.95  # share of the time after warm-up that the GPU has to be busy


@dataclass(frozen=True)
class Job:
    """`reach`: documents/s end to end; `plain_known`: what plain transformers was measured to do, model only."""

    name: str
    title: str
    kind: str  # of the model: model_folders.py
    max_tokens: int
    max_chars: int | None
    n_documents: int
    n_model_only: int
    reach: float
    plain_known: float
    memory: str = "48GB"
    blocksize: str = "16MB"

    def stages(self, folder: Path) -> list[Any]:
        """Tokenizer, model and what is behind it, as the product puts them together."""
        from tamis.stages.text import classifiers
        from tamis.stages.text.embedders import EmbeddingCreatorStage

        place = str(folder / self.kind)
        if self.kind == "minilm":
            return EmbeddingCreatorStage(place, max_seq_length=self.max_tokens).decompose()
        if self.kind == "llama":
            adapter = str(folder / "adapter")
            return classifiers.AegisClassifier(
                adapter, base_model=place, max_seq_length=self.max_tokens, max_chars=self.max_chars
            ).decompose()
        if self.kind == "bert":
            return classifiers.FineWebEduClassifier(
                model_identifier=place, max_seq_length=self.max_tokens, max_chars=self.max_chars
            ).decompose()
        made = classifiers.QualityClassifier if self.name == "quality" else classifiers.DomainClassifier
        return made(
            model_identifier=place, score_field="p", max_seq_length=self.max_tokens, max_chars=self.max_chars
        ).decompose()

    def tiny(self) -> Job:
        """Return the same job with 50 documents, to try the script."""
        return replace(self, max_tokens=64, n_documents=50, n_model_only=20, memory="3GB", blocksize="16KB")

    def flop(self, config: Any, tokens: list[tuple[int, int]]) -> float:
        """Return the floating point operations of one document on average: matrix products and attention.

        What positions add is left out. `tokens`: of each document, all, and those that go through the network; the
        others were read once for all documents, and are only looked at.
        """
        width, inner, layers = config.hidden_size, config.intermediate_size, config.num_hidden_layers
        weights = layers * (4 * width * width + (3 if self.kind == "llama" else 2) * width * inner)
        seen = 0.5 if self.kind == "llama" else 1.0  # a causal model looks back only
        done = sum(
            2.0 * n * weights + seen * layers * 4.0 * (whole**2 - (whole - n) ** 2) * width for whole, n in tokens
        )
        return done / max(1, len(tokens))


JOBS = {
    job.name: job
    for job in (
        Job("quality", "Quality (DeBERTa-v3-base, 1,024 tokens)", "deberta", 1024, 6000, 120_000, 3000, 1300, 430),
        Job("domain", "Domain (DeBERTa-v3-base, 512 tokens)", "deberta", 512, 2000, 180_000, 6000, 3000, 995),
        Job("fineweb-edu", "FineWeb-Edu (BERT-base, 512 tokens)", "bert", 512, None, 250_000, 12_000, 4500, 4532),
        Job("minilm", "MiniLM embeddings (256 tokens)", "minilm", 256, None, 800_000, 40_000, 25_000, 41_481),
        Job("aegis", "Aegis (Llama-7B prefill, 1,536 tokens)", "llama", 1536, 6000, 1500, 120, 40, 40, "64GB", "1MB"),
    )
}
