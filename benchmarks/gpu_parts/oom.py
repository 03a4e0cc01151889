"""Try a batch twice as large as fits: failures, out-of-memory events by length, and the rate.

The rate is shown beside that of the best fixed size.

The model is a padded one (DistilBERT, 6 layers of 768), so that each padded length learns by itself. Documents have the
lengths of the corpus.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from types import SimpleNamespace
from typing import Any

N_DOCUMENTS, MAX_TOKENS = 120_000, 512
_PARTITION = 2000
_SHARES = (1.0, 0.95, 0.9, 0.8, 0.7, 0.5)  # of what fits, as fixed sizes


def run(texts: list[str], device: str, tiny: bool) -> dict[str, Any]:
    import numpy as np
    import torch
    import transformers

    from tamis.stages.text.models.batching import TokenBatch
    from tamis.stages.text.models.device import Allowance, TorchDevice, run_batches
    from tamis.stages.text.models.networks import PaddedTexts

    where, rng = TorchDevice(device), random.Random(0)
    small = {"dim": 32, "hidden_dim": 64, "n_layers": 1, "n_heads": 2} if tiny else {}
    torch.manual_seed(0)
    with torch.device(device):
        model = transformers.DistilBertModel(transformers.DistilBertConfig(**small)).eval()
    model = model.to(torch.bfloat16 if device == "cuda" else torch.float32)
    if device == "cpu":
        torch.set_num_threads(1)
    n = 60 if tiny else N_DOCUMENTS
    lengths = [min(MAX_TOKENS, max(4, len(texts[rng.randrange(len(texts))]) // 4)) for _ in range(n)]
    tokens = [np.full(length, 7, np.int64) for length in lengths]
    shape = where.shape(256, False, False)
    here = SimpleNamespace(begin=0)  # of the partition that is under way
    room = [10**9]  # tokens of a batch: the limit of a CPU that stands for a card

    class Full(Exception):
        pass

    class Place:
        """The device, and a limit where it has none of its own."""

        name = where.name

        def is_full(self, exc: BaseException) -> bool:
            return isinstance(exc, Full) or where.is_full(exc)

        def release(self, thorough: bool = False) -> None:
            began = time.perf_counter()
            where.release(thorough)
            released[0] += time.perf_counter() - began

        def room(self) -> float | None:
            return where.room()

    class Counted(Allowance):
        def failed(self, batch: TokenBatch) -> bool:
            events[self.shape.key(batch)] += 1
            print(f"   full: {batch.n_rows} x {batch.length} = {batch.n_tokens:,} tokens", flush=True)
            return super().failed(batch)

    def step(batch: TokenBatch) -> Any:
        if device == "cpu" and batch.n_tokens > room[0]:
            raise Full
        ids, mask = PaddedTexts([tokens[here.begin + i] for i in batch.at], batch, device).moved()
        with torch.inference_mode():
            return model(input_ids=ids, attention_mask=mask).last_hidden_state[: len(batch.at), 0].float()

    def rate(max_tokens: int, first: int, end: int) -> float:
        """Documents/s of so many of them, in partitions, whose results are fetched as the product does."""
        events.clear()
        allowance, n_found, began = Counted(shape.within(max_tokens)), 0, time.perf_counter()
        for begin in range(first, end, _PARTITION):
            here.begin = begin
            found = [
                rows for _, rows in run_batches(lengths[begin : min(begin + _PARTITION, end)], step, allowance, Place())
            ]
            n_found += sum(len(rows.cpu()) for rows in found)
        missing[0] = end - first - n_found
        return (end - first) / (time.perf_counter() - began)

    events: Counter[int] = Counter()
    released = [0.0]  # seconds that giving back memory took
    missing = [0]  # documents of the last run without a result
    whole = shape.max_tokens
    # What half of a batch takes is what there is.
    if device == "cuda":
        torch.cuda.empty_cache()
        before = torch.cuda.memory_reserved()
        rate(whole // 2, 0, n // 4)
        used = torch.cuda.max_memory_reserved() - before
        total = torch.cuda.get_device_properties(0).total_memory
        limit = before + int(used * 1.02)
        torch.cuda.empty_cache()
        torch.cuda.set_per_process_memory_fraction(min(1.0, limit / total))
    else:
        limit, room[0] = 0, whole // 2
        rate(whole // 2, 0, n)
    fixed: dict[str, float] = {}
    for share in _SHARES[:2] if tiny else _SHARES:
        rate(int(whole // 2 * share), 0, min(n, _PARTITION))  # what a first batch of a shape takes is no part of it
        found = rate(int(whole // 2 * share), 0, n // 8)
        print(
            f"   fixed {int(whole // 2 * share):,} tokens: {found:,.0f} documents/s, {sum(events.values())} events",
            flush=True,
        )
        if not events:
            fixed[str(int(whole // 2 * share))] = round(found, 1)
    released[0] = 0.0
    ours = rate(whole, 0, n)
    return {
        "documents": n,
        "tokens_of_first_batch": whole,
        "device_limit_gb": round(limit / 1e9, 2),
        "fixed": fixed,
        "documents_per_s": round(ours, 1),
        "failures": missing[0],
        "events": sum(events.values()),
        "most_events_of_a_length": max(events.values(), default=0),
        "lengths": len({shape.padded(x) for x in lengths}),
        "released_s": round(released[0], 3),
    }
