"""Finding the budget on pretended machines: cgroup v1, v2, hybrid, containers, none."""

import os
from dataclasses import dataclass

import pytest

from tamis.errors import BudgetError, UsageError
from tamis.memory.budget import Budget, CgroupLimit, describe_limits, find_budget, find_cgroup

GIB = 1 << 30
MEMINFO = (
    "MemTotal:       67108864 kB\nMemAvailable:   33554432 kB\nSwapTotal:  1024 kB\nSwapFree:  512 "
    "kB\nHugePages_Total: 0\n"
)
V2_MOUNT = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n"
V1_MOUNT = "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
CPU_MOUNT = "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"


@dataclass
class FakeFiles:
    texts: dict[str, str]

    def __call__(self, path):
        return self.texts.get(path)


def machine(cgroup="", mounts="", meminfo=MEMINFO, **files):
    texts = {"/proc/meminfo": meminfo, "/proc/self/cgroup": cgroup, "/proc/self/mountinfo": mounts}
    return FakeFiles(texts | files.get("files", {}))


V2 = machine(
    "0::/user/app\n",
    V2_MOUNT,
    files={
        "/sys/fs/cgroup/user/app/memory.max": "max\n",
        "/sys/fs/cgroup/user/memory.max": f"{8 * GIB}\n",
        "/sys/fs/cgroup/memory.max": f"{9 * GIB}\n",
    },
)


def test_explicit_wins_over_everything():
    assert find_budget("2GB", {"TAMIS_MEMORY": "1GB"}, V2) == Budget(
        2_000_000_000, "option", "2 GB, as set for this run."
    )
    assert find_budget(5_000_000, {}, V2).bytes == 5_000_000


def test_environment_wins_over_the_machine():
    assert find_budget(None, {"TAMIS_MEMORY": " 1GiB "}, V2) == Budget(
        GIB, "environment", "1.07 GB, as set in TAMIS_MEMORY."
    )


def test_empty_environment_variable_counts_as_absent():
    assert find_budget(None, {"TAMIS_MEMORY": " "}, V2).source == "cgroup"


@pytest.mark.parametrize(
    ("explicit", "environ", "what"), [("lots", {}, "--memory"), (None, {"TAMIS_MEMORY": "-1"}, "TAMIS_MEMORY")]
)
def test_unreadable_sizes_name_where_they_were_given(explicit, environ, what):
    with pytest.raises(UsageError, match=what):
        find_budget(explicit, environ, V2)


def test_v2_takes_the_smallest_limit_on_the_way_up():
    assert find_budget(None, {}, V2) == Budget(
        8 * GIB * 90 // 100,
        "cgroup",
        "7.73 GB: 90 % of the control group limit 8.59 GB in /sys/fs/cgroup/user/memory.max.",
    )


def test_v2_memory_high_counts_too():
    files = {"/sys/fs/cgroup/a/memory.high": "1000000\n", "/sys/fs/cgroup/a/memory.max": "2000000\n"}
    assert find_budget(None, {}, machine("0::/a\n", V2_MOUNT, files=files)).bytes == 900_000


def test_v1_limit_and_its_absurd_value():
    files = {
        "/sys/fs/cgroup/memory/job/7/memory.limit_in_bytes": "9223372036854771712\n",
        "/sys/fs/cgroup/memory/job/memory.limit_in_bytes": f"{4 * GIB}\n",
    }
    found = find_cgroup(machine("4:memory:/job/7\n1:cpu:/\n", V1_MOUNT + CPU_MOUNT, files=files))
    assert (found.kind, found.memory_version, found.path) == ("v1", 1, "/sys/fs/cgroup/memory/job/7")
    assert found.limits == (CgroupLimit("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", 4 * GIB),)


def test_hybrid_reads_the_hierarchy_that_has_the_memory_controller():
    unified = "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
    files = {"/sys/fs/cgroup/memory/x/memory.limit_in_bytes": f"{GIB}\n"}
    found = find_cgroup(machine("4:memory:/x\n1:cpu:/\n0::/y\n", CPU_MOUNT + V1_MOUNT + unified, files=files))
    assert (found.kind, found.memory_version, [limit.bytes for limit in found.limits]) == ("hybrid", 1, [GIB])


def test_hybrid_with_memory_on_v2():
    unified = "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
    files = {"/sys/fs/cgroup/unified/y/memory.max": f"{GIB}\n"}
    found = find_cgroup(machine("1:cpu:/\n0::/y\n", CPU_MOUNT + unified, files=files))
    assert (found.kind, found.memory_version, found.path) == ("hybrid", 2, "/sys/fs/cgroup/unified/y")


def test_container_whose_mount_begins_inside_the_hierarchy():
    mount = V1_MOUNT.replace(" / ", " /docker/abc ", 1)
    files = {
        "/sys/fs/cgroup/memory/memory.limit_in_bytes": "3000000\n",
        "/sys/fs/cgroup/memory/sub/memory.limit_in_bytes": "2000000\n",
    }
    inside = find_cgroup(machine("4:memory:/docker/abc/sub\n", mount, files=files))
    assert [limit.bytes for limit in inside.limits] == [2_000_000, 3_000_000]
    outside = find_cgroup(machine("4:memory:/docker/abcdef\n", mount, files=files))
    assert (outside.path, [limit.bytes for limit in outside.limits]) == ("/sys/fs/cgroup/memory", [3_000_000])


def test_path_above_the_namespace_is_read_at_the_mount_point():
    files = {"/sys/fs/cgroup/memory.max": "5000000\n"}
    found = find_cgroup(machine("0::/../other\n", V2_MOUNT, files=files))
    assert [limit.bytes for limit in found.limits] == [5_000_000]


def test_limit_above_the_machine_is_no_limit():
    files = {"/sys/fs/cgroup/a/memory.max": f"{100 * GIB}\n"}
    assert find_budget(None, {}, machine("0::/a\n", V2_MOUNT, files=files)) == Budget(
        32 * GIB * 80 // 100,
        "available",
        "27.5 GB: 80 % of the 34.4 GB that are available on this machine now.",
    )


def test_limit_above_what_is_available_gives_way():
    files = {"/sys/fs/cgroup/a/memory.max": f"{60 * GIB}\n"}
    assert find_budget(None, {}, machine("0::/a\n", V2_MOUNT, files=files)).source == "available"


def test_no_cgroup_at_all():
    assert find_cgroup(machine()).kind == "none"
    assert find_budget(None, {}, machine()).bytes == 32 * GIB * 80 // 100


def test_unknown_memory_is_an_error_that_says_what_to_do():
    with pytest.raises(BudgetError, match="--memory 4GB"):
        find_budget(None, {}, machine(meminfo=""))


def test_describe_limits_of_a_pretended_v2_machine():
    own = "/sys/fs/cgroup/user/app"
    files = machine(
        "0::/user/app\n",
        V2_MOUNT,
        files={
            f"{own}/memory.max": "1000000000\n",
            "/proc/pressure/memory": "some avg10=0.00\n",
            "/proc/sys/vm/overcommit_memory": "2\n",
            "/proc/sys/kernel/seccomp/actions_avail": "kill_thread errno user_notif allow\n",
        },
    )
    seen = describe_limits(files)
    assert seen["cgroup"] == "v2"
    assert seen["cgroup_limits"] == [{"path": f"{own}/memory.max", "bytes": 1_000_000_000}]
    assert seen["enforcement"] == ["RLIMIT_DATA", "gate", "watchdog"]
    assert (seen["swap_total_bytes"], seen["swap_free_bytes"]) == (1024 * 1024, 512 * 1024)
    assert (seen["mem_total_bytes"], seen["mem_available_bytes"]) == (64 * GIB, 32 * GIB)
    assert (seen["psi"], seen["overcommit"]) == (True, "never")
    files.texts["/proc/sys/kernel/seccomp/actions_avail"] = "kill_thread errno allow\n"
    assert describe_limits(files)["enforcement"] == ["RLIMIT_DATA", "watchdog"]


def test_this_machine_gives_a_budget_and_a_description():
    assert 0 < find_budget(None, {}).bytes < os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    seen = describe_limits()
    assert seen["n_cores"] == len(os.sched_getaffinity(0))
    assert {"RLIMIT_DATA", "watchdog"} <= set(seen["enforcement"])
