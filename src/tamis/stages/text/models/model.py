"""ModelStage: token ids go through a network, and what comes out becomes columns.

The base of classifiers and embedders.

A subclass says how its network is loaded (`load`) and which columns its rows of numbers are (`columns`). Everything
else is here: where it runs, which texts go together, what happens when a device is full, and that documents without a
text get nulls.
"""

from __future__ import annotations

import shutil
import time
from abc import abstractmethod
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from tamis._lazy import np, pa
from tamis.errors import TamisError, UsageError
from tamis.memory import device_limits
from tamis.memory.device_limits import CUT_TO_FIT, OUT_OF_DEVICE_MEMORY, DeviceMemory
from tamis.secrets import Secret
from tamis.sizes import check_integer, check_optional_integer, format_size
from tamis.stages.base import ProcessingStage
from tamis.stages.text import pretrained
from tamis.stages.text.models import folder as folders
from tamis.stages.text.models.batching import TokenBatch
from tamis.stages.text.models.device import (
    AHEAD,
    Allowance,
    PreparedInputs,
    TorchDevice,
    choose_device,
    run_batches,
)
from tamis.stages.text.models.label_filter import refuse_unknown
from tamis.stages.text.models.utils import ATTENTION_MASK, INPUT_IDS, TOKENS, format_name_with_suffix, model_resources
from tamis.stages.traits import StageTraits
from tamis.stages.vector_cache import VectorCache, is_worth_storing
from tamis.tasks import DocumentBatch

if TYPE_CHECKING:
    from tamis.stages.text.models.networks import Tokens


_DEFAULT_TOKENS = 512
LEAST_TOKENS = 16  # a text that is cut keeps so many


class Network(Protocol):
    """A network that a model stage loads and runs.

    `packs`: texts are concatenated, without padding. `width`: values of a hidden state.
    """

    packs: bool
    width: int

    def prepare(self, texts: Tokens, batch: TokenBatch) -> Any:
        """Do the part of the work that does not need the device."""

    def __call__(self, prepared: Any) -> Any:
        """Return one row of numbers per text, as a tensor on the device (without waiting for it), or as an array."""


class ModelStage(ProcessingStage[DocumentBatch, DocumentBatch]):
    """`model_inference_batch_size`: texts of one batch at most.

    A batch has no more tokens than its device is fastest with.

    `has_seq_order=False` takes texts as they come instead of by length, which pads more and changes no score.
    `autocast`: on a GPU in bfloat16; on a CPU everything is float32. On a CPU workers share one copy of the weights.
    """

    columns_in = ("tokens_field",)

    def __init__(
        self,
        model_identifier: str,
        cache_dir: str | None = None,
        hf_token: str | None = None,
        model_inference_batch_size: int = 256,
        has_seq_order: bool = True,
        padding_side: str = "right",
        max_seq_length: int | None = None,
        autocast: bool = True,
        keep_tokens: bool = False,
        trust_remote_code: bool = False,
        tokens_field: str = TOKENS,
    ) -> None:
        n = model_inference_batch_size
        check_integer(n, "model_inference_batch_size")
        check_optional_integer(max_seq_length, "max_seq_length")
        if padding_side not in ("left", "right"):
            raise UsageError(f"padding_side: expected 'left' or 'right', got {padding_side!r}")
        self.model_identifier, self.cache_dir = model_identifier, cache_dir
        self.hf_token = None if hf_token is None else Secret(hf_token)
        self.model_inference_batch_size, self.has_seq_order, self.padding_side = n, has_seq_order, padding_side
        self.max_seq_length, self.autocast, self.keep_tokens = max_seq_length, autocast, keep_tokens
        self.trust_remote_code, self.tokens_field = trust_remote_code, tokens_field
        self.name = format_name_with_suffix(model_identifier, "_model")
        self.resources = model_resources(self.least_bytes)
        self._forget()

    traits: ClassVar[StageTraits] = StageTraits(only_adds=True, gives_documents=True, keeps_results=True)

    _network: Network | None = None
    _vector_folder: str | None = None
    _device: TorchDevice | None = None
    _allowance: Allowance | None = None
    _max_tokens: int = 0
    _cuts: bool = False
    _wanted: list[Any] | None = None

    # -- what a subclass says -----------------------------------------------------------------------------------------
    @abstractmethod
    def load(self, folder: folders.ModelFolder, device: TorchDevice) -> Network:
        """Load the network from the files of the model onto the device."""

    @abstractmethod
    def columns(self, rows: np.ndarray[Any, Any]) -> Mapping[str, Any]:
        """Return columns for documents with a text from the network's output (lists or Arrow arrays)."""

    def known_labels(self) -> list[Any] | None:
        """Return the labels that documents may be selected by; None if only the loaded model knows them."""
        return None

    # -- life cycle ---------------------------------------------------------------------------------------------------
    def setup_on_node(self, node_info: Any = None, worker_metadata: Any = None) -> None:
        """Fetch and check the files.

        Without a GPU the network is loaded here, once: workers are forked from this process and share its pages. With
        one it is not: CUDA does not survive a fork.
        """
        self._find()
        if not self.resources.requires_gpu:
            self.setup()

    def want_labels(self, labels: list[Any]) -> None:
        """Note the labels by which a later stage keeps documents.

        Those that its model does not have are refused as soon as that is known.
        """
        self._wanted = labels
        self._check_labels()

    def _check_labels(self) -> None:
        if self._wanted and (labels := self.known_labels()) is not None:
            refuse_unknown(self._wanted, labels, self.model_identifier)

    def least_bytes(self) -> int:
        """Return the size of the weights if they are already on this machine.

        With a GPU they pass through the host's memory, too.
        """
        try:
            return folders.weight_bytes(self._find_here())
        except (TamisError, OSError):  # reported at setup
            return 0

    def setup(self, worker_metadata: Any = None) -> None:
        if self._network is not None:
            return
        from tamis.stages.text.models.networks import need_torch

        torch = need_torch(f"{type(self).__name__} ({self.model_identifier})")
        kind = choose_device(self.resources.requires_gpu)
        if kind == "cpu":
            torch.set_num_threads(1)  # workers are the parallelism; and threads would not survive a fork
        limit = device_limits.assigned_limit()
        self._device, self._cuts = TorchDevice(kind, limit), limit.overflow == "cut"
        folder = self._find()
        self._max_tokens = folders.most_tokens(folder.config, self.max_seq_length, _DEFAULT_TOKENS)
        network = self._loaded(folder, self._device)
        self._check_labels()
        # If config.json is ambiguous or of an unknown kind, the weights decide.
        self._max_tokens = min(self._max_tokens, getattr(network, "longest", None) or self._max_tokens)
        self._network = network
        self._allowance = Allowance(
            self._device.shape(self.model_inference_batch_size, network.packs, not self.has_seq_order, network.width)
        )

    def _loaded(self, folder: folders.ModelFolder, device: TorchDevice) -> Network:
        """Return the loaded network.

        A GPU without room for the weights is an error of its own: more memory of this machine would not help.
        """
        try:
            return self.load(folder, device)
        except Exception as exc:
            if not device.is_full(exc):
                raise
        device.release()
        raise DeviceMemory(
            f"the model {folder.path} ({format_size(folder.n_bytes)} of weights) does not fit the memory that this "
            "worker may take of "
            f"{device.name}; give more with --gpu-memory (or a larger share: Resources.gpus), or use a device with "
            "more memory"
        )

    def model_files(self) -> str:
        try:
            return folders.fingerprint(self._find_here())
        except (TamisError, OSError):  # reported at setup; or not fetched yet
            return ""

    def teardown(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._network = self._device = self._allowance = None
        self._max_tokens = 0

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_network": None, "_device": None, "_allowance": None}

    def _find(self, identifier: str | None = None) -> folders.ModelFolder:
        path = folders.fetch(identifier or self.model_identifier, self.cache_dir, self.hf_token, self.trust_remote_code)
        return folders.open_folder(path, self.trust_remote_code)

    def _base(self, folder: folders.ModelFolder) -> folders.ModelFolder | None:
        """Return the model that a head was added to, for its shape; None if the folder itself specifies it."""
        base = folder.config.get("base_model")
        return None if "hidden_size" in folder.config or not isinstance(base, str) else self._find(base)

    def _find_here(self) -> Path:
        """Return the folder of the model if it is on this machine.

        For the supervisor, which opens no file of it but config.json.
        """
        return pretrained.local(self.model_identifier, self.cache_dir)

    # -- work ---------------------------------------------------------------------------------------------------------
    def process(self, task: DocumentBatch) -> DocumentBatch:
        self.setup()
        tokens = Tokenized(task, self.tokens_field, self._max_tokens)
        rows = (
            self._rows(tokens.texts)
            if self._vector_folder is None
            else self._known_rows(task, tokens, self._vector_folder)
        )
        columns = dict(self.columns(rows))
        result = task
        for name, values in columns.items():
            result = result.with_column(name, tokens.spread(values))
        if self._allowance is not None and self._allowance.n_failures:
            self._log_metric(OUT_OF_DEVICE_MEMORY, float(self._allowance.n_failures))
            self._allowance.n_failures = 0
        if self.tokens_field == TOKENS:
            result = result.drop_columns([TOKENS])
        if self.keep_tokens:
            ones = [np.ones(len(t), np.int64) for t in tokens.texts]
            result = result.with_column(INPUT_IDS, tokens.spread(as_lists(tokens.texts, np.int32)))
            result = result.with_column(ATTENTION_MASK, tokens.spread(as_lists(ones, np.int64)))
        return result

    def keep_between_passes(self, folder: str) -> None:
        self._vector_folder = folder

    def _known_rows(self, task: DocumentBatch, tokens: Tokenized, folder: str) -> np.ndarray[Any, Any]:
        """Return the network's rows, computed now or in an earlier pass of this workflow.

        A document is identified by its position.
        """
        cache = VectorCache(folder)
        cached_rows = cache.load(task)
        missing = [k for k, i in enumerate(tokens.at.tolist()) if cached_rows[i] is None]
        began = time.perf_counter()
        computed = self._rows([tokens.texts[k] for k in missing])
        seconds = time.perf_counter() - began
        new = {int(tokens.at[k]): row for k, row in zip(missing, computed, strict=True)}
        if new and is_worth_storing(seconds, computed.nbytes, shutil.disk_usage(folder).free):
            cache.store(task, new)
        self._log_metric("asked_again", float(len(missing)))
        rows = [new.get(i, cached_rows[i]) for i in tokens.at.tolist()]
        return np.stack(rows) if rows else computed

    def _n_tokens(self, text: np.ndarray[Any, Any]) -> int:
        """Return how many tokens of a text go through the network."""
        return len(text)

    def shortened(self, text: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return half of a text that does not fit the device (--gpu-overflow cut), or all at the minimum length."""
        if len(text) <= LEAST_TOKENS:
            return text
        n = max(LEAST_TOKENS, len(text) // 2)
        return np.concatenate([text[: n - 1], text[-1:]])  # the last one may be a mark of the end

    def _rows(self, texts: list[Any]) -> np.ndarray[Any, Any]:
        """Return the network's row for each text, in order.

        Results stay on the device until all batches have been submitted.
        """
        assert self._network is not None
        assert self._allowance is not None
        assert self._device is not None
        network, at, parts, was_cut = self._network, [], [], set()

        def cut(i: int) -> int:
            shorter = self.shortened(texts[i])
            if len(shorter) < len(texts[i]):
                texts[i] = shorter
                was_cut.add(i)
            return self._n_tokens(texts[i])

        lengths = [self._n_tokens(t) for t in texts]
        ahead = PreparedInputs(lambda batch: network.prepare([texts[i] for i in batch.at], batch))
        if self._device.kind != "cpu":
            ahead.make(lengths, self._allowance, AHEAD)
        batches = run_batches(
            lengths,
            lambda batch: network(ahead.take(batch)),
            self._allowance,
            self._device,
            cut if self._cuts else None,
        )
        with self._device.turn() as work:
            for positions, rows in batches:
                work.given()
                at += positions
                parts.append(rows)
        if was_cut:
            self._log_metric(CUT_TO_FIT, float(len(was_cut)))
        arrays = [np.asarray(p.cpu() if hasattr(p, "cpu") else p) for p in parts]
        if not arrays:
            return np.empty((0, 0), np.float32)
        rows = np.concatenate(arrays)
        out = np.empty_like(rows)
        out[np.asarray(at)] = rows
        return out


class Tokenized:
    """The token ids of a batch: `texts` of those documents that have any, and the way back to all of them."""

    def __init__(self, batch: DocumentBatch, field: str, max_tokens: int) -> None:
        column = batch.column(field)
        self._n = batch.num_items
        if field == TOKENS:
            offsets, values = column.offsets.to_numpy(), column.values.to_numpy(zero_copy_only=False)
            all_texts: list[Any] = [values[a:b] for a, b in pairwise(offsets.tolist())]
        else:
            all_texts = _existing(batch, field)
        self.at = np.array([i for i, t in enumerate(all_texts) if t is not None and len(t)], np.int64)
        self.texts = [all_texts[i][:max_tokens] for i in self.at.tolist()]

    def spread(self, values: Any) -> pa.Array:
        """Return one value per document: null if it has no text."""
        array = values if isinstance(values, pa.Array) else pa.array(values)
        if len(self.at) == self._n:
            return array
        if not len(self.at):
            return pa.nulls(self._n, array.type)
        where = np.full(self._n, -1, np.int64)
        where[self.at] = np.arange(len(self.at))
        return array.take(pa.array(np.maximum(where, 0), mask=where < 0))


def _existing(batch: DocumentBatch, field: str) -> list[Any]:
    """Return token ids of the input (use_existing_tokens), without the padding that attention_mask marks."""
    has_mask = ATTENTION_MASK in batch.get_columns()
    masks = batch.values(ATTENTION_MASK) if has_mask else [None] * batch.num_items
    results: list[Any] = []
    for ids, mask in zip(batch.values(field), masks, strict=True):
        try:
            own = None if ids is None else np.array(ids, np.int32)
            chosen = own if own is None or mask is None else own[np.array(mask, bool)]
        except (TypeError, ValueError, OverflowError, IndexError):
            raise UsageError(
                f"{field}: expected a list of token ids (and {ATTENTION_MASK} of the same length), got {str(ids)[:80]}"
            ) from None
        results.append(chosen)
    return results


def as_lists(rows: list[Any], dtype: Any) -> pa.Array:
    """Return arrays of numbers of one type as a column of lists of that type.

    Also where there is none: a column has one type, however documents are cut.
    """
    offsets = np.concatenate([[0], np.cumsum([len(r) for r in rows])]).astype(np.int64)
    values = np.concatenate([np.empty(0, dtype), *rows])
    return pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(values))
