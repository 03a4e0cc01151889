"""DocumentJoinWorkflow: join segments of documents wherever they are stored in the input, in one call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from tamis.dedup.options import Input, absolute
from tamis.stages.text.modules.joiner import DocumentJoiner

if TYPE_CHECKING:
    from tamis.dedup.passes import DedupResult


@dataclass
class DocumentJoinWorkflow:
    """Like DocumentJoiner, for segments anywhere in the input: they are sorted by the hash of their id first.

    Documents come out in the order of these hashes. Scratch: the size of the input. Memory does not grow with the
    input, but all segments of one document must fit together. `run()` resumes where it stopped. The other
    parameters are those of DocumentJoiner.
    """

    input_path: Any
    output_path: str
    separator: str = "\n\n"
    text_field: str = "text"
    segment_id_field: str = "segment_id"
    document_id_field: str = "id"
    drop_segment_id_field: bool = True
    max_length: int | None = None
    length_field: str | None = None
    input_blocksize: str | int | None = None
    input_file_extensions: Sequence[str] | None = None
    output_filetype: str | None = None

    def __post_init__(self) -> None:
        self.input_path = absolute(self.input_path, "input_path")
        self.output_path = absolute(self.output_path, "output_path")
        self._joiner()
        self._input()

    def _input(self) -> Input:
        return Input("DocumentJoinWorkflow", self.input_path, None, self.input_blocksize, self.input_file_extensions)

    def _joiner(self) -> DocumentJoiner:
        return DocumentJoiner(
            self.separator,
            self.text_field,
            self.segment_id_field,
            self.document_id_field,
            self.drop_segment_id_field,
            self.max_length,
            self.length_field,
        )

    def run(self, executor: Any = None, *, progress: Any = True, **settings: Any) -> DedupResult:
        """Run all passes, or resume them. `settings` are those of a run: memory="1GB", workers, scratch, fresh.

        `executor` runs the passes over documents.
        """
        from tamis.backends.slurm_array import undivided
        from tamis.dedup.join_segments.procedure import SegmentJoin
        from tamis.dedup.passes import Passes
        from tamis.dedup.workflow import Workflow

        source = self._input()
        passes = Passes(
            "join",
            source.reader,
            [],
            self.output_path,
            None,
            source.writer(self.output_path, self.output_filetype),
            identity={name: value for name, value in asdict(self).items() if name != "input_blocksize"},
            procedure=SegmentJoin(self._joiner()),
            instead_of_sample="join what a run with --sample wrote",
        )
        with undivided("DocumentJoinWorkflow", settings):
            return Workflow(passes, settings, progress, executor).run()
