"""What `make release` refuses: other versions, a changelog that is behind, kernels that are missing."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

import pytest
from tools.release import Wrong, check_sdist, check_wheel, source_version

import tamis

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE", "CHANGELOG.md", "src/tamis/__init__.py")


def test_the_changelog_begins_with_the_version_of_the_package(tmp_path: Path) -> None:
    assert source_version(ROOT) == tamis.__version__
    (tmp_path / "src/tamis").mkdir(parents=True)
    (tmp_path / "src/tamis/__init__.py").write_text('__version__ = "1.2.0"\n')
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## [1.1.0] - 2026-01-01\n")
    with pytest.raises(Wrong, match=r"begins with 1\.1\.0, the package is 1\.2\.0"):
        source_version(tmp_path)


def sdist(folder: Path, name: str, files: tuple[str, ...]) -> Path:
    path = folder / name
    with tarfile.open(path, "w:gz") as archive:
        for file in files:
            archive.addfile(tarfile.TarInfo(f"{name.removesuffix('.tar.gz')}/{file}"), io.BytesIO())
    return path


def test_an_sdist_is_complete_and_has_nothing_built(tmp_path: Path) -> None:
    check_sdist(sdist(tmp_path, "tamis-1.0.tar.gz", SOURCES), "1.0")
    with pytest.raises(Wrong, match=r"is not version 1\.1"):
        check_sdist(tmp_path / "tamis-1.0.tar.gz", "1.1")
    with pytest.raises(Wrong, match=r"lacks hatch_build.py, README.md"):
        check_sdist(sdist(tmp_path, "tamis-2.0.tar.gz", (*SOURCES[:1], *SOURCES[3:])), "2.0")
    built = "src/tamis/kernels/built/x86-64-v3/text-1.so"
    with pytest.raises(Wrong, match="has compiled files, such as src/tamis/kernels/built"):
        check_sdist(sdist(tmp_path, "tamis-3.0.tar.gz", (*SOURCES, built)), "3.0")


def test_a_wheel_has_all_kernels_for_all_levels(tmp_path: Path) -> None:
    path = tmp_path / "tamis-1.0-py3-none-manylinux_2_17_x86_64.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("v2/records-1.so", "v2/text-2.so", "v3/records-1.so"):
            archive.writestr(f"tamis/kernels/built/x86-64-{name}", b"")
    check_wheel(path, "1.0", ["x86-64-v2"], 2)
    with pytest.raises(Wrong, match="1 of 2 groups of kernels for x86-64-v3"):
        check_wheel(path, "1.0", ["x86-64-v2", "x86-64-v3"], 2)
    with pytest.raises(Wrong, match=r"is not a wheel of version 1\.1"):
        check_wheel(path, "1.1", [], 2)
