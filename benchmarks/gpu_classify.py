"""A classifier from JSONL to JSONL through Tamis on a GPU: documents per second, and how busy the GPU was.

    python benchmarks/gpu_classify.py [--documents N] [--max-tokens 1024] [--workers-per-gpu N] [--memory 48GB]

Builds a model of the size of DeBERTa-v3-base (random weights are as fast as trained ones) with a tokenizer, and documents of log-normal length,
5,250 characters on average, in a temporary folder. Needs the extras `models` and, for the fused attention, `gpu`. Prints one line of
JSON at the end. Busy: what nvidia-smi says every 0.2 s, from the first busy moment to the last.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))
try:
    import cloudpickle  # noqa: F401
except ImportError:  # all stages here are importable: plain pickle is enough
    sys.modules["cloudpickle"] = pickle

LABELS = ["High", "Medium", "Low"]
DEBERTA = {
    "model_type": "deberta-v2", "vocab_size": 128_100, "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
    "intermediate_size": 3072, "relative_attention": True, "position_buckets": 256, "max_relative_positions": -1,
    "max_position_embeddings": 512, "pos_att_type": ["p2c", "c2p"], "share_att_key": True, "norm_rel_ebd": "layer_norm",
    "position_biased_input": False, "type_vocab_size": 0, "layer_norm_eps": 1e-7, "hidden_act": "gelu",
}  # fmt: skip


def words(n: int = 20_000) -> list[str]:
    rng = random.Random(0)
    return ["".join(rng.choices("etaoinshrdlucmfwypvbgk", k=max(1, int(rng.gauss(5, 2))))) for _ in range(n)]


def build_model(folder: Path, vocabulary: list[str]) -> None:
    """In a process of its own: torch stays out of the one that starts the run."""
    import torch
    import transformers
    from safetensors.torch import save_file
    from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers

    own = Tokenizer(models.BPE(unk_token="[UNK]"))
    own.pre_tokenizer = pre_tokenizers.ByteLevel()
    rng = random.Random(1)
    lines = [" ".join(rng.choices(vocabulary, k=200)) for _ in range(300)]
    own.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=16_000, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]"], show_progress=False))  # fmt: skip
    own.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])  # fmt: skip
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=own,
        unk_token="[UNK]",
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        model_max_length=1024,
    ).save_pretrained(folder)
    torch.manual_seed(0)
    encoder = transformers.DebertaV2Model(transformers.DebertaV2Config(**{k: v for k, v in DEBERTA.items() if k != "model_type"}))  # fmt: skip
    weights = {f"model.{k}": v.contiguous() for k, v in encoder.state_dict().items()}
    weights |= {"fc.weight": torch.randn(3, 768), "fc.bias": torch.zeros(3)}
    save_file(weights, folder / "model.safetensors")
    numbers = {"id2label": dict(enumerate(LABELS)), "label2id": {v: i for i, v in enumerate(LABELS)}}
    (folder / "config.json").write_text(json.dumps({**DEBERTA, "fc_dropout": 0.2, **numbers}))


def write_documents(folder: Path, n: int, vocabulary: list[str]) -> int:
    """JSONL files; texts are slices of one long text, so that writing them takes seconds."""
    rng = random.Random(2)
    long = " ".join(rng.choices(vocabulary, k=2_000_000))
    total = 0
    for part in range(8):
        with (folder / f"part-{part}.jsonl").open("w") as file:
            for i in range(part, n, 8):
                size = min(200_000, max(20, int(rng.lognormvariate(8.0, 1.05))))
                at = rng.randrange(len(long) - size)
                total += size
                file.write(json.dumps({"id": i, "text": long[at : at + size]}) + "\n")
    return total


class Busy(threading.Thread):
    """Utilisation of all GPUs, sampled by nvidia-smi."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.samples: list[tuple[float, float]] = []
        self._process: Any = None
        if shutil.which("nvidia-smi"):
            command = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", "-lms", "200"]
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def run(self) -> None:
        for line in self._process.stdout if self._process else ():
            if line.strip().isdecimal():
                self.samples.append((time.perf_counter(), float(line)))

    def end(self) -> dict[str, float]:
        if self._process:
            self._process.terminate()
        busy = [i for i, (_, share) in enumerate(self.samples) if share > 0]
        if not busy:
            return {"busy": 0.0, "busy_s": 0.0}
        used = [share for _, share in self.samples[busy[0] : busy[-1] + 1]]
        later = used[len(used) // 10 :]  # the first tenth warms up
        return {
            "busy": round(sum(used) / len(used), 1), "busy_after_warm_up": round(sum(later) / len(later), 1),
            "busy_s": round(self.samples[busy[-1]][0] - self.samples[busy[0]][0], 1),
        }  # fmt: skip


def steady_rate(output: Path) -> float:
    """Documents per second between the first and the last tenth of what was written, by the times of the files."""
    files = sorted((p.stat().st_mtime, sum(1 for _ in p.open("rb"))) for p in output.glob("*.jsonl"))
    total, done, marks = sum(n for _, n in files), 0, []
    for at, n in files:
        done += n
        marks.append((at, done))
    inside = [(at, n) for at, n in marks if 0.1 * total <= n <= 0.9 * total]
    return (
        (inside[-1][1] - inside[0][1]) / (inside[-1][0] - inside[0][0])
        if len(inside) > 1 and inside[-1][0] > inside[0][0]
        else 0.0
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=60_000)
    parser.add_argument("--max-tokens", type=int, default=1024)
    parser.add_argument("--max-chars", type=int, default=6000)
    parser.add_argument("--workers-per-gpu", type=int, default=2)
    parser.add_argument("--blocksize", default="16MB")
    parser.add_argument("--memory", default="48GB")
    parser.add_argument("--folder", help="Where to build model and documents (kept), instead of a temporary folder.")
    given = parser.parse_args()
    place = Path(given.folder or tempfile.mkdtemp(prefix="gpu-classify-"))
    model, source, output = place / "model", place / "in", place / "out"
    for folder in (model, source):
        folder.mkdir(parents=True, exist_ok=True)
    vocabulary = words()
    if not (model / "config.json").exists():
        print("building the model ...", flush=True)
        child = os.fork()
        if not child:
            build_model(model, vocabulary)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0, "building the model failed"
    print("writing documents ...", flush=True)
    n_chars = write_documents(source, given.documents, vocabulary)

    from tamis.pipeline import Pipeline
    from tamis.stages.resources import Resources
    from tamis.stages.text.classifiers import QualityClassifier
    from tamis.stages.text.io.reader import JsonlReader
    from tamis.stages.text.io.writer import JsonlWriter

    shutil.rmtree(output, ignore_errors=True)
    classifier = QualityClassifier(
        model_identifier=str(model), score_field="p", max_chars=given.max_chars, max_seq_length=given.max_tokens
    )
    parts = classifier.decompose()
    asks_gpu = parts[1].resources.requires_gpu
    if asks_gpu:
        parts[1].resources = Resources(cpus=1.0, gpus=1.0 / given.workers_per_gpu)
    busy = Busy()
    busy.start()
    print("running ...", flush=True)
    began = time.perf_counter()
    pipeline = Pipeline(
        "gpu classify", stages=[JsonlReader(str(source), blocksize=given.blocksize), *parts, JsonlWriter(str(output))]
    )
    pipeline.execute(memory=given.memory)
    seconds = time.perf_counter() - began
    figures = {
        "documents": given.documents, "characters_each": round(n_chars / given.documents), "max_tokens": given.max_tokens,
        "on_gpu": asks_gpu, "workers_per_gpu": given.workers_per_gpu, "seconds": round(seconds, 1),
        "documents_per_s": round(given.documents / seconds, 1), "documents_per_s_steady": round(steady_rate(output), 1), **busy.end(),
    }  # fmt: skip
    log = (
        (output / "_tamis" / "worker.log").read_text(errors="replace")
        if (output / "_tamis" / "worker.log").exists()
        else ""
    )
    if log.strip():
        print("worker.log ends:", log[-1500:], flush=True)
    print(json.dumps(figures))
    if given.folder is None:
        shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    main()
