"""Measure classifiers on the CPU: `tamis classify` beside a plain loop over `transformers`.

Both go from JSONL to JSONL on the same cores.

    python benchmarks/models.py [--documents N] [--write]

The models have random weights, which are as fast as trained ones, and are built on disk. The plain loop takes documents
as they come, 32 at a time, padded to the longest of them, with as many threads as there are cores: what the
documentation of transformers shows. Both times include the start, loading the model and reading and writing. Texts come
from ../shared/corpus where it is there, else they are made up.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import zstandard

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/explanation/benchmarks-models.md"
BATCH, MAX_TOKENS = 32, 512
JOBS = [
    ("bert", "BERT, 6 layers of 384", True),
    ("deberta", "DeBERTa-v2, 6 layers of 384", True),
    ("bert", "BERT, 6 layers of 384", False),
]
PLAIN = """
import json, sys, torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer
folder, source, target = sys.argv[1:4]
torch.set_num_threads(int(sys.argv[4]))
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
rows = [json.loads(line) for line in open(source)]
with torch.inference_mode(), open(target, "w") as out:
    for i in range(0, len(rows), 32):
        some = rows[i : i + 32]
        options = dict(truncation=True, max_length=512, padding=True, return_tensors="pt", return_token_type_ids=False)
        ids = tokenizer([r["text"] for r in some], **options)
        labels = model(**ids).logits.argmax(1).tolist()
        for row, label in zip(some, labels):
            out.write(json.dumps({**row, "label": model.config.id2label[label]}) + "\\n")
"""


def documents(n: int, paragraphs: bool) -> list[str]:
    """Real texts where there are some (or their paragraphs), of all lengths, in an order that tells nothing."""
    random.seed(0)
    found: list[str] = []
    for path in sorted((ROOT.parent / "shared/corpus").glob("*.jsonl.zst")):
        with zstandard.open(path, "rt", encoding="utf-8") as file:
            found += [json.loads(line).get("text") or "" for _, line in zip(range(500), file, strict=False)]
    if not found:
        words = [f"word{i}" for i in range(3000)]
        found = [" ".join(random.choices(words, k=int(random.lognormvariate(4.5, 1.0)) + 1)) for _ in range(n)]
    if paragraphs:
        found = [part for text in found for part in text.split("\n\n") if len(part) >= 20]
    random.shuffle(found)
    return (found * (n // len(found) + 1))[:n]


def build(folder: Path, kind: str, texts: list[str]) -> None:
    """Build a model of the size of MiniLM (BERT, 6 layers of 384) or of DeBERTa-v3-xsmall (12 layers of 384).

    Its vocabulary is that of these texts.
    """
    import torch
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers

    torch.manual_seed(0)
    own = Tokenizer(models.BPE(unk_token="[UNK]"))
    own.pre_tokenizer = pre_tokenizers.ByteLevel()
    own.train_from_iterator(
        [t[:20_000] for t in texts[:200]],
        trainers.BpeTrainer(vocab_size=8000, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]"], show_progress=False),
    )
    own.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=own,
        unk_token="[UNK]",
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        model_max_length=MAX_TOKENS,
    )
    fast.save_pretrained(folder)
    common: dict[str, Any] = {
        "vocab_size": own.get_vocab_size(),
        "hidden_size": 384,
        "intermediate_size": 1536,
        "max_position_embeddings": MAX_TOKENS,
        "num_labels": 3,
    }
    if kind == "bert":
        config: Any = transformers.BertConfig(num_hidden_layers=6, num_attention_heads=12, **common)
    else:
        config = transformers.DebertaV2Config(
            num_hidden_layers=6,
            num_attention_heads=6,
            relative_attention=True,
            position_buckets=256,
            max_relative_positions=-1,
            pos_att_type=["p2c", "c2p"],
            share_att_key=True,
            norm_rel_ebd="layer_norm",
            position_biased_input=False,
            type_vocab_size=0,
            layer_norm_eps=1e-7,
            **common,
        )
    transformers.AutoModelForSequenceClassification.from_config(config).save_pretrained(folder)


def timed(command: list[str]) -> tuple[float, float]:
    """Seconds, and seconds of CPU of the process and all below it."""
    began, used = time.perf_counter(), os.times()
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr[-3000:])
    after = os.times()
    cpu = after.children_user + after.children_system - used.children_user - used.children_system
    return time.perf_counter() - began, cpu


def compared(root: Path, kind: str, name: str, texts: list[str], cores: int, paragraphs: bool) -> str:
    """One row of the table."""
    source, folder, plain_output, output = root / "in.jsonl", root / kind, root / "plain.jsonl", root / "out"
    source.write_text("".join(json.dumps({"id": i, "text": t}) + "\n" for i, t in enumerate(texts)), encoding="utf-8")
    build(folder, kind, texts)
    plain = timed([sys.executable, "-c", PLAIN, str(folder), str(source), str(plain_output), str(cores)])
    ours = timed(
        [
            sys.executable,
            "-m",
            "tamis.cli.main",
            "classify",
            str(folder),
            str(source),
            str(output),
            "--memory",
            "4GB",
            "--quiet",
        ]
    )
    same = labels(plain_output) == {k: v for p in output.glob("*.jsonl") for k, v in labels(p).items()}
    what = (
        f"{len(texts)} {'paragraphs' if paragraphs else 'documents'} of {sum(map(len, texts)) / len(texts):,.0f} "
        "characters"
    )
    return (
        f"| {name} | {what} | {plain[0]:.1f} | {ours[0]:.1f} | {len(texts) / ours[0]:.1f} | {plain[0] / ours[0]:.2f} | "
        f"{plain[1] / ours[1]:.2f} | {'yes' if same else 'no'} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=600)
    parser.add_argument("--only", help="a part of 'bert documents', 'bert paragraphs', 'deberta paragraphs'")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    rows = []
    for kind, name, paragraphs in JOBS:
        if given.only and given.only not in f"{kind} {'paragraphs' if paragraphs else 'documents'}":
            continue
        texts = documents(given.documents * (4 if paragraphs else 1), paragraphs)
        with tempfile.TemporaryDirectory() as place:
            rows.append(compared(Path(place), kind, name, texts, cores, paragraphs))
            print(rows[-1], flush=True)
    page = (
        "# Classifiers on the CPU\n\nWritten by `make bench-models`. "
        f"{MAX_TOKENS} tokens at most, {cores} cores, JSONL to JSONL with everything included (the start, too), "
        "random weights. Plain: "
        f"`transformers` as its documentation shows it, {BATCH} texts at a time as they come, padded to the longest "
        "of them. Of documents most are longer "
        "than the model takes, so that hardly anything is padded either way; paragraphs are of all lengths. Load of "
        f"the machine: {os.getloadavg()[0]:.1f}.\n\n"
        "| model | texts | plain, s | tamis classify, s | texts/s | times faster | times less CPU | same labels |\n"
        "|---|---|---|---|---|---|---|---|\n" + "\n".join(rows) + "\n"
    )
    print(page)
    if given.write:
        PAGE.write_text(page, encoding="utf-8")


def labels(path: Path) -> dict[int, str]:
    with path.open(encoding="utf-8") as file:
        return {row["id"]: row.get("label") for row in map(json.loads, file)}


if __name__ == "__main__":
    main()
