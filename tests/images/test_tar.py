"""Tars by their headers alone: the same members as `tarfile` finds, and faults by name where it cannot go on."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tamis.formats.base import RowsFault
from tamis.images import format as images
from tamis.images import samples
from tamis.images.faults import TarFault
from tamis.images.tar import TarMember, members, number
from tamis.stores.spool import Bytes
from tests.support.sample_images import jpeg, tar

LONG = "a" * 90 + "/" + "b" * 120 + ".jpg"


def found(path: Path) -> list[TarMember]:
    with open(path, "rb") as file:
        return list(members(Bytes(file.fileno())))


def written(path: Path, form: int, names: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w", format=form) as out:
        folder = tarfile.TarInfo("folder")
        folder.type = tarfile.DIRTYPE
        out.addfile(folder)
        for name, data in names.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            out.addfile(info, io.BytesIO(data))
        link = tarfile.TarInfo("link.jpg")
        link.type, link.linkname = tarfile.SYMTYPE, "other"
        out.addfile(link)
    return path


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT])
def test_members_are_those_that_tarfile_finds(tmp_path: Path, form: int) -> None:
    names = {"a.jpg": b"x" * 700, "ünï.txt": b"", "d/e.f.png": b"y" * 512}
    if form != tarfile.USTAR_FORMAT:
        names |= {LONG: b"z", "z.jpg": b"1"}
    path = written(tmp_path / "t.tar", form, names)
    data = path.read_bytes()
    assert {m.name: data[m.offset : m.offset + m.length] for m in found(path) if not m.is_link} == names
    assert [m.name for m in found(path) if m.is_link] == ["link.jpg"]
    with open(path, "rb") as file:  # from any member on
        third = found(path)[2]
        assert next(members(Bytes(file.fileno()), third.begin)) == third


def test_a_size_too_large_for_octal_digits_is_understood(tmp_path: Path) -> None:
    info = tarfile.TarInfo("big.jpg")
    info.size = 3
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    header[124:136] = b"\x80" + (3).to_bytes(11, "big")
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    (tmp_path / "b.tar").write_bytes(bytes(header) + b"abc".ljust(512, b"\0") + bytes(1024))
    assert [(m.name, m.length) for m in found(tmp_path / "b.tar")] == [("big.jpg", 3)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d[:700], "the tar ends inside 'b.jpg'"),
        (lambda d: d[:1400], "the tar ends inside a header"),
        (lambda d: d[:1024] + b"\x01" * 512 + d[1536:], "no header of a tar"),
        (lambda d: b"plain text " * 100, "no header of a tar"),
    ],
)
def test_where_it_cannot_continue_is_said(tmp_path: Path, change: Any, message: str) -> None:
    path = tar(tmp_path / "c.tar", {"b.jpg": b"x" * 400, "c.jpg": b"y" * 400})
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(TarFault, match=message):
        found(path)


def test_a_header_that_claims_too_much_is_refused(tmp_path: Path) -> None:
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.XHDTYPE, 1 << 30
    (tmp_path / "e.tar").write_bytes(info.tobuf(tarfile.GNU_FORMAT) + bytes(1024))
    with pytest.raises(TarFault, match="a header of 1,073,741,824 bytes"):
        found(tmp_path / "e.tar")


@pytest.mark.parametrize("size", [b"-0000001000\0", b"-1", b"1_0", b"0o7", b"+7", b"8", b"7 7", b"\xc0" + bytes(11)])
def test_a_size_is_digits_and_never_negative(size: bytes) -> None:
    with pytest.raises(TarFault, match=r"has no valid size|a negative size"):
        number(size.ljust(12, b" "), 0)
    assert [number(told, 0) for told in (b"00000000017\0", b" 17 ", bytes(12), b"\x80" + bytes(10) + b"\x0f")] == [
        15,
        15,
        0,
        15,
    ]


def test_what_follows_blocks_of_zeros_is_another_tar_or_no_part_of_it(tmp_path: Path) -> None:
    one, two = (tar(tmp_path / "h.tar", {name: b"x" * 700}).read_bytes() for name in ("b.jpg", "c.jpg"))
    end = one.rstrip(b"\0")
    body = end.ljust(-(-len(end) // 512) * 512, b"\0")
    path = tmp_path / "both.tar"
    for between in (512, 1024, 10_240, 512 * 301):
        path.write_bytes(body + bytes(between) + two)
        assert [m.name for m in found(path)] == ["b.jpg", "c.jpg"]
        assert found(path)[1].begin == len(body) + between
        path.write_bytes(body + bytes(between))
        assert [m.name for m in found(path)] == ["b.jpg"]
        path.write_bytes(body + bytes(between + 600) + b"notes")  # from two blocks on the tar is at its end
        assert [m.name for m in found(path)] == ["b.jpg"]
        path.write_bytes(body + bytes(between + 512) + b"n" * 2000)
        assert [m.name for m in found(path)] == ["b.jpg"]
    for behind, words in ((b"notes", "the tar ends inside a header"), (b"n" * 512, "no header of a tar")):
        path.write_bytes(body + bytes(512) + behind)
        with pytest.raises(TarFault, match=words) as told:
            found(path)
        assert told.value.offset == len(body) + 512


@pytest.mark.parametrize("kind", [b"g", b"K", b"x", b"L"])
def test_a_header_that_reaches_past_the_end_loses_nothing_silently(tmp_path: Path, kind: bytes) -> None:
    """What lies behind it would be passed over."""
    info = tarfile.TarInfo("x")
    info.type, info.size = kind, 1 << 20
    plain = tar(tmp_path / "f.tar", {"b.jpg": b"x" * 400}).read_bytes()
    (tmp_path / "f.tar").write_bytes(info.tobuf(tarfile.GNU_FORMAT) + plain)
    with pytest.raises(TarFault, match="the tar ends inside a header"):
        found(tmp_path / "f.tar")


def test_a_size_of_thousands_of_digits_is_no_size(tmp_path: Path) -> None:
    line = b"size=" + b"9" * 5000 + b"\n"
    extra = b"%d " % (len(line) + 5) + line
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.XHDTYPE, len(extra)
    plain = tar(tmp_path / "g.tar", {"b.jpg": b"x" * 400}).read_bytes()
    padded = extra.ljust(-(-len(extra) // 512) * 512, b"\0")
    (tmp_path / "g.tar").write_bytes(info.tobuf(tarfile.GNU_FORMAT) + padded + plain)
    assert [(m.name, m.length) for m in found(tmp_path / "g.tar")] == [("b.jpg", 400)]


def test_any_range_of_rows_is_found_by_a_sparse_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "GROUP_ROWS", 3)
    content: dict[str, bytes] = {}
    for i in range(10):
        content |= {f"s{i}.jpg": jpeg(i), f"s{i}.txt": b"t%d" % i}
        if i == 4:
            content["s4.right.jpg"] = jpeg(40)
    path = str(tar(tmp_path / "s.tar", content))
    assert images.describe(path).n_rows == 11
    assert [g.first_row for g in images.describe(path).row_groups] == [0, 3, 6, 9]
    whole = [row for _, table in images.iter_rows(path, 0, 11) for row in table.to_pylist()]
    assert [row["member"] for row in whole[3:7]] == ["s3.jpg", "s4.jpg", "s4.right.jpg", "s5.jpg"]
    assert [row["caption"] for row in whole[4:6]] == ["t4", "t4"]
    for first in range(11):
        for end in range(first + 1, 12):
            part = [row for _, table in images.iter_rows(path, first, end) for row in table.to_pylist()]
            assert part == whole[first:end]


def test_members_that_all_have_one_key_are_held_a_few_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every image is a row all the same, whatever range is asked for."""
    monkeypatch.setattr(samples, "GROUP_ROWS", 2)
    monkeypatch.setattr(samples, "MAX_MEMBERS", 4)
    held: list[int] = []
    real = samples._of_sample
    monkeypatch.setattr(samples, "_of_sample", lambda key, sample: (held.append(len(sample)), real(key, sample))[1])
    path = str(tar(tmp_path / "s.tar", {f"frame.{i:02d}.jpg": jpeg(i) for i in range(11)} | {"z.jpg": jpeg(90)}))
    assert images.describe(path).n_rows == 12
    assert max(held) == 4
    whole = [row for _, table in images.iter_rows(path, 0, 12) for row in table.to_pylist()]
    assert [row["member"] for row in whole] == [*(f"frame.{i:02d}.jpg" for i in range(11)), "z.jpg"]
    for first in range(12):
        part = [row for _, table in images.iter_rows(path, first, 12) for row in table.to_pylist()]
        assert part == whole[first:]


def test_a_fault_of_a_row_lets_reading_continue_after_it(tmp_path: Path) -> None:
    path = str(tar(tmp_path / "s.tar", {"a.jpg": jpeg(1), "b.jpg": b"", "c.jpg": jpeg(2)}))
    rows = images.iter_rows(path, 0, 3)
    assert next(rows)[1]["member"].to_pylist() == ["a.jpg"]
    with pytest.raises(RowsFault) as told:
        next(rows)
    assert (told.value.row, told.value.next_row, told.value.reason) == (1, 2, "b.jpg: zero bytes")
    assert [t["member"].to_pylist() for _, t in images.iter_rows(path, 2, 3)] == [["c.jpg"]]


def test_a_jpeg_that_is_cut_off_in_its_header_is_its_rows_fault_alone(tmp_path: Path) -> None:
    """Its header points behind its end, and in a copy that is read in parts behind that of the file."""
    cut_off = b"\xff\xd8\xff\xe1\xff\xff" + bytes(50)
    path = str(tar(tmp_path / "s.tar", {"a.jpg": cut_off, "b.jpg": jpeg(1)}))
    with pytest.raises(RowsFault, match=r"a\.jpg: a JPEG without a size") as told:
        next(images.iter_rows(path, 0, 2))
    assert (told.value.row, told.value.next_row) == (0, 1)
    assert [t["member"].to_pylist() for _, t in images.iter_rows(path, 1, 2)] == [["b.jpg"]]
    with open(path, "rb") as file:
        assert Bytes(file.fileno()).pread(-5, 3) == b""


def test_ids_differ_between_folders_and_have_no_dot(tmp_path: Path) -> None:
    ids = []
    for folder in ("train", "test"):
        os.makedirs(tmp_path / folder)
        path = tmp_path / folder / "cat.v1.jpg"
        path.write_bytes(jpeg(1))
        ids += [row["id"] for _, table in images.iter_rows(str(path), 0, 1) for row in table.to_pylist()]
    assert len(set(ids)) == 2
    assert all(i.startswith("cat_v1-") and "." not in i for i in ids)


def test_a_pipe_next_to_an_image_is_no_caption(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(jpeg(1))
    os.mkfifo(tmp_path / "a.txt")
    (tmp_path / "a.json").mkdir()
    ((_, table),) = images.iter_rows(str(tmp_path / "a.jpg"), 0, 1)
    assert (table["caption"].to_pylist(), table["json"].to_pylist()) == ([None], [None])


def test_a_tar_without_members_is_a_file_without_rows(tmp_path: Path) -> None:
    tarfile.open(tmp_path / "empty.tar", "w").close()
    told = images.describe(tmp_path / "empty.tar")
    assert (told.n_rows, told.row_groups) == (0, [])
    assert list(images.iter_rows(tmp_path / "empty.tar", 0, 0)) == []
