"""AegisClassifier and InstructionDataGuardClassifier: Llama Guard with an adapter, asked for an answer or looked into.

Both read a language model (meta-llama/LlamaGuard-7b, gated) and the low-rank adapter of an Aegis model, which is added
to its weights once, when they are loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from tamis._lazy import np, pa, pc
from tamis.errors import TamisError, UsageError
from tamis.stages.base import ProcessingStage
from tamis.stages.fingerprints import joined
from tamis.stages.text import pretrained
from tamis.stages.text.classifiers.aegis_utils import AEGIS_LABELS, format_aegis, parse_answer
from tamis.stages.text.classifiers.base import Classifier
from tamis.stages.text.models import folder as folders
from tamis.stages.text.models.device import TorchDevice
from tamis.stages.text.models.model import LEAST_TOKENS, ModelStage, Network
from tamis.stages.text.models.tokenizer import Tokenizer, TokenizerStage
from tamis.stages.text.models.utils import TOKENS, check_max_chars
from tamis.stages.traits import StageTraits
from tamis.tasks import DocumentBatch

PRETRAINED_MODEL_NAME_OR_PATH = "meta-llama/LlamaGuard-7b"
AEGIS_VARIANTS = [
    "nvidia/Aegis-AI-Content-Safety-LlamaGuard-Defensive-1.0",
    "nvidia/Aegis-AI-Content-Safety-LlamaGuard-Permissive-1.0",
]
INSTRUCTION_DATA_GUARD_MODEL_IDENTIFIER = "nvidia/instruction-data-guard"
PROMPT = "_tamis_aegis_prompt"
MAX_SEQ_LENGTH = 4096
POISONED = 0.5
_MESSAGES = ("", "a", " a", "Z.", "1", "\n", "\u4e00", "\u0416")  # that have nothing in common


def prompts(policy: str | None) -> list[str]:
    """Return the prompts that share the common prefix and suffix of all prompts."""
    return [format_aegis(message, policy) for message in _MESSAGES]


@dataclass(repr=False)
class FormatAegisPromptStage(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Adds the prompt for the first `max_chars` characters of each text, as a column that a later stage removes."""

    text_field: str
    max_chars: int | None
    prompt_field: str = PROMPT
    policy: str | None = None
    name: str = "format_aegis_prompt"
    columns_in = ("text_field",)
    columns_out = ("prompt_field",)

    def __post_init__(self) -> None:
        check_max_chars("AegisClassifier", self.max_chars)

    def process(self, task: DocumentBatch) -> DocumentBatch:
        texts = task.texts(self.text_field)
        if self.max_chars is not None:
            texts = pc.utf8_slice_codeunits(texts, 0, self.max_chars)
        prompts = [None if text is None else format_aegis(text, self.policy) for text in texts.to_pylist()]
        return task.with_column(self.prompt_field, pa.array(prompts, pa.large_string()))


class AegisModelStage(ModelStage):
    """Generates the answers of the language model as token ids (Aegis), or scores its last layer (data guard)."""

    traits: ClassVar[StageTraits] = StageTraits(only_adds=True, gives_documents=True)  # answers are no rows of floats

    def __init__(
        self,
        model_identifier: str,
        cache_dir: str | None = None,
        hf_token: str | None = None,
        label_field: str = "preds",
        score_field: str = "probs",
        model_inference_batch_size: int = 256,
        has_seq_order: bool = True,
        add_instruction_data_guard: bool = False,
        autocast: bool = True,
        keep_tokens: bool = False,
        max_seq_length: int | None = MAX_SEQ_LENGTH,
        trust_remote_code: bool = False,
        tokens_field: str = TOKENS,
        base_model: str = PRETRAINED_MODEL_NAME_OR_PATH,
        guard_model: str = INSTRUCTION_DATA_GUARD_MODEL_IDENTIFIER,
        policy: str | None = None,
    ) -> None:
        self.base_model = base_model  # first: how large it is decides what this stage asks for
        super().__init__(
            model_identifier,
            cache_dir,
            hf_token,
            model_inference_batch_size,
            has_seq_order,
            "left",
            max_seq_length,
            autocast,
            keep_tokens,
            trust_remote_code,
            tokens_field,
        )
        self.label_field, self.score_field = label_field, score_field
        self.add_instruction_data_guard, self.guard_model = add_instruction_data_guard, guard_model
        # Of the prompts that were made: what all of them begin with is read once. No parameter of this stage: runs that
        # were begun without it resume.
        self._policy = policy
        self._ends: tuple[list[int], list[int]] = ([], [])

    def outputs(self) -> Any:
        return ["data"], [self.label_field] + ([self.score_field] if self.add_instruction_data_guard else [])

    def _find(self, identifier: str | None = None) -> folders.ModelFolder:
        """Return the folder of the base model by default: an adapter's folder has no config.json of its own."""
        return super()._find(identifier or self.base_model)

    def _find_here(self) -> Path:
        return pretrained.local(self.base_model, self.cache_dir)

    def model_files(self) -> str:
        """Return the fingerprints of the language model, of the adapter, and of the net that follows it."""
        others = [self.model_identifier, *([self.guard_model] if self.add_instruction_data_guard else [])]
        return joined([super().model_files(), *map(self._fingerprint, others)])

    def _fingerprint(self, identifier: str) -> str:
        try:
            return folders.fingerprint(pretrained.local(identifier, self.cache_dir))
        except (TamisError, OSError):  # reported at setup; or not fetched yet
            return ""

    def load(self, folder: folders.ModelFolder, device: TorchDevice) -> Network:
        from tamis.stages.text.models.language import AnsweringModel, GuardedModel, adapter_of

        adapter = adapter_of(folders.fetch(self.model_identifier, self.cache_dir, self.hf_token))
        if not self.add_instruction_data_guard:
            tokenizer = Tokenizer(folder.path, self._max_tokens, self.trust_remote_code)
            self._ends = tokenizer.ends_of(prompts(self._policy))  # of which the beginning is read once
            return AnsweringModel(folder, adapter, device, self._ends[0], self.trust_remote_code)
        guard = folders.fetch(self.guard_model, self.cache_dir, self.hf_token)
        return GuardedModel(folder, adapter, guard, device, self.trust_remote_code)

    def shortened(self, text: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Shorten the message of a prompt; keep the policy before it and the question after it."""
        prefix, suffix = (np.array(ids, text.dtype) for ids in self._ends)
        message = text[len(prefix) : len(text) - len(suffix)]
        if not len(prefix) or not np.array_equal(text, np.concatenate([prefix, message, suffix])):
            return super().shortened(text)
        if len(message) <= LEAST_TOKENS:
            return text
        return np.concatenate([prefix, message[: max(LEAST_TOKENS, len(message) // 2)], suffix])

    def _n_tokens(self, text: np.ndarray[Any, Any]) -> int:
        network: Any = self._network
        return int(network.n_tokens(text))

    def known_labels(self) -> list[Any] | None:
        return [True, False] if self.add_instruction_data_guard else AEGIS_LABELS

    def columns(self, rows: np.ndarray[Any, Any]) -> Mapping[str, Any]:
        if not self.add_instruction_data_guard:
            return {self.label_field: pa.array(list(rows), pa.large_list(pa.int32()))}
        scores = rows.reshape(-1).astype(np.float64)
        return {self.label_field: pa.array(scores >= POISONED), self.score_field: pa.array(scores)}


@dataclass(repr=False)
class PostProcessAegisResponsesStage(ProcessingStage[DocumentBatch, DocumentBatch]):
    """The label of each answer: safe, O1 to O13, or unknown.

    The answer itself in `raw_output_field` if it is to be kept.
    """

    cache_dir: str | None = None
    hf_token: str | None = None
    label_field: str = "aegis_pred"
    raw_output_field: str = "_aegis_raw_pred"
    keep_raw_output: bool = False
    aegis_prompt_field: str = PROMPT
    keep_aegis_prompt_field: bool = False
    base_model: str = PRETRAINED_MODEL_NAME_OR_PATH
    trust_remote_code: bool = False
    kernel_groups: ClassVar[tuple[str, ...]] = TokenizerStage.kernel_groups
    name: str = "postprocess_aegis_responses"
    columns_in = ("raw_output_field",)

    def __post_init__(self) -> None:
        self._tokenizer: Tokenizer | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_tokenizer": None}

    def outputs(self) -> Any:
        return ["data"], [self.label_field] + ([self.raw_output_field] if self.keep_raw_output else [])

    def setup_on_node(self, node_info: Any = None, worker_metadata: Any = None) -> None:
        self.setup()

    def setup(self, worker_metadata: Any = None) -> None:
        if self._tokenizer is None:
            path = folders.fetch(self.base_model, self.cache_dir, self.hf_token, self.trust_remote_code)
            self._tokenizer = Tokenizer(path, MAX_SEQ_LENGTH, self.trust_remote_code)

    def process(self, task: DocumentBatch) -> DocumentBatch:
        self.setup()
        assert self._tokenizer is not None
        raw = task.column(self.raw_output_field).to_pylist()
        answers = [None if ids is None else self._tokenizer.decode([i for i in ids if i >= 0]) for ids in raw]
        labels = [None if a is None else parse_answer(a) for a in answers]
        result = task.drop_columns(
            [self.raw_output_field, *([] if self.keep_aegis_prompt_field else [self.aegis_prompt_field])]
        )
        if self.keep_raw_output:
            result = result.with_column(self.raw_output_field, pa.array(answers, pa.large_string()))
        return result.with_column(self.label_field, pa.array(labels, pa.large_string()))


@dataclass(repr=False)
class AegisClassifier(Classifier):
    """Whether a text is safe, or which of 13 kinds of unsafe it is (O1 to O13).

    "unknown" where the model says something else.

    `aegis_variant`: one of AEGIS_VARIANTS, or the folder of its adapter; `base_model`: Llama Guard, or its folder.
    `policy`: the categories in the prompt, instead of this project's wording (aegis_utils.py).
    """

    aegis_variant: str = AEGIS_VARIANTS[0]
    cache_dir: str | None = None
    hf_token: str | None = None
    label_field: str = "aegis_pred"
    raw_output_field: str = "_aegis_raw_pred"
    keep_raw_output: bool = False
    text_field: str = "text"
    filter_by: list[str] | None = None
    max_chars: int | None = 6000
    sort_by_length: bool = True
    model_inference_batch_size: int = 64
    autocast: bool = True
    keep_tokens: bool = False
    aegis_prompt_field: str | None = None
    keep_aegis_prompt_field: bool = False
    use_existing_tokens: bool = False
    base_model: str = field(default=PRETRAINED_MODEL_NAME_OR_PATH, kw_only=True)
    policy: str | None = field(default=None, kw_only=True)
    max_seq_length: int | None = field(default=MAX_SEQ_LENGTH, kw_only=True)
    trust_remote_code: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        if self.keep_aegis_prompt_field and self.aegis_prompt_field is None:
            raise UsageError("AegisClassifier: keep_aegis_prompt_field needs a name for it: aegis_prompt_field")
        self.model_identifier = self.aegis_variant
        super().__post_init__()

    @property
    def _prompt(self) -> str:
        return self.aegis_prompt_field or PROMPT

    def tokenizer(self) -> TokenizerStage:
        stage = TokenizerStage(
            self.base_model,
            self.cache_dir,
            self.hf_token,
            self._prompt,
            None,
            self.max_seq_length,
            "left",
            self.sort_by_length,
            unk_token=True,
            trust_remote_code=self.trust_remote_code,
        )
        stage.keep_ends_of(prompts(self.policy))
        return stage

    def model_stage(self) -> ModelStage:
        return AegisModelStage(
            self.aegis_variant,
            label_field=self.raw_output_field,
            base_model=self.base_model,
            policy=self.policy,
            **self.settings(),
        )

    def model_stages(self) -> list[ProcessingStage[Any, Any]]:
        answers = PostProcessAegisResponsesStage(
            self.cache_dir,
            self.hf_token,
            self.label_field,
            self.raw_output_field,
            self.keep_raw_output,
            self._prompt,
            self.keep_aegis_prompt_field,
            self.base_model,
            self.trust_remote_code,
        )
        return [self.model_stage(), answers]

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        stages = super().decompose()
        if self.use_existing_tokens:
            return stages
        return [FormatAegisPromptStage(self.text_field, self.max_chars, self._prompt, self.policy), *stages]

    def outputs(self) -> Any:
        return self.model_stages()[-1].outputs()


@dataclass(repr=False)
class InstructionDataGuardClassifier(Classifier):
    """Whether an instruction data set was poisoned to plant a trigger: a score, and True from 0.5 on.

    `filter_by`: True or False, or these as words ("false" keeps what is not poisoned).
    """

    cache_dir: str | None = None
    hf_token: str | None = None
    label_field: str = "is_poisoned"
    score_field: str = "instruction_data_guard_poisoning_score"
    text_field: str = "text"
    filter_by: list[str] | None = None
    max_chars: int | None = None
    sort_by_length: bool = True
    model_inference_batch_size: int = 64
    autocast: bool = True
    keep_tokens: bool = False
    use_existing_tokens: bool = False
    aegis_variant: str = field(default=AEGIS_VARIANTS[0], kw_only=True)
    base_model: str = field(default=PRETRAINED_MODEL_NAME_OR_PATH, kw_only=True)
    model_identifier: str = field(default=INSTRUCTION_DATA_GUARD_MODEL_IDENTIFIER, kw_only=True)
    max_seq_length: int | None = field(default=MAX_SEQ_LENGTH, kw_only=True)
    trust_remote_code: bool = field(default=False, kw_only=True)

    def tokenizer(self) -> TokenizerStage:
        return TokenizerStage(
            self.base_model,
            self.cache_dir,
            self.hf_token,
            self.text_field,
            self.max_chars,
            self.max_seq_length,
            "left",
            self.sort_by_length,
            unk_token=True,
            trust_remote_code=self.trust_remote_code,
        )

    def model_stage(self) -> ModelStage:
        return AegisModelStage(
            self.aegis_variant,
            label_field=self.label_field,
            score_field=self.score_field,
            add_instruction_data_guard=True,
            base_model=self.base_model,
            guard_model=self.model_identifier,
            **self.settings(),
        )

    def wanted_labels(self) -> list[Any]:
        words = {"true": True, "false": False}  # a command line has words only
        return [words.get(v.strip().lower(), v) if isinstance(v, str) else v for v in self.filter_by or []]
