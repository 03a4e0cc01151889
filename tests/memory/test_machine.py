"""The machine around a run, from the texts that kernels and containers show."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tamis.memory.machine import (
    MachineReader,
    MachineSample,
    StallShares,
    folder_bytes,
    free_bytes,
    parse_meminfo,
    parse_memory_stat,
    parse_pressure,
    used_by_group,
)

MEMINFO = (
    "MemTotal:       16000000 kB\nMemFree:         1000000 kB\nMemAvailable:    6000000 kB\nHugePages_Total:       0\n"
)
PRESSURE = (
    "some avg10=12.50 avg60=3.00 avg300=1.00 total=11978840\nfull avg10=4.25 avg60=1.00 avg300=0.10 total=7332923\n"
)


class FakeFiles:
    """A machine that consists of these files."""

    def __init__(self, texts: dict[str, str]) -> None:
        self.texts = texts

    def __call__(self, path: str) -> str | None:
        return self.texts.get(path)


def test_meminfo() -> None:
    found = parse_meminfo(MEMINFO)
    assert (found["MemTotal"], found["MemAvailable"], found["HugePages_Total"]) == (16_384_000_000, 6_144_000_000, 0)
    assert parse_meminfo("") == {}
    assert parse_meminfo("nonsense\nMemTotal: many kB\n:\n") == {}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (PRESSURE, StallShares(12.5, 4.25)),
        ("some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n", StallShares(0.0, None)),
        ("", StallShares(None, None)),
        ("some avg10=x\nfull\n\nother avg10=3", StallShares(None, None)),
    ],
)
def test_pressure(text: str, expected: StallShares) -> None:
    assert parse_pressure(text) == expected


def test_a_group_uses_what_the_kernel_cannot_drop() -> None:
    v2 = parse_memory_stat("anon 5000\nfile 4000\ninactive_file 1000\nbroken\n")
    assert v2 == {"anon": 5000, "file": 4000, "inactive_file": 1000}
    assert used_by_group("9000\n", v2) == 8000
    v1 = parse_memory_stat("inactive_file 1\ntotal_inactive_file 3000\n")
    assert used_by_group("9000", v1) == 6000
    assert used_by_group("10", {"inactive_file": 99}) == 0
    assert used_by_group("max", {}) is None


def test_bytes_in_folders(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "one").write_bytes(b"x" * 10)
    (tmp_path / "a" / "b" / "two").write_bytes(b"x" * 5)
    (tmp_path / "a" / "link").symlink_to(tmp_path / "nowhere")
    own = (tmp_path / "a" / "link").lstat().st_size
    assert folder_bytes([str(tmp_path / "a"), str(tmp_path / "absent")]) == 15 + own
    for i in range(20):
        (tmp_path / f"f{i}").write_bytes(b"x")
    assert folder_bytes([str(tmp_path)], max_entries=5) <= 5


def test_room_on_disks(tmp_path: Path) -> None:
    seen = os.statvfs(tmp_path)
    found = free_bytes([str(tmp_path), str(tmp_path / "absent")])
    assert found is not None
    assert abs(found - seen.f_bavail * seen.f_frsize) < 10**9
    assert free_bytes([str(tmp_path / "absent")]) is None


def test_a_machine_without_control_groups() -> None:
    machine = MachineReader(FakeFiles({"/proc/meminfo": MEMINFO, "/proc/pressure/memory": PRESSURE}))
    assert machine.sample() == MachineSample(10_240_000_000, 16_384_000_000, None, None, 12.5, 4.25)


def test_a_machine_that_reports_nothing() -> None:
    assert MachineReader(FakeFiles({})).sample() == MachineSample()


def test_version_2_with_a_limit_set_above_us() -> None:
    files = FakeFiles(
        {
            "/proc/meminfo": MEMINFO,
            "/proc/pressure/memory": PRESSURE,
            "/proc/self/cgroup": "0::/pod/app\n",
            "/proc/self/mountinfo": "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
            "/sys/fs/cgroup/pod/app/memory.max": "max\n",
            "/sys/fs/cgroup/pod/memory.max": "8000000000\n",
            "/sys/fs/cgroup/pod/memory.current": "5000000000\n",
            "/sys/fs/cgroup/pod/memory.stat": "inactive_file 1000000000\n",
            "/sys/fs/cgroup/pod/memory.pressure": "some avg10=1.00 avg60=0 avg300=0 total=1\n",
        }
    )
    machine = MachineReader(files)
    assert machine.sample() == MachineSample(10_240_000_000, 16_384_000_000, 4_000_000_000, 8_000_000_000, 1.0, None)
    files.texts["/sys/fs/cgroup/pod/memory.max"] = "6000000000\n"  # somebody lowers the limit while the run goes on
    assert machine.sample().cgroup_limit_bytes == 6_000_000_000


def test_version_1_without_a_limit() -> None:
    machine = MachineReader(
        FakeFiles(
            {
                "/proc/meminfo": MEMINFO,
                "/proc/self/cgroup": "4:memory:/job\n0::/\n",
                "/proc/self/mountinfo": "33 23 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n",
                "/sys/fs/cgroup/memory/job/memory.limit_in_bytes": "9223372036854771712\n",
                "/sys/fs/cgroup/memory/job/memory.usage_in_bytes": "700\n",
                "/sys/fs/cgroup/memory/job/memory.stat": "total_inactive_file 200\n",
            }
        )
    )
    assert machine.sample() == MachineSample(10_240_000_000, 16_384_000_000, 500, None, None, None)


def test_this_machine() -> None:
    look = MachineReader().sample()
    assert look.machine_total_bytes is not None
    assert look.machine_used_bytes is not None
    assert 0 < look.machine_used_bytes < look.machine_total_bytes
