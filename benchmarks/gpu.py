"""Models on a GPU: DeBERTa over packed sequences beside plain transformers. Random weights are as fast as trained ones.

    python benchmarks/gpu.py [--lengths FILE] [--write]

`--lengths`: a JSON list with the characters of each document (default: log-normal, 5,250 on average, as in documentation). Needs the extras
`models` and `gpu`. `--write` puts the table into docs/benchmarks-gpu.md.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from pathlib import Path
from typing import Any

import torch
from transformers import DebertaV2Config, DebertaV2Model

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))
from tamis.stages.text.models.packed_deberta import PackedDeberta, pack  # noqa: E402

BASE = DebertaV2Config(
    vocab_size=128_100, hidden_size=768, num_hidden_layers=12, num_attention_heads=12, intermediate_size=3072, relative_attention=True,
    position_buckets=256, max_relative_positions=-1, max_position_embeddings=512, pos_att_type=["p2c", "c2p"], share_att_key=True,
    norm_rel_ebd="layer_norm", position_biased_input=False, type_vocab_size=0, layer_norm_eps=1e-7, hidden_act="gelu",
)  # fmt: skip
JOBS = {"Quality (DeBERTa, 1,024 tokens)": (6000, 1024), "Domain (DeBERTa, 512 tokens)": (2000, 512)}
BUDGET_TOKENS = 32_768
CARD_TFLOPS = 790.0  # bf16, measured on an H200


def documents(chars: list[int], max_chars: int, max_tokens: int) -> list[Any]:
    return [torch.randint(5, 128_000, (min(max_tokens, max(2, min(n, max_chars) // 4)),)) for n in chars]


def batches(texts: list[Any]) -> list[list[Any]]:
    """By length, up to so many tokens each."""
    made: list[list[Any]] = [[]]
    held = 0
    for text in sorted(texts, key=len):
        if held + len(text) > BUDGET_TOKENS:
            made.append([])
            held = 0
        made[-1].append(text)
        held += len(text)
    return made


def seconds(work: Any) -> float:
    work()
    torch.cuda.synchronize()
    began = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return time.perf_counter() - began


def plain(model: Any, texts: list[Any], size: int = 64) -> None:
    texts = sorted(texts, key=len)
    for i in range(0, len(texts), size):
        some = texts[i : i + size]
        tokens = torch.nn.utils.rnn.pad_sequence(some, batch_first=True)
        mask = torch.nn.utils.rnn.pad_sequence([torch.ones(len(t)) for t in some], batch_first=True)
        with torch.inference_mode():
            model(tokens.cuda(), attention_mask=mask.cuda())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lengths")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    random.seed(0)
    torch.manual_seed(0)
    chars = (
        json.loads(Path(given.lengths).read_text())
        if given.lengths
        else [int(random.lognormvariate(8.0, 1.05)) for _ in range(6000)]
    )
    model = DebertaV2Model(BASE).eval()
    ours = PackedDeberta(model, "cuda", torch.bfloat16, 1024)
    model = model.to("cuda", torch.bfloat16)
    if ours.not_fused:
        sys.exit(f"the fused attention cannot be used here: {ours.not_fused}")
    rows = [
        f"Card: {torch.cuda.get_device_name()}, torch {torch.__version__}.",
        "",
        "| model | plain transformers, documents/s | packed, documents/s | times | TFLOP/s | share of the card |",
        "|---|---|---|---|---|---|",
    ]
    for name, (max_chars, max_tokens) in JOBS.items():
        texts = documents(chars, max_chars, max_tokens)
        some = texts[:8]
        packed = pack([t.tolist() for t in some])
        found = ours.first_tokens(packed).float()
        with torch.inference_mode():
            wanted = torch.stack(
                [
                    model(t[None].cuda(), attention_mask=torch.ones(1, len(t), device="cuda")).last_hidden_state[0, 0]
                    for t in some
                ]
            )
        worst = (found - wanted.float()).abs().max().item()
        assert worst < 0.15, f"hidden states differ by {worst}"
        ready = [pack([t.tolist() for t in b]) for b in batches(texts)]
        fast = len(texts) / seconds(lambda: [ours.first_tokens(b) for b in ready])  # noqa: B023
        slow = 1500 / seconds(lambda: plain(model, texts[:1500]))  # noqa: B023
        work = sum(12 * (2 * len(t) * 7_077_888 + 4 * len(t) ** 2 * 768) for t in texts) / len(texts) * fast / 1e12
        rows.append(
            f"| {name} | {slow:,.0f} | {fast:,.0f} | {fast / slow:.1f} | {work:.0f} | {work / CARD_TFLOPS:.0%} |"
        )
        print(rows[-1], f"(hidden states differ by {worst:.3f} at most)", flush=True)
    table = "\n".join(rows)
    print(table)
    if given.write:
        page = f"# Models on a GPU\n\nWritten by `make bench-gpu`. Model only, tokens given, bf16, random weights, {sum(chars) / len(chars):,.0f} characters per document on average, length-sorted batches on both sides. TFLOP/s without the position terms.\n\n{table}\n"
        at = ROOT / "docs" / "benchmarks-gpu.md"
        _, mark, rest = at.read_text().partition("\n## From JSONL to JSONL\n")  # measured by gpu_classify.py
        at.write_text(page + mark + rest)


if __name__ == "__main__":
    main()
