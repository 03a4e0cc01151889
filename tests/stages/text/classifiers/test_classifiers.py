"""Classifiers over small models of their own architectures: heads, labels, whole runs, and hostile folders."""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.support.optional import optional

torch = optional("torch", reason="the extra `models` is not installed")
transformers = optional("transformers", reason="the extra `models` is not installed")

from tamis.errors import UsageError  # noqa: E402
from tamis.memory.device_limits import DeviceMemory  # noqa: E402
from tamis.stages.resources import Resources  # noqa: E402
from tamis.stages.text import classifiers  # noqa: E402
from tamis.stages.text.classifiers.base import ClassifierModelStage  # noqa: E402
from tamis.stages.text.models.device import Work  # noqa: E402
from tamis.stages.text.models.tokenizer import Tokenizer  # noqa: E402
from tamis.stages.text.models.utils import TOKENS  # noqa: E402
from tamis.tasks import DocumentBatch  # noqa: E402
from tests.stages.text.models import small_models as small  # noqa: E402

LABELS = ["High", "Medium", "Low"]
TEXTS = small.texts()


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("models")
    base = small.llama(root / "llama")
    return {
        "bert": small.sequence_classifier(root / "bert"),
        "deberta": small.sequence_classifier(root / "deberta", kind="deberta"),
        "edu": small.sequence_classifier(root / "edu", n_labels=1),
        "headed": small.headed_deberta(root / "headed", LABELS),
        "prompt": small.prompt_deberta(root / "prompt"),
        "llama": base,
        "mistral": small.llama(root / "mistral", kind="Mistral"),
        "adapter": small.adapter(root / "adapter", base),
        "guard": small.data_guard(root / "guard"),
    }


def run(stage: Any, texts: list[Any], **columns: Any) -> pa.Table:
    """Return the output of a classifier's stages, run in this process."""
    batch = DocumentBatch("test", pa.table({"text": pa.array(texts, pa.large_string()), **columns}))
    for part in stage.decompose():
        part.setup_on_node()
        part.setup()
        batch = part.process(batch)
    return batch.to_pyarrow()


def plain_logits(folder: Path, texts: list[str], max_tokens: int, **settings: Any) -> Any:
    """As transformers says it: one text at a time."""
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder, **settings).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        rows = [
            model(**tokenizer(t, truncation=True, max_length=max_tokens, return_tensors="pt")).logits[0] for t in texts
        ]
    return torch.stack(rows)


# -- what they say ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["bert", "deberta"])
def test_any_sequence_classifier_says_what_transformers_says(folders: dict[str, Path], kind: str) -> None:
    stage = classifiers.DistributedDataClassifier(str(folders[kind]), score_field="scores", max_seq_length=64)
    made = run(stage, TEXTS)
    wanted = torch.softmax(plain_logits(folders[kind], TEXTS, 64), 1)
    assert made["preds"].to_pylist() == [LABELS[i] for i in wanted.argmax(1).tolist()]
    assert len(set(made["preds"].to_pylist())) > 1
    assert np.allclose(np.array(made["scores"].to_pylist()), wanted.numpy(), atol=1e-4)
    assert made["text"].to_pylist() == TEXTS
    assert made.column_names == ["text", "preds", "scores"]


def test_quality_is_one_layer_over_the_first_token_of_its_encoder(folders: dict[str, Path]) -> None:
    from safetensors.torch import load_file

    made = run(
        classifiers.QualityClassifier(model_identifier=str(folders["headed"]), score_field="p", max_seq_length=64),
        TEXTS,
    )
    weights = load_file(folders["headed"] / "model.safetensors")
    config = transformers.DebertaV2Config(**{k: v for k, v in small.DEBERTA.items() if k != "model_type"})
    encoder = transformers.DebertaV2Model(config).eval()
    encoder.load_state_dict({k.removeprefix("model."): v for k, v in weights.items() if k.startswith("model.")})
    tokenizer = transformers.AutoTokenizer.from_pretrained(folders["headed"])
    with torch.no_grad():
        first = [
            encoder(
                **tokenizer(t, truncation=True, max_length=64, return_tensors="pt", return_token_type_ids=False)
            ).last_hidden_state[0, 0]
            for t in TEXTS
        ]
        wanted = torch.softmax(
            torch.nn.functional.linear(torch.stack(first), weights["fc.weight"], weights["fc.bias"]), 1
        )
    assert np.allclose(np.array(made["p"].to_pylist()), wanted.numpy(), atol=1e-4)
    assert made["quality_pred"].to_pylist() == [LABELS[i] for i in wanted.argmax(1).tolist()]


def test_fineweb_edu_is_a_number_a_whole_number_and_a_label(folders: dict[str, Path]) -> None:
    made = run(classifiers.FineWebEduClassifier(model_identifier=str(folders["edu"])), TEXTS)
    wanted = plain_logits(folders["edu"], TEXTS, 128).reshape(-1).clamp(0, 5).double().numpy()
    scores = np.array(made["fineweb-edu-score-float"].to_pylist())
    assert np.allclose(scores, wanted, atol=1e-4)
    assert made["fineweb-edu-score-int"].to_pylist() == np.round(scores).astype(int).tolist()
    assert made["fineweb-edu-score-label"].to_pylist() == [
        "high_quality" if s >= 2.5 else "low_quality" for s in scores
    ]


def test_prompts_get_a_task_and_dimensions_that_add_up(folders: dict[str, Path]) -> None:
    made = run(classifiers.PromptTaskComplexityClassifier(model_identifier=str(folders["prompt"])), TEXTS).to_pylist()
    shares = {
        "creativity_scope": 0.35,
        "reasoning": 0.25,
        "constraint_ct": 0.15,
        "domain_knowledge": 0.15,
        "contextual_knowledge": 0.05,
        "number_of_few_shots": 0.05,
    }
    for row in made:
        assert row["prompt_complexity_score"] == pytest.approx(sum(row[k] * w for k, w in shares.items()), abs=1e-5)
        assert row["task_type_1"] in ("Brainstorming", "Rewrite", "Open QA", "Other")
        assert row["task_type_2"] != row["task_type_1"]
        assert 0 < row["task_type_prob"] <= 1
        assert row["number_of_few_shots"] == 0 or row["number_of_few_shots"] >= 0.05
    assert len({row["task_type_1"] for row in made}) > 1


@pytest.mark.parametrize("kind", ["llama", "mistral"])
def test_aegis_answers_are_those_of_the_model_with_its_adapter(folders: dict[str, Path], kind: str) -> None:
    paths = {"aegis_variant": str(folders["adapter"]), "base_model": str(folders[kind])}
    stage = classifiers.AegisClassifier(**paths, keep_raw_output=True, policy="O1: Violence.", max_chars=40)
    made = run(stage, [*TEXTS[:3], None]).to_pylist()
    assert [row["aegis_pred"] for row in made] == ["unknown"] * 3 + [None]  # random weights say nothing
    assert sorted(made[0]) == ["_aegis_raw_pred", "aegis_pred", "text"]
    from tamis.stages.text.classifiers.aegis_utils import format_aegis
    from tamis.stages.text.models.folder import open_folder
    from tamis.stages.text.models.language import adapter_of, add

    model = transformers.AutoModelForCausalLM.from_pretrained(folders[kind]).eval()
    add(model, adapter_of(folders["adapter"]))
    tokenizer = transformers.AutoTokenizer.from_pretrained(folders[kind])
    for row, text in zip(made, TEXTS[:3], strict=False):
        ids = tokenizer(format_aegis(text[:40], "O1: Violence."), return_tensors="pt", return_token_type_ids=False)
        answer = model.generate(**ids, max_new_tokens=100, do_sample=False, pad_token_id=0)[
            0, ids["input_ids"].shape[1] :
        ]
        assert row["_aegis_raw_pred"] == tokenizer.decode(answer, skip_special_tokens=True)
    plain = transformers.AutoModelForCausalLM.from_pretrained(folders[kind])
    changed = dict(model.named_parameters())["model.layers.0.self_attn.q_proj.weight"]
    from safetensors.torch import load_file

    low = load_file(folders["adapter"] / "adapter_model.safetensors")
    stem = "base_model.model.model.layers.0.self_attn.q_proj.lora_"
    wanted = plain.model.layers[0].self_attn.q_proj.weight + 2 * low[stem + "B.weight"] @ low[stem + "A.weight"]
    assert torch.allclose(changed, wanted, atol=1e-5)
    assert open_folder(folders[kind]).n_bytes > 0


def test_the_data_guard_looks_at_the_last_token_whatever_is_next_to_it(folders: dict[str, Path]) -> None:
    paths = {
        "aegis_variant": str(folders["adapter"]),
        "base_model": str(folders["llama"]),
        "model_identifier": str(folders["guard"]),
    }
    together = run(classifiers.InstructionDataGuardClassifier(**paths), TEXTS[:8])
    alone = run(classifiers.InstructionDataGuardClassifier(**paths, model_inference_batch_size=1), TEXTS[:8])
    field = "instruction_data_guard_poisoning_score"
    assert np.allclose(together[field].to_pylist(), alone[field].to_pylist(), atol=1e-5)
    assert together["is_poisoned"].to_pylist() == [s >= 0.5 for s in together[field].to_pylist()]
    assert len(set(np.round(together[field].to_pylist(), 4))) > 1


# -- what they do not depend on ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["bert", "deberta", "headed"])
def test_scores_depend_neither_on_batches_nor_on_neighbours(folders: dict[str, Path], kind: str) -> None:
    def scored(texts: list[str], **settings: Any) -> dict[str, list[float]]:
        stage = classifiers.DistributedDataClassifier(str(folders[kind]), score_field="p", label_field="l", **settings)
        made = run(stage, texts).to_pylist()
        return {row["text"]: [*row["p"], LABELS.index(row["l"])] for row in made}

    wanted = scored(TEXTS)
    for other in (
        scored(TEXTS, model_inference_batch_size=1),
        scored(TEXTS, model_inference_batch_size=7, sort_by_length=False),
        scored(TEXTS[::-1]),
        scored(TEXTS[5:9]),
    ):
        for text, found in other.items():
            assert found[-1] == wanted[text][-1]
            assert np.allclose(found, wanted[text], atol=1e-3)


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize(
    ("kind", "pad"),
    [("GPT2", None), ("GPT2", 0), ("Llama", None), ("Llama", 3), ("Roberta", 1), ("XLNet", 5), ("IBert", 1)],
)
def test_padding_is_never_read_wherever_it_is(tmp_path: Path, kind: str, pad: int | None, side: str) -> None:
    """Alone and beside a longer text.

    Some of them end with the token that pads: these scores are what transformers says of each text by itself.
    """
    folder = small.any_classifier(tmp_path, kind, pad_token_id=pad)
    texts = [*TEXTS[:6], "the quick[PAD]", "a lazy dog[SEP][PAD]"]
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokens = [tokenizer(t, truncation=True, max_length=60)["input_ids"] for t in texts]
    with torch.no_grad():
        wanted = torch.softmax(torch.cat([model(torch.tensor([ids])).logits for ids in tokens]), 1).numpy()
    assert np.ptp(wanted[:, 0]) > 0.001
    stage = classifiers.DistributedDataClassifier(
        str(folder), score_field="p", max_seq_length=60, padding_side=side, sort_by_length=False
    )
    assert np.allclose(run(stage, texts)["p"].to_pylist(), wanted, atol=1e-5)
    for i in (1, 7):
        assert np.allclose(run(stage, texts[i : i + 1])["p"].to_pylist(), wanted[i : i + 1], atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "most"),
    [("DistilBert", 50), ("MPNet", 50), ("Roberta", 64), ("GPT2", 64), ("Nystromformer", 50), ("Canine", 64)],
)
@pytest.mark.parametrize("is_known", [True, False])
def test_texts_have_no_more_tokens_than_the_model_has_positions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, most: int, is_known: bool
) -> None:
    """Nor has their padding; also of a kind of models that only its weights tell of."""
    from tamis.stages.text.models import folder as model_folders

    if not is_known:
        monkeypatch.setattr(model_folders, "_POSITIONS", {})
    folder = small.any_classifier(tmp_path, kind)
    long = " ".join(TEXTS)
    made = run(
        classifiers.DistributedDataClassifier(str(folder), score_field="p", max_seq_length=100, keep_tokens=True),
        [long, "the quick"],
    )
    assert len(made["input_ids"].to_pylist()[0]) == most
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    ids = tokenizer(long, truncation=True, max_length=most if is_known else 100)["input_ids"][:most]
    assert made["input_ids"].to_pylist()[0] == ids
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    with torch.no_grad():
        assert np.allclose(made["p"].to_pylist()[0], torch.softmax(model(torch.tensor([ids])).logits, 1)[0], atol=1e-5)


def test_numbers_of_numpy_are_numbers(folders: dict[str, Path]) -> None:
    def scored(number: Any) -> list[Any]:
        settings = {"max_chars": number(40), "max_seq_length": number(16), "model_inference_batch_size": number(4)}
        made = run(classifiers.DistributedDataClassifier(str(folders["bert"]), score_field="p", **settings), TEXTS)
        return list(made["p"].to_pylist())

    assert scored(np.int64) == scored(int)


def test_tokens_can_be_kept_and_used_again(folders: dict[str, Path]) -> None:
    first = run(
        classifiers.QualityClassifier(model_identifier=str(folders["headed"]), keep_tokens=True, score_field="p"), TEXTS
    )
    tokens = {"input_ids": first["input_ids"], "attention_mask": first["attention_mask"]}
    again = run(
        classifiers.QualityClassifier(
            model_identifier=str(folders["headed"]), use_existing_tokens=True, score_field="p"
        ),
        TEXTS,
        **tokens,
    )
    assert again["quality_pred"].to_pylist() == first["quality_pred"].to_pylist()
    wider = [[*row, 0, 0] for row in first["input_ids"].to_pylist()]
    masks = [[*row, 0, 0] for row in first["attention_mask"].to_pylist()]
    padded = run(
        classifiers.QualityClassifier(
            model_identifier=str(folders["headed"]), use_existing_tokens=True, score_field="p"
        ),
        TEXTS,
        input_ids=pa.array(wider),
        attention_mask=pa.array(masks),
    )
    assert np.allclose(np.array(padded["p"].to_pylist()), np.array(first["p"].to_pylist()), atol=1e-5)


# -- texts of all kinds -----------------------------------------------------------------------------------------------
def test_odd_texts_have_a_label_or_none(folders: dict[str, Path]) -> None:
    odd = ["", None, " \n\t", "😀🏳️‍🌈" * 50, "\x00\x07\x1b[31m\u202e\ufffe", "x" * 100_000, "the quick " * 5_000_000]
    made = run(
        classifiers.QualityClassifier(model_identifier=str(folders["headed"]), max_chars=None, score_field="p"), odd
    )
    assert made["text"].to_pylist() == odd
    assert [label is None for label in made["quality_pred"].to_pylist()] == [text is None for text in odd]
    assert made["p"].to_pylist()[1] is None
    kept = run(classifiers.QualityClassifier(model_identifier=str(folders["headed"]), filter_by=LABELS), odd)
    assert kept["text"].to_pylist() == [t for t in odd if t is not None]
    assert run(classifiers.QualityClassifier(model_identifier=str(folders["headed"])), []).num_rows == 0
    assert run(classifiers.QualityClassifier(model_identifier=str(folders["headed"])), [None])[
        "quality_pred"
    ].to_pylist() == [None]


def test_columns_have_one_type_whatever_texts_there_are(folders: dict[str, Path]) -> None:
    stages = [
        classifiers.PromptTaskComplexityClassifier(model_identifier=str(folders["prompt"]), keep_tokens=True),
        classifiers.QualityClassifier(model_identifier=str(folders["headed"]), score_field="p", keep_tokens=True),
        classifiers.FineWebEduClassifier(model_identifier=str(folders["edu"])),
        classifiers.InstructionDataGuardClassifier(
            aegis_variant=str(folders["adapter"]),
            base_model=str(folders["llama"]),
            model_identifier=str(folders["guard"]),
        ),
    ]
    for stage in stages:
        wanted = run(stage, [TEXTS[0], None]).schema
        assert run(stage, [None, None]).schema == run(stage, []).schema == wanted


def test_beginnings_have_the_tokens_of_the_whole(folders: dict[str, Path]) -> None:
    own, whole = Tokenizer(folders["bert"], 32), transformers.AutoTokenizer.from_pretrained(folders["bert"])
    long = [" ".join(TEXTS[i : i + 8]) * 5 for i in range(0, 32, 4)] + ["ab" * 3000, "", "é" * 2000]
    wanted = [whole(t, truncation=True, max_length=32)["input_ids"] for t in long]
    assert own.column(pa.array(long, pa.large_string())).to_pylist() == wanted
    short = [whole(t[:50], truncation=True, max_length=32)["input_ids"] for t in long]
    assert own.column(pa.array(long, pa.large_string()), max_chars=50).to_pylist() == short


# -- folders of all kinds ---------------------------------------------------------------------------------------------
def test_a_tokenizer_without_a_padding_token_is_as_good(tmp_path: Path) -> None:
    small.sequence_classifier(tmp_path / "a", padding=True)
    small.sequence_classifier(tmp_path / "b", padding=False)
    made = [run(classifiers.DistributedDataClassifier(str(tmp_path / n)), TEXTS)["preds"].to_pylist() for n in "ab"]
    assert made[0] == made[1]


def damaged(folder: Path, source: Path, **files: bytes | None) -> Path:
    folder.mkdir()
    for file in source.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    for name, data in files.items():
        path = folder / name.replace("__", ".")
        path.unlink() if data is None else path.write_bytes(data)
    return folder


class Trap:
    def __reduce__(self) -> Any:
        return open, ("/tmp/models-trap-was-run", "w")


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"model__safetensors": None}, "no weights"),
        ({"model__safetensors": b"\x10\0\0\0\0\0\0\0nonsense nonsens"}, "is damaged"),
        ({"config__json": None}, "no config.json"),
        ({"config__json": b"{not json"}, "config.json cannot be read"),
        ({"config__json": b"[1]"}, "expected a JSON object, got list"),
        ({"config__json": b'{"model_type": "no-such-thing"}'}, "cannot be loaded"),
        (
            {"model__safetensors": None, "pytorch_model__bin": pickle.dumps(Trap())},
            "pickled .pytorch_model.bin., .* only safetensors",
        ),
    ],
)
def test_folders_that_are_no_models_are_refused_by_name(
    tmp_path: Path, folders: dict[str, Path], files: dict[str, Any], words: str
) -> None:
    folder = damaged(tmp_path / "bad", folders["bert"], **files)
    stage = ClassifierModelStage(str(folder))
    with pytest.raises(UsageError, match=words) as told:
        stage.setup_on_node()
    assert str(folder) in str(told.value)
    assert not Path("/tmp/models-trap-was-run").exists()


@pytest.mark.parametrize(
    "part", ["weights.bin", "../bert/model.safetensors", "/models/model.safetensors", "gone.safetensors"]
)
@pytest.mark.parametrize("named_by", ["index", "config"])
def test_an_index_names_safetensors_of_its_folder_only(
    tmp_path: Path, folders: dict[str, Path], part: str, named_by: str
) -> None:
    """A file of another name lies there for the look at the folder; the library would open what the index says."""
    weights = (folders["bert"] / "model.safetensors").read_bytes()
    files = {"model__safetensors": None, "decoy__safetensors": weights, "weights__bin": pickle.dumps(Trap())}
    if named_by == "index":
        files["model__safetensors__index__json"] = json.dumps(
            {"weight_map": {"a": "decoy.safetensors", "b": part}}
        ).encode()
    else:
        config = json.loads((folders["bert"] / "config.json").read_text()) | {"transformers_weights": part}
        files["config__json"] = json.dumps(config).encode()
    folder = damaged(tmp_path / "bad", folders["bert"], **files)
    words = "is not there" if part == "gone.safetensors" else "only safetensors of the folder itself"
    with pytest.raises(UsageError, match=f"names '{part}'.*{words}"):
        ClassifierModelStage(str(folder)).setup_on_node()


def test_weights_in_parts_are_loaded(tmp_path: Path, folders: dict[str, Path]) -> None:
    whole = transformers.AutoModelForSequenceClassification.from_pretrained(folders["bert"])
    folder = damaged(tmp_path / "parts", folders["bert"], model__safetensors=None)
    whole.save_pretrained(folder, max_shard_size="40KB")
    assert (folder / "model.safetensors.index.json").exists()
    assert not (folder / "model.safetensors").exists()
    # An index of another precision, left over from a copy without its parts, is not looked at; but it names no other
    # files either.
    other = folder / "model.safetensors.index.fp16.json"
    other.write_text(json.dumps({"weight_map": {"a": "model.fp16-00001-of-00002.safetensors"}}))
    made = run(classifiers.DistributedDataClassifier(str(folder)), TEXTS[:3])["preds"].to_pylist()
    assert made == run(classifiers.DistributedDataClassifier(str(folders["bert"])), TEXTS[:3])["preds"].to_pylist()
    other.write_text(json.dumps({"weight_map": {"a": "../model.safetensors"}}))
    with pytest.raises(UsageError, match=r"fp16\.json names .*only safetensors of the folder itself"):
        ClassifierModelStage(str(folder)).setup_on_node()


def test_weights_that_were_cut_off_are_distinguished(tmp_path: Path, folders: dict[str, Path]) -> None:
    whole = (folders["headed"] / "model.safetensors").read_bytes()
    folder = damaged(tmp_path / "cut", folders["headed"], model__safetensors=whole[:-1000])
    with pytest.raises(UsageError, match=r"model.safetensors is damaged"):
        ClassifierModelStage(str(folder)).setup_on_node()


def test_code_of_a_folder_is_refused_unless_allowed(tmp_path: Path, folders: dict[str, Path]) -> None:
    config = {
        **json.loads((folders["bert"] / "config.json").read_text()),
        "auto_map": {"AutoModelForSequenceClassification": "evil.Evil"},
    }
    folder = damaged(tmp_path / "code", folders["bert"], config__json=json.dumps(config).encode())
    (folder / "evil.py").write_text("raise SystemExit('this was run')")
    with pytest.raises(
        UsageError, match=r"wants to run code of its own .auto_map in config.json.*trust_remote_code=True"
    ):
        ClassifierModelStage(str(folder)).setup_on_node()
    with pytest.raises(UsageError, match="wants to run code of its own"):
        Tokenizer(folder)


# -- code that a folder brings along ----------------------------------------------------------------------------------
CUSTOM_CLASSIFIERS = {
    "forward": """
class Custom(transformers.BertForSequenceClassification):
    def forward(self, *args, **kwargs):
        out = super().forward(*args, **kwargs)
        out.logits = out.logits[:, [2, 0, 1]] * 3
        return out
""",
    "head": """
class Head(torch.nn.Linear):
    def forward(self, x):
        return -3 * super().forward(x)

class Custom(transformers.BertForSequenceClassification):
    def __init__(self, config):
        super().__init__(config)
        self.classifier = Head(config.hidden_size, config.num_labels)
""",
    "pooler": """
class Custom(transformers.BertForSequenceClassification):
    def __init__(self, config):
        super().__init__(config)
        self.bert.pooler.activation = torch.nn.Identity()
""",
    "layer method": """
class Custom(transformers.BertForSequenceClassification):
    def __init__(self, config):
        super().__init__(config)
        for layer in self.bert.encoder.layer:
            layer.feed_forward_chunk = lambda x: x
""",
}


def with_code(folder: Path, source: Path, auto_map: dict[str, str], code: str) -> Path:
    """Copy a model's folder and add Python code of its own, named by `auto_map` in config.json."""
    config = {**json.loads((source / "config.json").read_text()), "auto_map": auto_map}
    made = damaged(folder, source, config__json=json.dumps(config).encode())
    (made / "custom_code.py").write_text("import torch\nimport transformers\n" + code)
    return made


@pytest.fixture
def own_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep copies of the code of model folders out of the user's cache."""
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr(sys, "path", list(sys.path))


@pytest.mark.usefixtures("own_modules")
@pytest.mark.parametrize("name", list(CUSTOM_CLASSIFIERS))
def test_a_custom_classifier_runs_its_own_code(tmp_path: Path, folders: dict[str, Path], name: str) -> None:
    auto_map = {"AutoModelForSequenceClassification": "custom_code.Custom"}
    folder = with_code(tmp_path / "custom", folders["bert"], auto_map, CUSTOM_CLASSIFIERS[name])
    settings = {"score_field": "scores", "max_seq_length": 64}
    made = run(classifiers.DistributedDataClassifier(str(folder), trust_remote_code=True, **settings), TEXTS)
    wanted = torch.softmax(plain_logits(folder, TEXTS, 64, trust_remote_code=True), 1).numpy()
    assert np.allclose(np.array(made["scores"].to_pylist()), wanted, atol=1e-4)
    plain = run(classifiers.DistributedDataClassifier(str(folders["bert"]), **settings), TEXTS)
    assert not np.allclose(np.array(plain["scores"].to_pylist()), wanted, atol=1e-2)


@pytest.mark.usefixtures("own_modules")
def test_custom_code_comes_before_the_layout_of_nvidia_classifiers(tmp_path: Path, folders: dict[str, Path]) -> None:
    auto_map = {"AutoModelForSequenceClassification": "custom_code.Custom"}
    folder = with_code(tmp_path / "custom", folders["bert"], auto_map, CUSTOM_CLASSIFIERS["forward"])
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "fc_dropout": 0.2}))
    made = run(classifiers.DistributedDataClassifier(str(folder), score_field="scores", trust_remote_code=True), TEXTS)
    wanted = torch.softmax(plain_logits(folder, TEXTS, 128, trust_remote_code=True), 1).numpy()
    assert np.allclose(np.array(made["scores"].to_pylist()), wanted, atol=1e-4)
    headed = with_code(tmp_path / "prompt", folders["prompt"], auto_map, CUSTOM_CLASSIFIERS["forward"])
    with pytest.raises(UsageError, match=r"runs code of its own .auto_map.*DistributedDataClassifier"):
        run(classifiers.PromptTaskComplexityClassifier(model_identifier=str(headed), trust_remote_code=True), TEXTS)


CUSTOM_LLAMA = """
class Custom(transformers.LlamaForCausalLM):
    def forward(self, *args, **kwargs):
        out = super().forward(*args, **kwargs)
        out.logits = out.logits.flip(-1)
        if out.hidden_states is not None:
            out.hidden_states = (*out.hidden_states[:-1], -out.hidden_states[-1])
        return out
"""


@pytest.mark.usefixtures("own_modules")
def test_a_custom_language_model_runs_its_own_code(tmp_path: Path, folders: dict[str, Path]) -> None:
    from tamis.stages.text.classifiers.aegis_utils import format_aegis
    from tamis.stages.text.models.language import adapter_of, add

    folder = with_code(
        tmp_path / "custom", folders["llama"], {"AutoModelForCausalLM": "custom_code.Custom"}, CUSTOM_LLAMA
    )
    paths: dict[str, Any] = {
        "aegis_variant": str(folders["adapter"]),
        "base_model": str(folder),
        "trust_remote_code": True,
    }
    made = run(
        classifiers.AegisClassifier(**paths, keep_raw_output=True, policy="O1: Violence.", max_chars=40), TEXTS[:3]
    )
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True).eval()
    add(model, adapter_of(folders["adapter"]))
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    for raw, text in zip(made["_aegis_raw_pred"].to_pylist(), TEXTS[:3], strict=True):
        ids = tokenizer(format_aegis(text[:40], "O1: Violence."), return_tensors="pt", return_token_type_ids=False)
        answer = model.generate(**ids, max_new_tokens=100, do_sample=False, pad_token_id=0)[0]
        assert raw == tokenizer.decode(answer[ids["input_ids"].shape[1] :], skip_special_tokens=True)
    guard = {"model_identifier": str(folders["guard"])}
    own = run(classifiers.InstructionDataGuardClassifier(**paths, **guard), TEXTS[:4])
    plain = run(
        classifiers.InstructionDataGuardClassifier(**{**paths, "base_model": str(folders["llama"])}, **guard), TEXTS[:4]
    )
    field = "instruction_data_guard_poisoning_score"
    assert not np.allclose(own[field].to_pylist(), plain[field].to_pylist(), atol=1e-3)


@pytest.mark.usefixtures("own_modules")
def test_a_custom_tokenizer_runs_its_own_code(tmp_path: Path) -> None:
    from tokenizers import Tokenizer as Words
    from tokenizers import models, pre_tokenizers

    vocabulary = {"[UNK]": 0, "[PAD]": 1, "[CLS]": 2, "[SEP]": 3, "quick": 4, "fox": 5, "slow": 6}
    own = Words(models.WordPiece(vocabulary, unk_token="[UNK]"))
    own.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    transformers.PreTrainedTokenizerFast(tokenizer_object=own, unk_token="[UNK]", pad_token="[PAD]").save_pretrained(
        tmp_path
    )
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert", **small.BERT}))
    assert Tokenizer(tmp_path).column(pa.array(["quick fox"])).to_pylist() == [[4, 5]]
    (tmp_path / "custom_code.py").write_text(
        "from transformers import PreTrainedTokenizerFast\n"
        "class Custom(PreTrainedTokenizerFast):\n"
        "    def __call__(self, text, *args, **kwargs):\n"
        "        return super().__call__([t.replace('quick', 'slow') for t in text], *args, **kwargs)\n"
    )
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text())
    settings |= {"auto_map": {"AutoTokenizer": [None, "custom_code.Custom"]}, "tokenizer_class": "Custom"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    tokenizer = Tokenizer(tmp_path, trust_remote_code=True)
    assert tokenizer.column(pa.array(["quick fox", "fox"])).to_pylist() == [[6, 5], [5]]


def test_a_model_that_is_nowhere_says_what_would_help(monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    def offline(**_: Any) -> None:
        raise OSError("the network is down")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", offline)
    with pytest.raises(
        UsageError, match=r"neither a folder here nor in the local cache.*the network is down.*give a folder"
    ):
        classifiers.QualityClassifier().decompose()[0].setup_on_node()
    with pytest.raises(UsageError, match="there is no such folder"):
        ClassifierModelStage("/no/such/folder").setup_on_node()


def test_heads_that_do_not_fit_their_labels_are_refused(tmp_path: Path, folders: dict[str, Path]) -> None:
    config = {**json.loads((folders["headed"] / "config.json").read_text()), "id2label": {"0": "one", "1": "two"}}
    folder = damaged(tmp_path / "labels", folders["headed"], config__json=json.dumps(config).encode())
    with pytest.raises(UsageError, match="names 2 labels, its weights have 3 outputs"):
        ClassifierModelStage(str(folder)).setup_on_node()


def test_without_the_extra_the_install_command_is_named(
    monkeypatch: pytest.MonkeyPatch, folders: dict[str, Path]
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(UsageError, match=r"pip install 'tamis\[models\]'"):
        ClassifierModelStage(str(folders["bert"])).setup_on_node()
    with pytest.raises(UsageError, match=r"pip install 'tamis\[models\]'"):
        Tokenizer(folders["bert"])


# -- parameters -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"filter_by": "High"}, "filter_by must be a list"),
        ({"model_inference_batch_size": 0}, "whole number of at least 1, got 0"),
        ({"max_chars": 0}, "max_chars: expected a whole number"),
    ],
)
def test_wrong_parameters_are_reported_at_once(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        classifiers.QualityClassifier(**settings)


def test_documents_are_kept_by_one_of_several_labels(tmp_path: Path) -> None:
    folder = str(small.sequence_classifier(tmp_path / "m", problem_type="multi_label_classification"))
    every = run(classifiers.DistributedDataClassifier(folder), TEXTS).to_pylist()
    stage = classifiers.DistributedDataClassifier(folder, filter_by=["High", "Low"])
    wanted = [row["text"] for row in every if {"High", "Low"} & set(row["preds"])]
    assert 0 < len(wanted) < len(TEXTS)
    assert run(stage, TEXTS)["text"].to_pylist() == wanted
    assert stage.filter_by_category(["Medium", "Low"])
    assert not stage.filter_by_category(["Medium"])


def test_labels_that_a_model_never_gives_are_refused(folders: dict[str, Path]) -> None:
    """They would drop every document, and nobody would be told."""
    for kind, label, words in (
        ("bert", "Hihg", r"has no label 'Hihg'; expected some of 'High', 'Medium', 'Low'"),
        ("edu", "2", "is a regression, whose label is a number"),
    ):
        stage = classifiers.DistributedDataClassifier(str(folders[kind]), filter_by=[label]).decompose()[1]
        for _ in range(2):
            with pytest.raises(UsageError, match=words):
                stage.setup()
    on_gpu = classifiers.DistributedDataClassifier(str(folders["bert"]), filter_by=["Hihg"]).decompose()[1]
    on_gpu.resources = Resources(cpus=1.0, gpus=1.0)  # the weights are loaded in a worker, later
    with pytest.raises(UsageError, match="has no label 'Hihg'; expected some of 'High', 'Medium', 'Low'"):
        on_gpu.setup_on_node()
    prompts = classifiers.PromptTaskComplexityClassifier(model_identifier=str(folders["prompt"]), filter_by=["Rewrit"])
    with pytest.raises(UsageError, match="expected some of 'Brainstorming', 'Rewrite', 'Open QA', 'Other'"):
        prompts.decompose()[1].setup()
    with pytest.raises(UsageError, match="expected some of 'high_quality', 'low_quality'"):
        classifiers.FineWebEduClassifier(filter_by=["high"])
    with pytest.raises(UsageError, match="has no label 'unsafe'; expected some of 'unknown', 'safe', 'O1'"):
        classifiers.AegisClassifier(filter_by=["safe", "unsafe"])
    with pytest.raises(UsageError, match="has no label 'poisoned'; expected some of True, False"):
        classifiers.InstructionDataGuardClassifier(filter_by=["poisoned"])


def test_what_is_not_poisoned_can_be_kept_by_a_word(folders: dict[str, Path]) -> None:
    paths = {
        "aegis_variant": str(folders["adapter"]),
        "base_model": str(folders["llama"]),
        "model_identifier": str(folders["guard"]),
    }
    every = run(classifiers.InstructionDataGuardClassifier(**paths), TEXTS[:12]).to_pylist()
    for word, value in (("false", False), ("True", True)):
        kept = run(classifiers.InstructionDataGuardClassifier(**paths, filter_by=[word]), TEXTS[:12])
        assert kept["text"].to_pylist() == [row["text"] for row in every if row["is_poisoned"] is value]
    assert len({row["is_poisoned"] for row in every}) == 2


def test_hidden_tokens_never_come_out(folders: dict[str, Path]) -> None:
    mine = pa.array([[i] for i in range(len(TEXTS))])
    made = run(classifiers.QualityClassifier(model_identifier=str(folders["headed"])), TEXTS, input_ids=mine)
    assert TOKENS not in made.column_names
    assert made["input_ids"].to_pylist() == mine.to_pylist()  # the user's own


# -- devices that are full --------------------------------------------------------------------------------------------
class FullDevice(Exception):
    pass


class FakeCard:
    """The CPU, pretending to be a card with room for so many tokens of a batch."""

    kind, name = "cpu", "a fake card"

    def __init__(self, limit: int) -> None:
        self.limit, self.n_released = limit, 0

    def is_full(self, exc: BaseException) -> bool:
        return isinstance(exc, FullDevice)

    def release(self, thorough: bool = False) -> None:
        self.n_released += 1

    def room(self) -> float | None:
        return None

    @contextmanager
    def turn(self) -> Iterator[Work]:
        yield Work(self.kind)


def on_card(folder: Path, limit: int, cuts: bool) -> ClassifierModelStage:
    stage = ClassifierModelStage(str(folder), max_seq_length=64)
    stage.setup()
    put_on_card(stage, limit, cuts)
    return stage


def put_on_card(stage: Any, limit: int, cuts: bool) -> list[Any]:
    """Give a stage a card of this size, and return the texts that the model received."""
    given: list[Any] = []
    card, network = FakeCard(limit), stage._network
    assert network is not None

    class Limited:
        packs = network.packs

        def n_tokens(self, text: Any) -> int:
            return int(network.n_tokens(text))

        def prepare(self, texts: Any, batch: Any) -> Any:
            given.extend(texts)
            return batch.n_tokens, network.prepare(texts, batch)

        def __call__(self, prepared: Any) -> Any:
            if prepared[0] > card.limit:
                raise FullDevice
            return network(prepared[1])

    stage._device, stage._network, stage._cuts = card, Limited(), cuts
    return given


def tokens(folder: Path, texts: list[str]) -> DocumentBatch:
    table = pa.table({"text": pa.array(texts, pa.large_string())})
    return DocumentBatch(
        "test", table.append_column(TOKENS, Tokenizer(folder, 64).column(table["text"].combine_chunks()))
    )


def test_labels_are_the_same_on_a_card_that_is_full_and_its_events_are_counted(folders: dict[str, Path]) -> None:
    stage = on_card(folders["bert"], 70, cuts=False)
    made = stage.process(tokens(folders["bert"], TEXTS)).to_pyarrow()["preds"].to_pylist()
    wanted = run(classifiers.DistributedDataClassifier(str(folders["bert"]), max_seq_length=64), TEXTS)
    assert made == wanted["preds"].to_pylist()
    assert stage._consume_custom_metrics()["out_of_device_memory"] >= 1


def test_a_document_that_does_not_fit_a_card_is_an_error_or_is_cut(folders: dict[str, Path]) -> None:
    long = " ".join(TEXTS)
    with pytest.raises(DeviceMemory, match="--gpu-overflow cut"):
        on_card(folders["bert"], 40, cuts=False).process(tokens(folders["bert"], [long, "short"]))
    stage = on_card(folders["bert"], 40, cuts=True)
    made = stage.process(tokens(folders["bert"], [long, "short"])).to_pyarrow()
    assert made["preds"].null_count == 0
    assert made["text"].to_pylist() == [long, "short"]  # the text itself stays
    assert stage._consume_custom_metrics()["cut_to_fit_device"] == 1


def test_of_a_prompt_that_does_not_fit_a_card_the_message_is_cut(folders: dict[str, Path]) -> None:
    """What all prompts begin with is read once, and the question at their end is asked."""
    paths = {"aegis_variant": str(folders["adapter"]), "base_model": str(folders["llama"])}
    prompt, tokenizer, model, _ = classifiers.AegisClassifier(**paths, policy="O1: Violence.").decompose()
    batch = DocumentBatch("test", pa.table({"text": pa.array([" ".join(TEXTS[:9])], pa.large_string())}))
    for part in (prompt, tokenizer):
        part.setup()
        batch = part.process(batch)
    (whole,) = batch.column(TOKENS).to_pylist()
    model.setup()
    before, behind = model._ends
    assert whole[: len(before)] == before
    assert whole[-len(behind) :] == behind
    given = put_on_card(model, len(behind) + 40, cuts=True)
    model.process(batch)
    assert model._consume_custom_metrics()["cut_to_fit_device"] == 1
    message = whole[len(before) : -len(behind)]
    assert 17 <= len(given[-1]) - len(before) - len(behind) <= 40 < len(message)
    n = len(given[-1]) - len(before) - len(behind)
    assert given[-1].tolist() == before + message[:n] + behind
    put_on_card(model, len(behind) + 8, cuts=True)
    with pytest.raises(DeviceMemory, match="cut as far as it can be"):
        model.process(batch)


def test_a_prompt_that_is_too_long_loses_the_end_of_its_message(folders: dict[str, Path]) -> None:
    paths = {"aegis_variant": str(folders["adapter"]), "base_model": str(folders["llama"])}

    def tokenized(max_tokens: int, texts: list[str]) -> tuple[list[list[int]], tuple[list[int], list[int]]]:
        stages = classifiers.AegisClassifier(**paths, policy="O1: Violence.", max_seq_length=max_tokens).decompose()
        batch = DocumentBatch("test", pa.table({"text": pa.array(texts, pa.large_string())}))
        for part in stages[:2]:
            part.setup()
            batch = part.process(batch)
        ends = stages[1]._tokenizer.ends_of([format_aegis(m, "O1: Violence.") for m in ("", "a", "b.")])
        return batch.column(TOKENS).to_pylist(), ends

    from tamis.stages.text.classifiers.aegis_utils import format_aegis

    texts = [TEXTS[3], "x" * 5000]
    (short, long), (before, behind) = tokenized(4096, texts)
    most = len(short)
    (same, cut), _ = tokenized(most, texts)
    assert same == short  # it fits, just
    assert cut == long[: most - len(behind)] + behind
    assert cut[: len(before)] == before
    with pytest.raises(UsageError, match=r"max_seq_length=100: prompt and special tokens take \d+ tokens"):
        tokenized(100, texts)


def test_code_that_was_allowed_is_allowed_everywhere() -> None:
    for make in (classifiers.AegisClassifier, classifiers.InstructionDataGuardClassifier):
        for trusts in (False, True):
            stages = make(trust_remote_code=trusts).decompose()
            assert [s.trust_remote_code for s in stages if hasattr(s, "trust_remote_code")] == [trusts] * (
                3 if make is classifiers.AegisClassifier else 2
            )


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"lora_alpha": None}, "expected a number above 0 as lora_alpha in adapter_config.json, got None"),
        ({"r": 0}, "expected a number above 0 as r in adapter_config.json, got 0"),
        ({"peft_type": "IA3"}, "expected a LoRA adapter, got peft_type 'IA3'"),
        ({"use_dora": True}, "got one with use_dora=True"),
        ({"rank_pattern": {"q_proj": 8}}, "got one with rank_pattern={'q_proj': 8}"),
        ({"alpha_pattern": {"q_proj": 8}}, "alpha_pattern"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"bias": "all"}, "bias=all"),
        ({"fan_in_fan_out": True}, "fan_in_fan_out"),
    ],
)
def test_adapters_that_are_not_plain_are_refused(tmp_path: Path, settings: dict[str, Any], words: str) -> None:
    from tamis.stages.text.models.language import adapter_of

    plain = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "bias": "none", "modules_to_save": None, "rank_pattern": {}}
    (tmp_path / "adapter_model.safetensors").write_bytes(b"")
    (tmp_path / "adapter_config.json").write_text(json.dumps(plain))
    assert adapter_of(tmp_path).scale == 2.0
    (tmp_path / "adapter_config.json").write_text(json.dumps(plain | settings))
    with pytest.raises(UsageError, match=words):
        adapter_of(tmp_path)


def test_weights_of_an_adapter_that_are_not_of_a_layer(folders: dict[str, Path], tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    from tamis.stages.text.models.folder import open_folder
    from tamis.stages.text.models.language import adapter_of, add
    from tamis.stages.text.models.networks import load

    folder = damaged(tmp_path / "other", folders["adapter"])
    plain = load_file(folder / "adapter_model.safetensors")
    head = torch.ones(400, 32)
    save_file(plain | {"base_model.model.lm_head.weight": head}, folder / "adapter_model.safetensors")
    model = load(open_folder(folders["llama"]), "AutoModelForCausalLM")
    add(model, adapter_of(folder))
    assert torch.equal(model.lm_head.weight, head)
    name = "base_model.model.model.embed_tokens.lora_embedding_A"
    save_file(plain | {name: torch.ones(4, 32)}, folder / "adapter_model.safetensors")
    with pytest.raises(UsageError, match=f"no lora_A and lora_B of a layer, nor a layer of its base model .{name}"):
        add(model, adapter_of(folder))


def test_another_model_in_the_same_folder_is_no_resuming(folders: dict[str, Path], tmp_path: Path) -> None:
    import shutil

    from tamis.engine.job import make_job
    from tamis.engine.run.identity import describe_job, differences
    from tamis.pipeline import Pipeline
    from tamis.stages.text.io import JsonlReader, JsonlWriter

    def described() -> Any:
        model = classifiers.DistributedDataClassifier(str(tmp_path / "m"))
        stages = [JsonlReader(str(tmp_path)), model, JsonlWriter(str(tmp_path / "out"))]
        return describe_job(make_job("p", Pipeline("p", stages=stages).build()), {})

    shutil.copytree(folders["bert"], tmp_path / "m")
    before = described()
    shutil.rmtree(tmp_path / "m")
    shutil.copytree(folders["bert"], tmp_path / "m")
    assert differences(before, described()) == []  # another copy of the same
    weights = bytearray((tmp_path / "m/model.safetensors").read_bytes())
    weights[-1] ^= 1
    (tmp_path / "m/model.safetensors").write_bytes(weights)
    assert any("model files changed" in told for told in differences(before, described()))


def test_another_adapter_is_another_model(folders: dict[str, Path], tmp_path: Path) -> None:
    from tamis.engine.run.identity import is_same_model
    from tamis.stages.text.models.folder import fingerprint

    def files(adapter: Path, guard: Path | None = None) -> str:
        paths = {"aegis_variant": str(adapter), "base_model": str(folders["llama"])}
        if guard is None:
            return classifiers.AegisClassifier(**paths).model_stage().model_files()
        return (
            classifiers.InstructionDataGuardClassifier(**paths, model_identifier=str(guard)).model_stage().model_files()
        )

    other = small.adapter(tmp_path / "other", folders["llama"], seed=2)
    other_guard = damaged(tmp_path / "guard", folders["guard"], README__txt=b"another")
    before = files(folders["adapter"])
    assert files(damaged(tmp_path / "copy", folders["adapter"])) == before
    assert not is_same_model(before, files(other))
    assert is_same_model(fingerprint(folders["llama"]), before)  # the adapter was not fetched yet
    assert is_same_model(files(tmp_path), before) is False  # an empty folder is no adapter of before
    guarded = files(folders["adapter"], folders["guard"])
    assert not is_same_model(guarded, files(folders["adapter"], other_guard))
    assert not is_same_model(guarded, files(other, folders["guard"]))


def test_a_language_model_for_a_card_is_loaded_in_half_precision(folders: dict[str, Path]) -> None:
    from tamis.stages.text.models.folder import open_folder
    from tamis.stages.text.models.language import adapter_of, add
    from tamis.stages.text.models.networks import load

    whole, half = (load(open_folder(folders["llama"]), "AutoModelForCausalLM", half=h) for h in (False, True))
    for model in (whole, half):
        add(model, adapter_of(folders["adapter"]))
    assert {p.dtype for p in whole.parameters()} == {torch.float32}
    assert {p.dtype for p in half.parameters()} == {torch.bfloat16}
    for a, b in zip(whole.parameters(), half.parameters(), strict=True):
        assert torch.allclose(a, b.float(), atol=1e-2, rtol=1e-2)


@pytest.mark.slow
def test_workers_that_share_a_device_and_write_elsewhere_give_the_same(
    folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a machine that reports a GPU but has none, the model has workers of its own, on the CPU; others write."""
    from tamis.pipeline import Pipeline
    from tamis.stages.text.io.reader import JsonlReader
    from tamis.stages.text.io.writer import JsonlWriter

    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps({"id": i, "text": t}) + "\n" for i, t in enumerate(TEXTS)), encoding="utf-8")
    found = []
    for device in ("", "0"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", device)
        stage = classifiers.DistributedDataClassifier(str(folders["bert"]), score_field="p", max_seq_length=64)
        assert stage.decompose()[1].resources.gpus == (0.25 if device else 0.0)
        output = tmp_path / f"out{device}"
        Pipeline("p", stages=[JsonlReader(str(source)), stage, JsonlWriter(str(output))]).execute(memory="3GB")
        found.append(sorted(line for p in output.glob("*.jsonl") for line in p.read_text().splitlines()))
    assert len(found[0]) == len(TEXTS)
    assert found[0] == found[1]


@pytest.mark.parametrize("max_chars", [-5, 0, True, 2.5])
def test_a_limit_of_characters_that_is_none_is_refused(tmp_path: Path, max_chars: Any) -> None:
    from tamis.stages.text.classifiers.aegis import FormatAegisPromptStage

    (tmp_path / "m.bin").touch()
    with pytest.raises(UsageError, match="FastTextClassifier: max_chars: expected a whole number"):
        classifiers.FastTextClassifier(str(tmp_path / "m.bin"), max_chars=max_chars)
    with pytest.raises(UsageError, match="AegisClassifier: max_chars: expected a whole number"):
        FormatAegisPromptStage("text", max_chars)
