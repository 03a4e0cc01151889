"""Run one job without the engine: plain transformers with length buckets, and the product's model stage.

Over the same tokens in one process.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpu_parts import corpus
from gpu_parts.jobs import Job

PLAIN_ROWS = {"quality": 64, "domain": 128, "fineweb-edu": 256, "minilm": 1024, "aegis": 16}
_PLAIN_S = 20.0  # of plain transformers no more is measured


def run(job: Job, models: Path, texts: list[str], device: str) -> dict[str, Any]:
    import numpy as np
    import pyarrow as pa
    import torch

    from tamis.stages.text.models.model import ModelStage
    from tamis.stages.text.models.utils import TOKENS
    from tamis.tasks import DocumentBatch

    chosen = [t for _, t in corpus.marked(texts, job.n_model_only)]
    batch: Any = DocumentBatch(data=pa.table({"text": pa.array(chosen, pa.large_string())}))
    stages = job.stages(models)
    at = next(i for i, s in enumerate(stages) if isinstance(s, ModelStage))
    for stage in stages[:at]:
        stage.setup()
    began = time.perf_counter()
    for stage in stages[:at]:
        batch = stage.process(batch)
    tokenized_s = time.perf_counter() - began
    tokens = [t for t in batch.column(TOKENS).to_pylist() if t]
    lengths = [len(t) for t in tokens]

    model = stages[at]
    model.setup()
    ours_s = seconds(lambda: model.process(batch), device)
    read = [(len(t), model._n_tokens(np.array(t, np.int32))) for t in tokens]
    found = model.process(DocumentBatch(data=batch.to_pyarrow().slice(0, 32)))
    model.teardown()
    if device == "cuda":
        torch.cuda.empty_cache()
    network, config, answers = plain(job, models, device)
    n_plain, plain_s = plain_rate(network, tokens, PLAIN_ROWS[job.name], device)
    flop = job.flop(config, read)
    return {
        "characters": round(sum(map(len, chosen)) / len(chosen)),
        "tokens": round(sum(lengths) / len(lengths), 1),
        "tokens_read": round(sum(n for _, n in read) / len(read), 1),
        "tokenizer_mb_per_s_per_core": round(sum(len(t.encode()) for t in chosen) / 1e6 / tokenized_s, 1),
        "tokenizer_documents_per_s_per_core": round(len(chosen) / tokenized_s, 1),
        "plain_documents_per_s": round(n_plain / plain_s, 1),
        "stage_documents_per_s": round(len(tokens) / ours_s, 1),
        "flop_per_document": flop,
        "differs": answers(found, tokens[:32]),
    }


def seconds(work: Callable[[], Any], device: str) -> float:
    """Of the second time: the first one compiles and fills caches."""
    import torch

    for _ in range(2):
        began = time.perf_counter()
        work()
        if device == "cuda":
            torch.cuda.synchronize()
        taken = time.perf_counter() - began
    return taken


def plain_rate(network: Callable[..., Any], tokens: list[list[int]], size: int, device: str) -> tuple[int, float]:
    """Return documents and seconds of equal batches, sorted by length, until the time is up."""
    import torch

    ordered = sorted(tokens, key=len)
    groups = [ordered[i : i + size] for i in range(0, len(ordered), size)]
    groups = [g for step in range(4) for g in groups[step::4]]  # whenever it stops, all lengths were there
    network(*padded(groups[-1], device))
    network(*padded(max(groups, key=lambda g: len(g[-1])), device))
    if device == "cuda":
        torch.cuda.synchronize()
    n, began = 0, time.perf_counter()
    for i, group in enumerate(groups):
        network(*padded(group, device))
        n += len(group)
        if i % 8 == 7:
            if device == "cuda":
                torch.cuda.synchronize()
            if time.perf_counter() - began > _PLAIN_S and i >= len(groups) // 4:
                break
    if device == "cuda":
        torch.cuda.synchronize()
    return n, time.perf_counter() - began


def padded(group: list[list[int]], device: str) -> tuple[Any, Any]:
    import torch

    rows = [torch.tensor(t) for t in group]
    ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    mask = torch.nn.utils.rnn.pad_sequence([torch.ones(len(t), dtype=torch.long) for t in group], batch_first=True)
    return ids.to(device, non_blocking=True), mask.to(device, non_blocking=True)


def plain(job: Job, models: Path, device: str) -> tuple[Callable[..., Any], Any, Callable[..., float | None]]:
    """Return the model as transformers runs it, its configuration, and how far the product's answers are off."""
    import torch
    import transformers
    from safetensors.torch import load_file

    folder, dtype = models / job.kind, torch.bfloat16 if device == "cuda" else torch.float32
    if job.kind == "llama":
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).to(device).eval()

        @torch.inference_mode()
        def prefill(ids: Any, mask: Any) -> Any:
            hidden = model.model(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state
            return model.lm_head(hidden[:, -1])

        return prefill, model.config, lambda found, tokens: None
    if job.kind == "bert":
        bert = transformers.AutoModelForSequenceClassification.from_pretrained(folder, dtype=dtype).to(device).eval()

        @torch.inference_mode()
        def score(ids: Any, mask: Any) -> Any:
            return bert(input_ids=ids, attention_mask=mask).logits.float().clamp(0, 5)

        return (
            score,
            bert.config,
            lambda found, tokens: worst(found.column("fineweb-edu-score-float"), score, tokens, device),
        )
    if job.kind == "minilm":
        encoder = transformers.AutoModel.from_pretrained(folder, dtype=dtype).to(device).eval()

        @torch.inference_mode()
        def embed(ids: Any, mask: Any) -> Any:
            hidden = encoder(input_ids=ids, attention_mask=mask).last_hidden_state.float()
            of = mask[..., None].float()
            return torch.nn.functional.normalize((hidden * of).sum(1) / of.sum(1), dim=-1)

        return embed, encoder.config, lambda found, tokens: worst(found.column("embeddings"), embed, tokens, device)
    weights = load_file(folder / "model.safetensors")
    config = transformers.AutoConfig.from_pretrained(folder)
    deberta = transformers.DebertaV2Model(config)
    deberta.load_state_dict({k[6:]: v for k, v in weights.items() if k.startswith("model.")}, strict=False)
    deberta = deberta.to(device, dtype).eval()
    head = [weights[f"fc.{n}"].to(device) for n in ("weight", "bias")]

    @torch.inference_mode()
    def classify(ids: Any, mask: Any) -> Any:
        first = deberta(input_ids=ids, attention_mask=mask).last_hidden_state[:, 0].float()
        return torch.softmax(torch.nn.functional.linear(first, *head), -1)

    return classify, config, lambda found, tokens: worst(found.column("p"), classify, tokens, device)


def worst(found: Any, network: Callable[..., Any], tokens: list[list[int]], device: str) -> float:
    """Return the largest difference between the product's numbers and those of transformers, text by text."""
    import numpy as np

    rows = np.array(found.to_pylist(), np.float64).reshape(len(tokens), -1)
    wanted = np.stack([network(*padded([t], device)).cpu().double().numpy().reshape(-1) for t in tokens])
    return float(round(np.abs(rows - wanted).max(), 5))
