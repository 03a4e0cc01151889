"""Batches of images. A row holds the location of an image; pixels are decoded on access.

`ImageBatch.data` is a list of ImageObject for stages that users write: they may change objects, leave some out, or
build a new batch of them. Built-in stages use the columns of the batch, which is a DocumentBatch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any

from tamis import _satellites
from tamis._dataclasses import dataclass
from tamis._lazy import np, pa
from tamis.errors import UsageError
from tamis.stores.urls import path_of
from tamis.tasks.document import DocumentBatch
from tamis.tasks.lineage import ROW_ID
from tamis.tasks.tasks import Task

_COLUMNS = {"image_id": "id"}
_OWN = ("image_id", "image_path", "embedding", "aesthetic_score", "nsfw_score")
_CHANGED = "image_bytes"


def column_of(name: str) -> str:
    """Return the column that holds a field of ImageObject.

    >>> column_of("image_id"), column_of("embedding")
    ('id', 'embedding')
    """
    return _COLUMNS.get(name, name)


class ImageObject:
    """One image.

    `metadata`: its other columns (width, height, caption, json, member, ...). `image_data` is decoded on access, an
    array of height x width x 3 bytes, and not cached; an array that is assigned replaces the image in the output.
    """

    def __init__(
        self,
        image_path: str = "",
        image_id: str = "",
        metadata: dict[str, Any] | None = None,
        image_data: np.ndarray[Any, Any] | None = None,
        embedding: Any = None,
        aesthetic_score: float | None = None,
        nsfw_score: float | None = None,
    ) -> None:
        self.image_path, self.image_id, self.metadata = image_path, image_id, {} if metadata is None else metadata
        self.embedding, self.aesthetic_score, self.nsfw_score = embedding, aesthetic_score, nsfw_score
        self._pixels = image_data
        self._serial = -1

    @property
    def image_data(self) -> np.ndarray[Any, Any] | None:
        if self._pixels is not None:
            return self._pixels
        stored = self.image_bytes
        if stored is None:
            return None
        pixels: np.ndarray[Any, Any] = _satellites.load("image.decode")(stored)
        return pixels

    @image_data.setter
    def image_data(self, pixels: np.ndarray[Any, Any] | None) -> None:
        """Assign pixels; None discards pixels that were assigned (or never looked at) in favour of the stored image."""
        self._pixels = pixels

    @property
    def image_bytes(self) -> bytes | None:
        """The image as it is stored; None for an object without a stored image."""
        changed = self.metadata.get(_CHANGED)
        if changed is not None:
            return bytes(changed)
        offset, length = self.metadata.get("offset"), self.metadata.get("length")
        if offset is None or length is None or not self.image_path:
            return None

        stored: bytes = _satellites.load("image.read_span")(path_of(self.image_path), int(offset), int(length))
        return stored

    def __repr__(self) -> str:
        return f"ImageObject({self.image_id!r}, {self.image_path!r})"


class ImageBatch(DocumentBatch):
    """Images in a batch.

    As a DocumentBatch it has columns: id, image_path, member, offset, length, format, width, height, caption, json,
    others, and what stages add (embedding, aesthetic_score, nsfw_score).
    """

    def __init__(
        self,
        dataset_name: str = "",
        data: Sequence[ImageObject] | None = None,
        _stage_perf: list[Any] | None = None,
        _metadata: dict[str, Any] | None = None,
        task_id: str = "",
    ) -> None:
        super().__init__(dataset_name, None, _stage_perf, _metadata, task_id)
        self._objects: list[ImageObject] | None = None
        if data is not None:
            self.data = list(data)

    @property
    def data(self) -> Any:
        if self.__dict__.get("_objects") is None:
            objects = _objects_of(self)
            if self._rows is not None:
                self._put(None)
            self._objects = objects
        return self._objects

    @data.setter
    def data(self, value: Any) -> None:
        if not all(isinstance(v, ImageObject) for v in value):
            raise UsageError("ImageBatch(data=...): expected a list of ImageObject")
        self._put(None)
        self._objects = list(value)

    @property
    def num_items(self) -> int:
        objects = self.__dict__.get("_objects")
        return len(objects) if objects is not None and self._rows is None else super().num_items

    def settle(self) -> None:
        """Turn the objects back into a table, whose rows are traced to the documents they came from."""
        objects = self.__dict__.get("_objects")
        if objects is not None and self._rows is None:
            self._table, self._objects = _table_of(objects), None

    def validate(self) -> bool:
        return True


def _objects_of(batch: DocumentBatch) -> list[ImageObject]:
    table = batch.traced_table()
    serials = table.column(ROW_ID).to_pylist() if ROW_ID in table.column_names else [-1] * len(table)
    objects = []
    for row, serial in zip(table.to_pylist(), serials, strict=True):
        fields = {name: row.pop(column_of(name), None) for name in _OWN}
        row.pop(ROW_ID, None)
        fields |= {name: fields[name] or "" for name in ("image_path", "image_id")}
        objects.append(ImageObject(metadata=row, **{**fields, "embedding": _as_array(fields["embedding"])}))
        objects[-1]._serial = serial
    return objects


def _as_array(values: Any) -> Any:
    return None if values is None else np.asarray(values, np.float32)


def _table_of(objects: Sequence[ImageObject]) -> pa.Table:
    changed = [_stored(o) for o in objects] if any(o._pixels is not None for o in objects) else None
    columns = _metadata_columns(objects)
    for name in _OWN:
        values = _own_values(objects, name)
        if name in ("image_id", "image_path") or any(v is not None for v in values):
            columns[column_of(name)] = values
    if changed is not None:
        columns[_CHANGED] = changed
    table = pa.table({n: _typed(n, v) for n, v in columns.items()})
    return table.append_column(ROW_ID, pa.array([o._serial for o in objects], pa.int64()))


def _metadata_columns(objects: Sequence[ImageObject]) -> dict[str, list[Any]]:
    names = list(dict.fromkeys(name for o in objects for name in o.metadata))
    return {n: [o.metadata.get(n) for o in objects] for n in names if n != ROW_ID}


def _own_values(objects: Sequence[ImageObject], name: str) -> list[Any]:
    """Return one attribute of all objects; embeddings as lists of floats."""
    values = [getattr(o, name) for o in objects]
    if name != "embedding":
        return values
    return [None if v is None else [float(x) for x in v] for v in values]


def _typed(name: str, values: list[Any]) -> pa.Array:
    if name == "embedding":
        return pa.array(values, pa.list_(pa.float32()))
    return pa.array(values, pa.large_binary()) if name == _CHANGED else pa.array(values)


def _stored(image: ImageObject) -> bytes | None:
    """Encode assigned pixels in the image's own format, or as PNG where that would lose anything that can be kept."""
    pixels = image._pixels
    if pixels is None:
        changed = image.metadata.get(_CHANGED)
        return None if changed is None else bytes(changed)
    data: bytes
    data, kind = _satellites.load("image.encode")(pixels, str(image.metadata.get("format") or "png"))
    image.metadata.update(format=kind, height=int(pixels.shape[0]), width=int(pixels.shape[1]))
    return data


@dataclass
class ImageTaskData:
    """The path of an image, for stages that read it themselves."""

    image_path: str
    image_id: str | None = None
    is_valid: bool = True
    error: str | None = None

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))


@dataclass
class ImageSampleTask(Task[Any]):
    """One such image as a task."""

    dataset_name: str = ""
    data: Any = None
    _stage_perf: list[Any] = field(default_factory=list, repr=False)
    _metadata: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def num_items(self) -> int:
        return 1

    def validate(self) -> bool:
        return isinstance(self.data, ImageTaskData) and bool(self.data.image_path)
