"""Link an object file into a shared library, by a C compiler, a bare linker, or that of the package ziglang."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tamis.errors import TamisError

# Nothing of the C library is linked in or asked for by version: memcpy and the like are found in the process that
# loads it.
_COMMANDS = (
    ["cc", "-shared", "-nostdlib"],
    ["gcc", "-shared", "-nostdlib"],
    ["clang", "-shared", "-nostdlib"],
    ["ld", "-shared"],
    ["ld.lld", "-shared"],
)


def linker() -> list[str] | None:
    """Return the beginning of a linker command, or None if no linker is available."""
    for command in _COMMANDS:
        if shutil.which(command[0]):
            return command
    if importlib.util.find_spec("ziglang") is not None:
        return [sys.executable, "-m", "ziglang", "ld.lld", "-shared"]
    return None


def shared_library(object_code: bytes) -> bytes:
    """Link object code and return the bytes of a shared library.

    The result is the same for the same object file and linker.
    """
    command = linker()
    if command is None:
        raise TamisError(
            "kernels: there is no linker here; install a C compiler (gcc or clang), or: pip install ziglang"
        )
    with tempfile.TemporaryDirectory(prefix="tamis-link-") as folder:
        source, target = Path(folder) / "kernels.o", Path(folder) / "kernels.so"
        source.write_bytes(object_code)
        plain = "-Wl,--build-id=none" if "-nostdlib" in command else "--build-id=none"
        # Fixed names in the working folder: no path of this machine gets into the library.
        done = subprocess.run(
            [*command, "-s", plain, "-o", target.name, source.name],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise TamisError(f"kernels: {command[0]} could not link them: {done.stderr[-2000:].strip()}")
        return target.read_bytes()
