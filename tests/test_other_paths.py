"""Names that users know at other paths than ours, and small functions that come with them."""

from __future__ import annotations

import os
import socket
import warnings

import pytest

from tamis.backends import utils
from tamis.backends.base import NodeInfo, WorkerMetadata
from tamis.errors import UsageError
from tamis.stages.base import ProcessingStage
from tamis.stages.text.filters import LengthFilter
from tamis.stages.text.utils import text_utils


def test_the_same_things_at_other_paths() -> None:
    from tamis.core import constants
    from tamis.stages import core, function_decorators, function_definitions
    from tamis.stages.deduplication import exact, fuzzy
    from tamis.stages.text import deduplication, filters
    from tamis.stages.text.filters import doc_filter, heuristic

    assert core.ProcessingStage is ProcessingStage
    assert function_definitions.processing_stage is function_decorators.processing_stage
    assert exact.ExactDeduplicationWorkflow is exact.workflow.ExactDeduplicationWorkflow
    assert fuzzy.FuzzyDeduplicationWorkflow is fuzzy.workflow.FuzzyDeduplicationWorkflow
    assert deduplication.TextDuplicatesRemovalWorkflow is deduplication.removal_workflow.TextDuplicatesRemovalWorkflow
    assert filters.WordCountFilter is heuristic.WordCountFilter
    assert doc_filter.DocumentFilter is filters.DocumentFilter
    assert (constants.DEFAULT_RAY_PORT, constants.DEFAULT_RAY_DASHBOARD_PORT) == (6379, 8265)


def test_length_is_in_characters() -> None:
    rule = LengthFilter(min_length=2, max_length=3)
    assert [rule.score_document(t) for t in ("", "äé", "abcd")] == [0, 2, 4]
    assert [rule.keep_document(s) for s in (0, 2, 3, 4)] == [False, True, True, False]
    assert LengthFilter().keep_document(10**9)


def test_this_machine_is_reported() -> None:
    cpus, gpus = utils.get_available_cpu_gpu_resources(init_and_shutdown=True)
    assert (cpus, gpus >= 0) == (len(os.sched_getaffinity(0)), True)
    node, worker = utils.get_worker_metadata_and_node_id()
    assert (node, worker) == (NodeInfo(socket.gethostname()), WorkerMetadata(str(os.getpid()), None))
    with pytest.raises(UsageError, match="1000 GPUs are needed"):
        utils.check_total_gpu_capacity(1000)
    utils.check_total_gpu_capacity(0)
    assert utils.RayStageSpecKeys.IS_ACTOR_STAGE == "is_actor_stage"


def test_stages_are_set_up_on_this_node() -> None:
    seen: list[object] = []

    class Stage(ProcessingStage):  # type: ignore[type-arg]
        def process(self, task: object) -> None:
            return None

        def setup_on_node(self, node_info: object = None, worker_metadata: object = None) -> None:
            seen.extend([node_info, worker_metadata])

    utils.execute_setup_on_node([Stage()], ignore_head_node=True)
    assert seen == [NodeInfo(socket.gethostname()), WorkerMetadata()]


def test_configurations_are_merged_without_changing_them(caplog: pytest.LogCaptureFixture) -> None:
    base = {"runtime_env": {"env_vars": {"A": "1", "B": "2"}}, "n": 1}
    merged = utils.merge_executor_configs(base, {"runtime_env": {"env_vars": {"B": "3"}}, "n": {"x": 1}})
    assert merged == {"runtime_env": {"env_vars": {"A": "1", "B": "3"}}, "n": {"x": 1}}
    assert base["runtime_env"] == {"env_vars": {"A": "1", "B": "2"}}
    assert utils.merge_executor_configs(None, None) == {}
    utils.warn_on_env_var_override(base, merged)
    assert "executor: B" in caplog.text
    caplog.clear()
    utils.warn_on_env_var_override(None, merged)
    assert caplog.text == ""


CODE = '''"""Of the module."""
# one
def f():
    """Of f."""
    return "# no comment"  # two

class C:
    """Of C."""
'''


def test_comments_and_docstrings_of_code() -> None:
    assert text_utils.get_comments_and_docstring(CODE) == ("Of C.\nOf f.\nOf the module.", "# one# two")
    assert text_utils.get_comments_and_docstring(CODE, comments=False)[1] == ""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert text_utils.get_comments_and_docstring("def f(:\n  '") == (None, None)
    assert len(caught) == 2
    assert [name for _, name, _ in text_utils.parse_docstrings(CODE)] == [None, "f", "C"]


def test_parts_of_texts() -> None:
    assert text_utils.get_paragraphs("a\n\nb\nc") == ["a", "b\nc"]
    assert text_utils.get_sentences("a\n \nb") == ["a", "b"]
    assert text_utils.get_ngrams([1, 2], 3) == text_utils.get_ngrams([1], 0) == []
    assert text_utils.get_word_splitter("en")("a  b") == ["a", "b"]
    assert text_utils.get_words("") == ([], [])
