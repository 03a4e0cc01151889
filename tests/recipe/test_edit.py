"""Settings written into the text of a recipe: everything else stays byte for byte."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tamis.errors import UsageError
from tamis.recipe.edit import check_writable, edit, write_settings


@pytest.mark.parametrize(
    ("before", "changes", "after"),
    [
        ("name: a\n", {"memory": "1GB"}, "name: a\nsettings:\n  memory: 1GB\n"),
        ("name: a", {"memory": "1GB"}, "name: a\nsettings:\n  memory: 1GB\n"),
        ("a: 1\nsettings:\n", {"memory": "1GB"}, "a: 1\nsettings:\n  memory: 1GB\n"),
        ("settings:  # mine\na: 1\n", {"memory": "1GB"}, "settings:  # mine\n  memory: 1GB\na: 1\n"),
        ("settings: null\na: 1\n", {"memory": "1GB"}, "settings:\n  memory: 1GB\na: 1\n"),
        (
            "settings:\n    memory: 512MB   # why\n    workers: 2\n\n# end\nstages: []\n",
            {"memory": "2GB", "blocksize": "32MB"},
            "settings:\n    memory: 2GB   # why\n    workers: 2\n    blocksize: 32MB\n\n# end\nstages: []\n",
        ),
        ("settings:\n  memory: '1GB'\n", {"memory": "2GB"}, "settings:\n  memory: 2GB\n"),
        ("settings: {workers: 2}\n", {"memory": "1GB"}, "settings: {memory: 1GB, workers: 2}\n"),
        ("settings: {}\n", {"memory": "1GB"}, "settings: {memory: 1GB}\n"),
        ("settings:\n  blocksize: 8MB\n  workers: 2\n", {"blocksize": None}, "settings:\n  workers: 2\n"),
        ("settings:\n  memory: 1GB\n", {"memory": "1GB", "blocksize": None}, "settings:\n  memory: 1GB\n"),
        (
            "a: 1\r\nsettings:\r\n  workers: 2\r\n",
            {"memory": "1GB"},
            "a: 1\r\nsettings:\r\n  workers: 2\r\n  memory: 1GB\r\n",
        ),
        ("\ufeffname: a\n", {"memory": "1GB"}, "\ufeffname: a\nsettings:\n  memory: 1GB\n"),
        (
            "settings:\n  schema:\n    id: int64\n    text: string  # both\n# last\n",
            {"memory": "1GB"},
            "settings:\n  schema:\n    id: int64\n    text: string  # both\n  memory: 1GB\n# last\n",
        ),
        ("settings:\n  memory: 512000000\n", {"memory": "512000000"}, "settings:\n  memory: 512000000\n"),
    ],
)
def test_edits(before: str, changes: dict[str, str | None], after: str) -> None:
    assert edit(before, changes) == after


@pytest.mark.parametrize(
    "text",
    [
        "settings:\n  memory: ${env:MEM,1GB}\n",
        "settings:\n  memory: |\n    1GB\n",
        "x: &s {workers: 2}\nsettings: *s\n",
        "settings: [1]\n",
        "settings:\n  memory: &m 1GB\nother: *m\n",
    ],
)
def test_what_cannot_be_changed_safely_is_left_to_the_user(text: str) -> None:
    with pytest.raises(UsageError, match=r"is not changed .*set it by hand, under settings: memory: 2GB"):
        edit(text, {"memory": "2GB"})


def test_the_file_is_replaced_whole_with_its_mode_through_a_link(tmp_path: Path) -> None:
    real = tmp_path / "real.yaml"
    real.write_text("name: a  # é\n", encoding="utf-8")
    real.chmod(0o640)
    (tmp_path / "link.yaml").symlink_to(real)
    write_settings(str(tmp_path / "link.yaml"), {"memory": "1GB"})
    assert real.read_text(encoding="utf-8") == "name: a  # é\nsettings:\n  memory: 1GB\n"
    assert (tmp_path / "link.yaml").is_symlink()
    assert real.stat().st_mode & 0o777 == 0o640
    assert sorted(os.listdir(tmp_path)) == ["link.yaml", "real.yaml"]


def test_shipped_recipes_are_not_changed() -> None:
    import tamis

    path = Path(tamis.__file__).parent / "recipe" / "presets" / "copy.yaml"
    with pytest.raises(UsageError, match="ships with Tamis and is not changed"):
        check_writable(str(path))
