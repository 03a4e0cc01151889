"""Parts of the input for several machines: every byte in exactly one, whatever the files are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tamis.engine.run.shard import Shard
from tamis.engine.supervisor.coverage import Coverage
from tamis.engine.supervisor.cursor import Cursor
from tamis.engine.units import TO_END, PieceKind
from tamis.errors import UsageError
from tamis.formats.input_files.listing import FileList

FILES = st.lists(
    st.tuples(st.sampled_from([PieceKind.BYTES, PieceKind.STREAM, PieceKind.ROWS]), st.integers(0, 50)),
    min_size=1,
    max_size=8,
)


def pieces(files: list[tuple[PieceKind, int]], shard: Shard, block: int) -> list[tuple[int, int, int]]:
    """Return what a run of this shard hands out."""
    listed, kinds = FileList(), [k for k, _ in files]
    for i, (_, size) in enumerate(files):
        listed.append(f"in{i}", size, 0)
    done = Coverage(lambda i: files[i][1] if kinds[i] is PieceKind.BYTES else -1)
    for stretch in shard.elsewhere(listed.sizes, kinds):
        done.add(*stretch)
    made, found = Cursor(listed, kinds, done), []
    while (work := made.next(block)) is not None:
        found += [(p.file, p.start, p.end) for p in work.pieces]
    return found


@given(FILES, st.integers(1, 9), st.integers(1, 60))
def test_shards_cover_everything_once(files: list[tuple[PieceKind, int]], n: int, block: int) -> None:
    handed = [piece for i in range(n) for piece in pieces(files, Shard(i, n), block)]
    for file, (kind, size) in enumerate(files):
        mine = sorted((a, b) for f, a, b in handed if f == file)
        if size == 0:
            assert mine == []
        elif kind is PieceKind.BYTES:
            assert mine[0][0] == 0
            assert [b for _, b in mine] == [*(a for a, _ in mine[1:]), size]
        else:
            assert mine == [(0, TO_END)]
    assert handed == sorted(handed)  # and their order is that of the input


def test_a_shard_is_about_its_share() -> None:
    files = [(PieceKind.BYTES, 1000)]
    assert pieces(files, Shard(3, 16), 10**6) == [(0, 187, 250)]
    assert Shard(3, 16).output_in("out") == "out/shard-00003-of-00016"
    assert Shard(0, 2).output_in("s3://bucket/out") == "s3://bucket/out/shard-00000-of-00002"


@pytest.mark.parametrize("typed", ["16/16", "3", "a/b", "1/0", "-1/3", "1/2/3", ""])
def test_what_is_no_shard_is_refused(typed: str) -> None:
    with pytest.raises(UsageError, match="expected INDEX/N with INDEX from 0 to N-1"):
        Shard.parse(typed)
