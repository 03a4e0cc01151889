"""Expand an input to the objects it names: by a prefix (a folder, searched at any depth), a pattern or an address.

The rules are those of local folders (formats/input_files/searching.py): names that begin with . or _ are skipped,
and so is the output of another run below the folder that was named.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, NoReturn

from tamis._dataclasses import dataclass
from tamis.errors import RunConflict, UsageError
from tamis.stores.opening import forget, source_of
from tamis.stores.reading import version_of
from tamis.stores.run_locations import LOCKS, RUN_DIRECTORY, RUN_SUFFIX
from tamis.stores.urls import is_bucket, name_in, split_s3

if TYPE_CHECKING:
    from tamis.stores.s3 import Bucket

SCRATCH_EXAMPLE = f"tamis-{0:016x}"  # what a run makes in a scratch folder has such a name
_MAGIC = re.compile(r"[*?[]")


@dataclass
class Listing:
    """Files with their sizes and versions, in order, and what was skipped: URLs by reason."""

    files: list[tuple[str, int, int]] = field(default_factory=list)
    hidden: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    own: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)  # other endings

    @property
    def is_empty(self) -> bool:
        return not (self.files or self.hidden or self.outputs or self.own or self.others)


def refuse_scratch(scratch: str | None) -> NoReturn:
    """Raise UsageError: temporary files would be stored where input is read from."""
    raise UsageError(
        f"scratch: {scratch} is inside the input: temporary files would be read as input; give a folder outside of it, "
        "or one whose name begins with a dot, which is never read"
    )


def list_input(
    url: str, accepted: Callable[[str], bool], leave_out: Sequence[str], scratch: str | None = None
) -> Listing:
    """Resolve an entry of the input to the files it means.

    `accepted`: returns True for a name that is to be read; `leave_out`: URLs that this run writes to;
    `scratch`: the location of its temporary files, which must not be among what is read.
    """
    if not is_bucket(url):
        return _one_address(url, accepted)
    name, key = split_s3(url)
    from tamis.stores.s3 import Bucket

    list_objects = _list_matching if _MAGIC.search(key) else _list_below
    return list_objects(url, Bucket(name), key, accepted, leave_out, scratch)


def _list_matching(
    url: str,
    bucket: Bucket,
    key: str,
    accepted: Callable[[str], bool],
    leave_out: Sequence[str],
    scratch: str | None,
) -> Listing:
    """List the objects of a bucket that a pattern matches."""
    scratch_key = _key_in(scratch, bucket.name)
    prefix = _MAGIC.split(key, maxsplit=1)[0]
    root = prefix.rpartition("/")[0]
    pattern = _pattern(key)
    if _is_read(scratch_key, root) and ("**" in key or pattern.fullmatch(f"{scratch_key}/{SCRATCH_EXAMPLE}")):
        refuse_scratch(scratch)
    listing = _search(bucket.objects(prefix), bucket.url, root, accepted, leave_out, pattern)
    if listing.is_empty:
        raise UsageError(f"no input files: nothing matches {url}")
    return listing


def _list_below(
    url: str,
    bucket: Bucket,
    key: str,
    accepted: Callable[[str], bool],
    leave_out: Sequence[str],
    scratch: str | None,
) -> Listing:
    """List one object of a bucket, or all of them below a prefix."""
    scratch_key = _key_in(scratch, bucket.name)
    key = key.strip("/")
    if key and (head := bucket.head(key)) is not None and not url.endswith("/"):
        if not accepted(key):
            raise UsageError(f"{url}: cannot tell its format by its name")
        return Listing([(bucket.url(key), head.size, version_of(head.etag))])
    if bucket.url(key).rstrip("/") in {u.rstrip("/") for u in leave_out}:
        raise RunConflict(f"{url} is the output, too; give another output")
    if _is_read(scratch_key, key):
        refuse_scratch(scratch)
    listing = _search(bucket.objects(f"{key}/" if key else ""), bucket.url, key, accepted, leave_out, None)
    if listing.is_empty:
        raise UsageError(f"no such object, and nothing below it: {url}")
    return listing


def _key_in(scratch: str | None, bucket: str) -> str | None:
    """Return the key below which temporary files will be stored, if it is in this bucket."""
    if scratch is None or not is_bucket(scratch):
        return None
    name, key = split_s3(scratch)
    return key.strip("/") if name == bucket else None


def _is_read(key: str | None, root: str) -> bool:
    """Return True if objects below `key` belong to what is read below `root`.

    Names that begin with . or _ do not.

    >>> [_is_read(key, "in") for key in ("in/tmp", "in", "in/.tmp", "inner")], _is_read("a", "")
    ([True, True, False, False], True)
    """
    if key is None or (root and key != root and not key.startswith(f"{root}/")):
        return False
    below = key[len(root) :].strip("/")
    return not any(part.startswith((".", "_")) for part in below.split("/"))


def _one_address(url: str, accepted: Callable[[str], bool]) -> Listing:
    if not accepted(name_in(url)):
        raise UsageError(
            f"{url.partition('?')[0]}: cannot tell its format; name one file, as web servers list no folders"
        )
    forget(url)
    source = source_of(url)
    return Listing([(url, source.size, source.version)])


def _search(
    objects: Iterator[object],
    url_of: Callable[[str], str],
    root: str,
    accepted: Callable[[str], bool],
    leave_out: Sequence[str],
    pattern: re.Pattern[str] | None,
) -> Listing:
    from tamis.stores.s3 import Object

    listing, outputs = Listing(), set[str]()
    own = {u.rstrip("/") for u in leave_out if is_bucket(u)}
    base = len(root) + 1 if root else 0
    candidates: list[tuple[str, int, int]] = []
    for item in objects:
        assert isinstance(item, Object)
        if item.key.endswith("/"):
            continue  # a placeholder that some tools make for a folder
        folders = item.key[base:].split("/")
        outputs |= _outputs_shown_by(folders, root)
        if RUN_DIRECTORY in folders:
            continue
        if pattern is not None and not pattern.fullmatch(item.key):
            continue
        if any(part.startswith((".", "_")) for part in folders):
            listing.hidden.append(url_of(item.key))
        elif not accepted(item.key):
            listing.others.append(url_of(item.key))
        else:
            candidates.append((item.key, item.size, version_of(item.etag)))
    _sort_out(candidates, listing, url_of, own, outputs)
    listing.files.sort()
    return listing


def _outputs_shown_by(folders: list[str], root: str) -> set[str]:
    """Return the folders below `root` that an object, named by its parts, shows to belong to a run.

    >>> sorted(_outputs_shown_by(["out", "_tamis", "lock"], "in")), _outputs_shown_by(["a.jsonl"], "in")
    (['in/out'], set())
    """
    above = [root] if root else []
    if RUN_DIRECTORY in folders:
        at = folders.index(RUN_DIRECTORY)
        return {"/".join(above + folders[:at])} if at else set()
    if folders[-1] in LOCKS and len(folders) > 1 and folders[-2].endswith(RUN_SUFFIX):
        run_dir = "/".join(above + folders[:-1])  # of an output that was copied here
        return {run_dir, run_dir.removesuffix(RUN_SUFFIX)}
    return set()


def _sort_out(
    candidates: list[tuple[str, int, int]],
    listing: Listing,
    url_of: Callable[[str], str],
    own: Collection[str],
    outputs: Collection[str],
) -> None:
    """Add the candidates to the files of a listing, except those below an output of this run or of another one."""
    for key, size, version in candidates:
        above = [key[:i] for i, c in enumerate(key) if c == "/"]
        if any(url_of(folder) in own for folder in above):
            listing.own.append(url_of(key))
        elif any(folder in outputs for folder in above):
            listing.outputs.append(url_of(key))
        else:
            listing.files.append((url_of(key), size, version))


def _pattern(key: str) -> re.Pattern[str]:
    """Compile a shell pattern for keys: * and ? stay inside a name, ** means any depth.

    What is below a match matches, too.

    >>> bool(_pattern("a/*.jsonl").fullmatch("a/b.jsonl")), bool(_pattern("a/*.jsonl").fullmatch("a/b/c.jsonl"))
    (True, False)
    >>> bool(_pattern("a/**/*.jsonl").fullmatch("a/b/c/d.jsonl")), bool(_pattern("a/*").fullmatch("a/b/c.jsonl"))
    (True, True)
    """
    out, i = "", 0
    while i < len(key):
        if key.startswith("**/", i):
            out, i = out + "(?:[^/]+/)*", i + 3
        elif key[i] == "*":
            out, i = out + "[^/]*", i + 1
        elif key[i] == "?":
            out, i = out + "[^/]", i + 1
        elif key[i] == "[" and (end := key.find("]", i + 3 if key.startswith("[!", i) else i + 2)) > 0:
            not_, inside = key[i + 1] == "!", re.sub(r"([\\\[^&~|])", r"\\\1", key[i + 1 : end].removeprefix("!"))
            out, i = out + f"(?!/)[{'^' if not_ else ''}{inside}]", end + 1
        else:
            out, i = out + re.escape(key[i]), i + 1
    try:
        return re.compile(f"{out}(?:/.*)?", re.DOTALL)
    except re.error as exc:
        raise UsageError(
            f"{key}: not a pattern ({exc.msg}); in [...] write the smaller letter first, as in [a-z]"
        ) from None
