"""How `pytest -n N --dist loadfile` distributes the suite: what takes long first, all models to one process.

By default files are handed out by their number of tests, so that those with few and long tests (a cluster, a demo,
kills) come last and one of them keeps a single process busy at the end. Importing transformers takes a process 5 s of
CPU time: files that do are one unit of work. Everything else of `loadfile` stays: the tests of a file run in one
process, in their order.
"""

from __future__ import annotations

from collections import Counter

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling, Scheduling

MODELS = (
    "tests/stages/text/classifiers/",
    "tests/stages/text/embedders/",
    "tests/stages/text/models/",
    "tests/cli/test_classify.py",
    "tests/stages/test_megatron.py",
    "tests/stages/image/test_scoring.py",
    "tests/stages/video/test_clip_models.py",
    "tests/stages/video/test_captions.py",
    "tests/curation/test_kept_results.py",
    "tests/switch/test_classifier_tutorials.py",
    "tests/switch/test_media_tutorials.py",
    "tests/switch/test_more_tutorials.py",
    "tests/switch/test_semantic_tutorials.py",
    "tests/switch/test_text_tutorials.py",
)
# Files by their beginnings, in the order in which they are handed out; all others follow.
LONG = (
    *MODELS,
    "tests/test_docs.py",
    "tests/cluster/",
    "tests/faults/",
    "tests/demo/",
    "tests/install/",
    "tests/test_contributing.py",
    "tests/curation/",
    "tests/dedup/",
    "tests/cli/",
    "tests/stores/",
    "tests/backends/",
    "tests/stages/",
)


def work_unit(nodeid: str) -> str:
    """Return the unit of work of a test: its file, or one for all files of models.

    >>> work_unit("tests/stages/text/models/test_device.py::test_a"), work_unit("tests/test_docs.py::test_b[x::y]")
    ('models', 'tests/test_docs.py')
    """
    path = nodeid.partition("::")[0]
    return "models" if path.startswith(MODELS) else path


def sort_for_distribution(items: list[pytest.Item]) -> None:
    """Sort tests by their units of work, those that take long first; the order in each file stays."""
    n_tests = Counter(work_unit(item.nodeid) for item in items)

    def order(item: pytest.Item) -> tuple[int, int, str]:
        unit = work_unit(item.nodeid)
        rank = next((i for i, prefix in enumerate(LONG) if item.nodeid.startswith(prefix)), len(LONG))
        return (0 if unit == "models" else rank), -n_tests[unit], unit

    items.sort(key=order)


class UnitScheduling(LoadFileScheduling):
    """`loadfile` by the units and in the order of this module."""

    def _split_scope(self, nodeid: str) -> str:
        return work_unit(nodeid)


def make_scheduler(config: pytest.Config, log: Producer) -> Scheduling | None:
    """Return the scheduler for `--dist loadfile`; None, pytest-xdist's own, for other ways to distribute."""
    if config.getoption("dist") != "loadfile":
        return None
    config.option.loadscopereorder = False  # the order is that of `sort_for_distribution`
    return UnitScheduling(config, log)
