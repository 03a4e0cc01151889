"""ImageEmbeddingStage: each image gets the embedding of a CLIP model, a list of numbers of length 1.

Decoding, scaling and the network are one stage, so that pixels never leave the worker: of each image only the square
that the network looks at is kept, and only for `model_inference_batch_size` images at once (three times as many on a
GPU, which never waits for the decoder).
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

from tamis._lazy import np, pa
from tamis.errors import UsageError
from tamis.images.decode import check_libraries
from tamis.images.faults import ImageFault
from tamis.memory import device_limits
from tamis.stages.base import ProcessingStage
from tamis.stages.image.embedders.clip_vision import ClipVision
from tamis.stages.image.models import CLIP, check_batch_size, image_resources, model_place
from tamis.stages.image.pixels import Where, each, places, square
from tamis.stages.text import pretrained
from tamis.stages.text.models import folder as folders
from tamis.stages.text.models.device import TorchDevice, choose_device
from tamis.stages.traits import StageTraits
from tamis.stages.vector_cache import VectorCache, is_worth_storing
from tamis.tasks import DocumentBatch


@dataclass(repr=False)
class ImageEmbeddingStage(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Adds `embedding`.

    `model_dir`: a folder that holds the CLIP model (itself, or below its id); None: the hub's cache, or the hub.

    Runs on a GPU where there is one (`num_gpus_per_worker` of it, in bfloat16), else on the CPU. An image that cannot
    be decoded goes to quarantine. `remove_image_data`, `verbose`: pixels are never kept, so there is nothing to remove
    or to tell.
    """

    model_dir: str | None = None
    num_gpus_per_worker: float = 0.25
    model_inference_batch_size: int = 32
    verbose: bool = False
    remove_image_data: bool = False
    name: str = "image_embedding"
    model_identifier: str = field(default=CLIP, kw_only=True)
    embedding_field: str = field(default="embedding", kw_only=True)
    _network: ClipVision | None = field(default=None, init=False)
    _vector_folder: str | None = field(default=None, init=False)
    traits: ClassVar[StageTraits] = StageTraits(keeps_results=True)
    columns_in = ()
    columns_out = ("embedding_field",)
    kernel_groups: ClassVar[tuple[str, ...]] = ("pixels",)

    def __post_init__(self) -> None:
        check_batch_size(self.name, self.model_inference_batch_size)
        self.resources = image_resources(self.num_gpus_per_worker)
        self._pool: ThreadPoolExecutor | None = None
        if self.model_dir is not None:
            model_place(self.model_dir, self.model_identifier)

    # -- life cycle ---------------------------------------------------------------------------------------------------
    def setup_on_node(self, node_info: Any = None, worker_metadata: Any = None) -> None:
        """Download the model and check it; without a GPU, load it once so that workers share its pages."""
        check_libraries()
        self._folder()
        if not self.resources.requires_gpu:
            self.setup()

    def setup(self, worker_metadata: Any = None) -> None:
        if self._vector_folder is None or not VectorCache(self._vector_folder).has_any():
            self._load()  # else only if something is missing there

    def teardown(self) -> None:
        self._network = None
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None

    def keep_between_passes(self, folder: str) -> None:
        self._vector_folder = folder

    def least_bytes(self) -> int:
        try:
            place = pretrained.local(model_place(self.model_dir, self.model_identifier))
            return folders.weight_bytes(place)
        except (UsageError, OSError):  # reported at setup
            return 0

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_network": None, "_pool": None}

    def _folder(self) -> folders.ModelFolder:
        return folders.open_folder(folders.fetch(model_place(self.model_dir, self.model_identifier)))

    def _load(self) -> ClipVision:
        if self._network is None:
            from tamis.stages.text.models.networks import need_torch

            torch = need_torch(self.name)
            kind = choose_device(self.resources.requires_gpu)
            # Workers, and threads that decode, are the parallelism; its own would not survive a fork.
            torch.set_num_threads(1)
            device = TorchDevice(kind, device_limits.assigned_limit())
            self._network = ClipVision(self._folder(), device, self.model_inference_batch_size)
        return self._network

    # -- work ---------------------------------------------------------------------------------------------------------
    def process(self, batch: DocumentBatch) -> DocumentBatch:
        if not batch.num_items:
            return batch
        cache = VectorCache(self._vector_folder) if self._vector_folder is not None else None
        rows: list[Any] = cache.load(batch) if cache is not None else [None] * batch.num_items
        missing = [i for i, row in enumerate(rows) if row is None]
        if missing:
            locations, began_s = places(self.name, batch), time.perf_counter()
            for i, vector in zip(missing, self._embedded([locations[i] for i in missing]), strict=True):
                rows[i] = vector
            computed = {i: rows[i] for i in missing if not isinstance(rows[i], ImageFault)}
            if cache is not None and computed:
                _store_if_worth(cache, batch, computed, time.perf_counter() - began_s)
        good = np.array([not isinstance(row, ImageFault) for row in rows], bool)
        bad = [i for i in range(len(rows)) if not good[i]]
        self._note_bad(batch.serial[bad], [str(rows[i]) for i in bad])
        survivors = batch.filter(good)
        return survivors.with_column(self.embedding_field, as_column([rows[i] for i in np.flatnonzero(good)]))

    def _embedded(self, locations: list[Where]) -> list[Any]:
        """Return a vector for each image, or its fault."""
        out: list[Any] = []
        for faults, vectors in self._results(locations):
            each_vector = iter(vectors)
            out += [next(each_vector) if fault is None else fault for fault in faults]
        return out

    def _results(self, locations: list[Where]) -> Iterator[tuple[list[ImageFault | None], Any]]:
        """Yield for each chunk the fault of each image (or None) and the vectors of the images without one.

        The network works on a chunk while the one before is taken from it and the next ones are decoded.
        """
        network = self._load()
        if network.device.kind == "cuda" and self._pool is None:
            n = len(os.sched_getaffinity(0))
            share = self.resources.gpus if 0 < self.resources.gpus < 1 else 1.0
            self._pool = ThreadPoolExecutor(max(2, int(n * share)))
        make = partial(square, side=network.side)
        under_way: tuple[list[ImageFault | None], Callable[[], Any]] | None = None
        for chunk in each(locations, make, self.model_inference_batch_size, self._pool):
            squares = [one for one in chunk if not isinstance(one, ImageFault)]
            wait = network.begin(squares) if squares else list
            if under_way is not None:
                yield under_way[0], under_way[1]()
            under_way = [one if isinstance(one, ImageFault) else None for one in chunk], wait
        if under_way is not None:
            yield under_way[0], under_way[1]()


def _store_if_worth(cache: VectorCache, batch: DocumentBatch, computed: dict[int, Any], seconds: float) -> None:
    """Store vectors that took `seconds` to compute, if that is more than reading them again will take."""
    n_bytes = sum(v.nbytes for v in computed.values())
    if is_worth_storing(seconds, n_bytes, shutil.disk_usage(cache.folder).free):
        cache.store(batch, computed)


def as_column(vectors: list[Any]) -> Any:
    """Return the vectors of one length as a column of lists."""
    if not vectors:
        return pa.array([], pa.list_(pa.float32()))
    flat = np.ascontiguousarray(np.stack(vectors), np.float32)
    offsets = np.arange(len(vectors) + 1, dtype=np.int32) * flat.shape[1]
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(flat.reshape(-1)))
