"""ImageReaderStage and ImageReader: images in tars (WebDataset) and folders, one row with a byte range for each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from tamis._dataclasses import dataclass
from tamis.formats.registry import suffixes
from tamis.sizes import check_amount, check_integer
from tamis.stages.io import Reader
from tamis.stages.text.io.reader.files import FileReaderStage, RowsReader
from tamis.tasks.image import ImageBatch


@dataclass(repr=False)
class ImageReaderStage(Reader):
    """Images of tars and image files (.tar .jpg .jpeg .png .webp), with caption and json where there are any.

    Reads headers only. `dali_batch_size`, `num_threads`, `num_gpus_per_worker` and `verbose` are what users of the
    original give: nothing is decoded here, so they decide nothing; batches follow from the memory budget.
    """

    dali_batch_size: int = 100
    verbose: bool = True
    num_threads: int = 8
    num_gpus_per_worker: float = 0.25
    name: str = "image_reader"
    formats: ClassVar[tuple[str, ...]] = ("images",)
    batch: ClassVar[type[ImageBatch]] = ImageBatch
    columns_in = ()
    columns_out = ()

    def __post_init__(self) -> None:
        check_integer(self.dali_batch_size, f"{self.name}: dali_batch_size")
        check_integer(self.num_threads, f"{self.name}: num_threads")
        check_amount(self.num_gpus_per_worker, f"{self.name}: num_gpus_per_worker")

    def process(self, task: Any) -> list[Any]:
        return [ImageBatch.like(super().process(task))]


@dataclass(repr=False)
class _ImageFilesStage(FileReaderStage):
    """Like ImageReaderStage, with the parameters of file readers."""

    name: str = "image_reader"
    formats: ClassVar[tuple[str, ...]] = ("images",)
    batch: ClassVar[type[ImageBatch]] = ImageBatch


@dataclass(repr=False)
class ImageReader(RowsReader):
    """Read images from tars (WebDataset) and image files (.jpg .jpeg .png .webp).

    The input is a folder, a glob, a file or a list of these.

    Parameters as in JsonlReader. An image that is damaged, cut off, no image or a bomb goes to quarantine.
    """

    file_extensions: Sequence[str] = suffixes("images")
    name: str = "image_reader"

    reader: ClassVar[type[FileReaderStage]] = _ImageFilesStage
