"""Edited code in words: the lines that changed, without texts that may be secrets."""

from __future__ import annotations

from tamis.engine.run.identity import MAX_LINES, code_lines, describe_change

STAGE = '''
@dataclass
class Keep(ProcessingStage):
    """Keep the good ones."""

    minimum: float = 0.12
    key = "sk-0123"  # secret

    def process(self, batch):
        return batch.filter([len(t) > self.minimum and f"{t} and sk-9" for t in batch.values('text')])
'''


def test_texts_and_comments_are_left_out() -> None:
    lines = code_lines(STAGE)
    assert "minimum: float = 0.12" in lines
    assert 'key = "..."' in lines
    text = "\n".join(lines)
    for part in ("sk-0123", "sk-9", "secret", "good ones"):
        assert part not in text
    assert code_lines(STAGE.replace("# secret", "# a secret")) == lines


def test_an_edited_line_is_named() -> None:
    before = code_lines(STAGE)
    assert describe_change(before, code_lines(STAGE.replace("0.12", "0.05"))) == (
        "`minimum: float = 0.12` -> `minimum: float = 0.05`"
    )
    longer = STAGE.replace("    def process", "    a = 1\n    b = 2\n    c = 3\n\n    def process")
    assert describe_change(before, code_lines(longer)) == "`a = 1` added, `b = 2` added and 1 more lines"
    assert describe_change(code_lines(longer), before).startswith("`a = 1` removed")


def test_nothing_is_said_about_what_is_not_known() -> None:
    lines = code_lines(STAGE)
    assert describe_change(lines, lines) == describe_change([], lines) == describe_change(lines, []) == ""


def test_a_part_that_is_no_program_ends_where_it_ends() -> None:
    assert code_lines("x = 1\ny = (2,\n")[0] == "x = 1"
    assert len(code_lines("x = 1\n" * 1000)) == MAX_LINES
