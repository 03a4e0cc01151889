"""A recipe whose run takes a while, for tests that look at a run while it works."""

from __future__ import annotations


def stages(seconds: float = 0.3) -> str:
    """Write the module `user_stages`: a stage that takes this long for every partition."""
    return f"""
import time
from tamis import ProcessingStage

class Slow(ProcessingStage):
    name = "slow"
    def process(self, task):
        time.sleep({seconds})
        return task
"""


def recipe(name: str, partitions: str, memory: str = "600MB") -> str:
    """From `in` to `out`, one worker. `partitions`: how the reader cuts, a line of YAML."""
    return f"""
name: {name}
stages:
  - _target_: tamis.stages.text.io.reader.JsonlReader
    file_paths: in
    {partitions}
  - _target_: user_stages.Slow
  - _target_: tamis.stages.text.io.writer.JsonlWriter
    path: out
settings:
  memory: {memory}
  workers: 1
"""
