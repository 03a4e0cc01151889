"""Classifiers over small models of their own architectures: heads, labels, whole runs, and what hostile folders meet."""

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

torch = pytest.importorskip("torch", reason="the extra `models` is not installed")
transformers = pytest.importorskip("transformers", reason="the extra `models` is not installed")
sys.path.insert(0, str(Path(__file__).parents[1] / "models"))

import small_models as small  # noqa: E402

from tamis.errors import UsageError  # noqa: E402
from tamis.stages.text import classifiers  # noqa: E402
from tamis.stages.text.classifiers.base import ClassifierModelStage  # noqa: E402
from tamis.stages.text.models.device import DeviceMemory, Work  # noqa: E402
from tamis.stages.text.models.tokenizer import Tokenizer  # noqa: E402
from tamis.stages.text.models.utils import TOKENS  # noqa: E402
from tamis.tasks import DocumentBatch  # noqa: E402

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
    """What comes out of the stages of a classifier, in this process."""
    batch = DocumentBatch("test", pa.table({"text": pa.array(texts, pa.large_string()), **columns}))
    for part in stage.decompose():
        part.setup_on_node()
        part.setup()
        batch = part.process(batch)
    return batch.to_pyarrow()


def plain_logits(folder: Path, texts: list[str], max_tokens: int) -> Any:
    """As transformers says it: one text at a time."""
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        rows = [
            model(**tokenizer(t, truncation=True, max_length=max_tokens, return_tensors="pt")).logits[0] for t in texts
        ]
    return torch.stack(rows)


# -- what they say ------------------------------------------------------------------------------------------------------
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
    shares = {"creativity_scope": 0.35, "reasoning": 0.25, "constraint_ct": 0.15, "domain_knowledge": 0.15, "contextual_knowledge": 0.05, "number_of_few_shots": 0.05}  # fmt: skip
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


def test_the_data_guard_looks_at_the_last_token_whatever_lies_beside_it(folders: dict[str, Path]) -> None:
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


# -- what they do not depend on -------------------------------------------------------------------------------------------
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
        classifiers.QualityClassifier(model_identifier=str(folders["headed"]), use_existing_tokens=True, score_field="p"), TEXTS,
        input_ids=pa.array(wider), attention_mask=pa.array(masks),
    )  # fmt: skip
    assert np.allclose(np.array(padded["p"].to_pylist()), np.array(first["p"].to_pylist()), atol=1e-5)


# -- texts of all kinds -----------------------------------------------------------------------------------------------------
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


def test_beginnings_have_the_tokens_of_the_whole(folders: dict[str, Path]) -> None:
    own, whole = Tokenizer(folders["bert"], 32), transformers.AutoTokenizer.from_pretrained(folders["bert"])
    long = [" ".join(TEXTS[i : i + 8]) * 5 for i in range(0, 32, 4)] + ["ab" * 3000, "", "é" * 2000]
    wanted = [whole(t, truncation=True, max_length=32)["input_ids"] for t in long]
    assert own.column(pa.array(long, pa.large_string())).to_pylist() == wanted
    short = [whole(t[:50], truncation=True, max_length=32)["input_ids"] for t in long]
    assert own.column(pa.array(long, pa.large_string()), max_chars=50).to_pylist() == short


# -- folders of all kinds -----------------------------------------------------------------------------------------------------
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


def test_weights_that_were_cut_off_are_told_apart(tmp_path: Path, folders: dict[str, Path]) -> None:
    whole = (folders["headed"] / "model.safetensors").read_bytes()
    folder = damaged(tmp_path / "cut", folders["headed"], model__safetensors=whole[:-1000])
    with pytest.raises(UsageError, match=r"model.safetensors is damaged"):
        ClassifierModelStage(str(folder)).setup_on_node()


def test_code_of_a_folder_is_refused_unless_asked_for(tmp_path: Path, folders: dict[str, Path]) -> None:
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


# -- parameters ---------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"filter_by": "High"}, "filter_by must be a list"),
        ({"model_inference_batch_size": 0}, "whole number above 0, got 0"),
        ({"max_chars": 0}, "max_chars must be a whole number above 0"),
    ],
)
def test_wrong_parameters_are_told_at_once(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        classifiers.QualityClassifier(**settings)


def test_hidden_tokens_never_come_out(folders: dict[str, Path]) -> None:
    mine = pa.array([[i] for i in range(len(TEXTS))])
    made = run(classifiers.QualityClassifier(model_identifier=str(folders["headed"])), TEXTS, input_ids=mine)
    assert TOKENS not in made.column_names
    assert made["input_ids"].to_pylist() == mine.to_pylist()  # the user's own


# -- devices that are full ----------------------------------------------------------------------------------------------
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
    card, network = FakeCard(limit), stage._network
    assert network is not None

    class Limited:
        packs = network.packs

        def prepare(self, texts: Any, batch: Any) -> Any:
            return batch.n_tokens, network.prepare(texts, batch)

        def __call__(self, prepared: Any) -> Any:
            if prepared[0] > card.limit:
                raise FullDevice
            return network(prepared[1])

    stage._device, stage._network, stage._cuts = card, Limited(), cuts  # type: ignore[assignment]
    return stage


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
    assert any("model files was" in told for told in differences(before, described()))


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
    """A machine that says it has a GPU, and has none: the model has workers of its own, on the CPU, and others write."""
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
    with pytest.raises(UsageError, match="FastTextClassifier: max_chars must be a whole number above 0, or None"):
        classifiers.FastTextClassifier(str(tmp_path / "m.bin"), max_chars=max_chars)
    with pytest.raises(UsageError, match="AegisClassifier: max_chars must be a whole number above 0, or None"):
        FormatAegisPromptStage("text", max_chars)
