"""ImageWriterStage: images as tars (WebDataset), with a Parquet file next to each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from tamis._dataclasses import dataclass
from tamis.errors import UsageError
from tamis.sizes import parse_size
from tamis.stages.io import Writer
from tamis.stages.text.io.writer.files import output_path


@dataclass(repr=False)
class ImageWriterStage(Writer):
    """Writes tars of images with their metadata in Parquet.

    Each tar in `output_dir` has up to `images_per_tar` images (and `max_tar_bytes`); the Parquet file of the same name
    has everything known of its images, scores and embeddings included.

    Tars are filled with the images of all batches of a partition. Images that no stage changed keep their bytes.
    `deterministic_name`: names of files are always a function of the input; False is refused. `remove_image_data`,
    `verbose`: pixels are never held, so there is nothing to remove or report.
    """

    output_dir: str
    images_per_tar: int = 1000
    verbose: bool = False
    deterministic_name: bool = True
    remove_image_data: bool = False
    name: str = "image_writer"
    mode: str = field(default="ignore", kw_only=True)
    max_tar_bytes: int | str = field(default="1GB", kw_only=True)

    format = "webdataset"
    file_extension = "tar"
    columns_in = ()
    columns_out = ()

    def __post_init__(self) -> None:
        if isinstance(self.images_per_tar, bool) or not isinstance(self.images_per_tar, int) or self.images_per_tar < 1:
            raise UsageError(f"{self.name}: images_per_tar must be a whole number above 0, got {self.images_per_tar!r}")
        if not self.deterministic_name:
            raise UsageError(
                f"{self.name}: names of files are a function of the input, so that a run can be resumed; leave "
                "deterministic_name=True"
            )
        if self.mode not in ("ignore", "error"):
            raise UsageError(
                f"{self.name}: mode must be ignore or error, got {self.mode!r}; start over with fresh (--fresh)"
            )
        self.output_dir = self.path = output_path(self.name, self.output_dir)
        parse_size(self.max_tar_bytes, f"{self.name}: max_tar_bytes")

    @property
    def options(self) -> Mapping[str, Any]:  # type: ignore[override]
        return {"per_tar": self.images_per_tar, "max_bytes": parse_size(self.max_tar_bytes)}
