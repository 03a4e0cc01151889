"""Samples of a WebDataset tar: consecutive members with the same key (the name up to the first dot).

Each image of a sample is a row, with the caption (.txt) and the json of its sample. Where rows begin is remembered
sparsely (every GROUP_ROWS rows), so that an index of a tar of a million images takes some 100 kB and any row is found
by a short walk.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from tamis.images.faults import TarFault
from tamis.images.headers import SUFFIXES
from tamis.images.tar import TarMember, members
from tamis.stores.spool import Bytes, open_bytes

# Of a sample: more with one key are further samples, so that a tar whose names all begin alike is never held.
MAX_MEMBERS = 1024
GROUP_ROWS = 250  # four are the images of a tar, as the writer makes them by default


class SampleRow(NamedTuple):
    """An image of a sample.

    `image` None: nothing to read, `fault` says why. `others`: members of the sample that are no images.
    """

    key: str
    image: TarMember | None
    others: tuple[TarMember, ...] = ()
    fault: str = ""


@dataclass
class TarIndex:
    """`begins`: byte and number of the first row of each group of rows.

    A tar that cannot be followed to its end has a last row of its own, whose fault says so; `fault_at` is the byte, -1:
    none.
    """

    begins: list[tuple[int, int]] = field(default_factory=list)
    n_rows: int = 0
    fault_at: int = -1


def key_of(name: str) -> tuple[str, str]:
    """Split a member's name into the key of its sample and the part that distinguishes it within the sample.

    >>> key_of("a/b.c/0001.left.JPG"), key_of("README")
    (('a/b.c/0001', 'left.JPG'), ('README', ''))
    """
    folder, slash, base = name.rpartition("/")
    stem, _, rest = base.partition(".")
    return folder + slash + stem, rest


def is_image(name: str) -> bool:
    return name.lower().endswith(SUFFIXES)


def rows(file: Bytes, start: int = 0) -> Iterator[tuple[int, SampleRow]]:
    """Yield the rows of the samples from byte `start` on, each with the byte at which its sample begins."""
    key, sample = "", list[TarMember]()
    try:
        for member in members(file, start):
            at = key_of(member.name)[0]
            if sample and (at != key or len(sample) >= MAX_MEMBERS):
                for row in _of_sample(key, sample):
                    yield sample[0].begin, row
                sample = []
            key = at
            sample.append(member)
    except TarFault as exc:
        for row in _of_sample(key, sample):
            yield sample[0].begin, row
        yield exc.offset, SampleRow("", None, fault=str(exc))
        return
    for row in _of_sample(key, sample):
        yield sample[0].begin, row


def _of_sample(key: str, sample: list[TarMember]) -> Iterator[SampleRow]:
    if not sample:
        return
    others = tuple(m for m in sample if not is_image(m.name) and not m.is_link)
    images = [m for m in sample if is_image(m.name)]
    for image in images:
        fault = f"{image.name}: a link, which has no image in it" if image.is_link else ""
        yield SampleRow(key, None if fault else image, others, fault)
    if not images:
        yield SampleRow(key, None, others, f"{sample[0].name}: a sample without an image")


_INDEXES: dict[tuple[str, int, int, int], TarIndex] = {}
_MAX_INDEXES = 8


def index_of(path: str) -> TarIndex:
    """Return the index of a tar, built by one pass over its headers; the last few are cached.

    Raise TarFault if the file is not a tar at all.
    """
    with open_bytes(path) as file:
        key = (path, file.size, *file.version)
        if key not in _INDEXES:
            while len(_INDEXES) >= _MAX_INDEXES:
                del _INDEXES[next(iter(_INDEXES))]
            _INDEXES[key] = _walk(file)
        return _INDEXES[key]


def _walk(file: Bytes) -> TarIndex:
    index, last = TarIndex(), -1
    for begin, row in rows(file):
        if row.fault and not row.key:
            if not index.n_rows:
                raise TarFault(begin, row.fault)
            index.fault_at = begin
        is_full = bool(index.begins) and index.n_rows - index.begins[-1][1] >= GROUP_ROWS
        if not index.begins or (is_full and begin != last):  # a group begins with a sample, never inside one
            index.begins.append((begin, index.n_rows))
        last = begin
        index.n_rows += 1
    return index
