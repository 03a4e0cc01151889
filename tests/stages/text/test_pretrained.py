"""Files of a hub id on this machine: the folder that huggingface_hub finds, found without it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tamis.stages.text import pretrained

COMMIT, OLDER = "a1" * 20, "b2" * 20


def cached(place: Path, name: str = "models--owner--name") -> Path:
    """Create a cache with one model, of which `main` is COMMIT and `v1` OLDER."""
    for commit, ref in ((COMMIT, "main"), (OLDER, "v1")):
        (place / name / "snapshots" / commit).mkdir(parents=True)
        (place / name / "snapshots" / commit / "config.json").write_text("{}")
        (place / name / "refs").mkdir(exist_ok=True)
        (place / name / "refs" / ref).write_text(commit)
    return place / name


def test_it_is_the_folder_that_the_library_finds(tmp_path: Path) -> None:
    hub = pytest.importorskip("huggingface_hub", reason="the extra `models` is not installed")
    place = cached(tmp_path)
    for revision, commit in ((None, COMMIT), ("main", COMMIT), ("v1", OLDER), (OLDER, OLDER)):
        found = pretrained.local("owner/name", str(tmp_path), revision=revision)
        assert found == place / "snapshots" / commit
        theirs = hub.snapshot_download("owner/name", cache_dir=tmp_path, revision=revision, local_files_only=True)
        assert str(found) == theirs
    cached(tmp_path, "models--gpt2")
    assert pretrained.local("gpt2", str(tmp_path)).name == COMMIT
    for wrong, revision in (("owner/other", None), ("owner/name", "v2"), ("owner/name", "c3" * 20)):
        with pytest.raises(FileNotFoundError, match="not in the local cache"):
            pretrained.local(wrong, str(tmp_path), revision=revision)


def test_a_download_that_was_interrupted_is_not_there(tmp_path: Path) -> None:
    place = cached(tmp_path)
    files = {name: {"size": 2, "blob_id": "x"} for name in ("config.json", "part/a.safetensors", "b.bin", "own.py")}
    (place / "trees").mkdir()
    (place / "trees" / f"{COMMIT}.json").write_text(json.dumps({"format_version": 1, "files": files}))
    with pytest.raises(FileNotFoundError, match="not whole"):
        pretrained.local("owner/name", str(tmp_path))
    (place / "snapshots" / COMMIT / "part").mkdir()
    (place / "snapshots" / COMMIT / "part" / "a.safetensors").write_bytes(b"")
    assert pretrained.local("owner/name", str(tmp_path)).name == COMMIT  # b.bin is not asked for
    with pytest.raises(FileNotFoundError, match="not whole"):
        pretrained.local("owner/name", str(tmp_path), with_code=True)


@pytest.mark.parametrize(
    "given",
    [
        {"HF_HOME": "$PLACE/home"},
        {"HF_HUB_CACHE": "~/cache", "HF_HOME": "/none"},
        {"HUGGINGFACE_HUB_CACHE": "$PLACE/old"},
        {"XDG_CACHE_HOME": "~/x"},
        {},
    ],
    ids=lambda given: next(iter(given), "none"),
)
def test_the_usual_cache_is_that_of_the_library_which_is_not_loaded(tmp_path: Path, given: dict[str, str]) -> None:
    pytest.importorskip("huggingface_hub", reason="the extra `models` is not installed")
    names = ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME")
    env = {k: v for k, v in os.environ.items() if k not in names} | {"HOME": str(tmp_path), "PLACE": str(tmp_path)}
    code = (
        "import sys; from tamis.stages.text.pretrained import _usual_cache as usual; found = usual();"
        "assert 'huggingface_hub' not in sys.modules; from huggingface_hub import constants; print(found == "
        "constants.HF_HUB_CACHE)"
    )
    done = subprocess.run([sys.executable, "-c", code], env=env | given, capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"
