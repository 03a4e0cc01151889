"""Which samples are chosen, whatever the order and the number of times in which documents are considered."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path

import pytest

from tamis.engine import wire
from tamis.engine.run.output.sample_store import SampleStore
from tamis.engine.samples import (
    EXCERPT_CHARS,
    FILE,
    CompleteTo,
    DocumentSample,
    Excerpt,
    RoleSelection,
    SampleOutcome,
    SampleSelection,
    decode_sample,
    describe,
    describe_file,
    encode_sample,
    orders_of,
    read_samples,
    rule_roles,
    select,
    size_of_role,
)


def dropped(key: int, rule: str = "short", distance: float | None = 1.0) -> DocumentSample:
    excerpt = Excerpt(f"text {key}", n_chars=50)
    return DocumentSample(
        key, SampleOutcome.DROPPED, 0, key, stage="words", rule=rule, distance=distance, excerpt=excerpt
    )


def some(n: int, seed: int = 1) -> list[DocumentSample]:
    rng = random.Random(seed)
    return [dropped(rng.randrange(1 << 60), f"rule {rng.randrange(5)}", rng.random()) for _ in range(n)]


def test_the_choice_depends_on_the_documents_alone() -> None:
    documents = some(5000)
    expected = select(documents).samples()
    for seed in range(3):
        mixed = [*documents, *random.Random(seed).sample(documents, 1000)]
        random.Random(seed).shuffle(mixed)
        assert select(mixed).samples() == expected
    assert len(expected) <= 400 + 80 + 5 * 6


def test_three_of_a_rule_and_the_three_nearest_to_its_limit() -> None:
    selection = select(dropped(100 - k, distance=float(k)) for k in range(50))
    any_of_rule, near = (selection.of_role(role) for role in rule_roles("words", "short"))
    assert [s.key for s in any_of_rule] == [51, 52, 53]
    assert [s.distance for s in near] == [0.0, 1.0, 2.0]
    assert select([dropped(1, distance=None)]).of_role(rule_roles("words", "short")[1]) == []


def test_a_selection_within_the_limits_of_an_earlier_one_loses_nothing() -> None:
    """Parts of the work look only at documents within the limits of what was chosen before."""
    first, second = some(4000, 1), some(4000, 2)
    limits = select(first).chosen.limits()
    within = [
        s
        for s in second
        if s.key <= min(limits.keys["all"], limits.keys["dropped"], limits.keys[s.rule_roles[0]])
        or s.key <= limits.keys["all"]
        or (s.distance or 0.0) <= limits.distances[s.rule_roles[1]]
    ]
    assert len(within) < 2500
    assert select([*first, *within]).samples() == select([*first, *second]).samples()


def test_many_documents_keep_few_in_memory() -> None:
    selection = SampleSelection()
    for sample in some(30_000):
        selection.add(sample)
    assert len(selection._samples) < 7000


def test_a_sample_is_a_line_and_back() -> None:
    sample = DocumentSample(
        7,
        SampleOutcome.CHANGED,
        2,
        40,
        "id-é",
        99,
        excerpt=Excerpt("after\n<b>", 3, 12, ((0, 5),)),
        before=Excerpt("before", 0, 6),
        groups={"language": "de"},
    )
    line = encode_sample(sample)
    assert line.count(b"\n") == 1
    assert decode_sample(line) == sample
    assert decode_sample(encode_sample(DocumentSample(1, SampleOutcome.KEPT))) == DocumentSample(1, SampleOutcome.KEPT)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"[]",
        b"{}x",
        b'{"key":"1","outcome":"kept"}',
        b'{"key":1,"outcome":"gone"}',
        b'{"key":1e999,"outcome":"kept"}',
        b'{"key":1,"outcome":"kept","excerpt":{"text":1}}',
        b"[" * 100_000,
    ],
)
def test_what_is_no_sample_is_left_out(line: bytes) -> None:
    with pytest.raises(wire.Garbled):
        decode_sample(line)
    good = encode_sample(dropped(5))
    assert list(read_samples(io.BytesIO(line.replace(b"\n", b"") + b"\n" + good))) == [dropped(5)]


def test_texts_and_marks_of_a_hostile_file_are_bounded() -> None:
    excerpt = Excerpt("x" * 50_000, -5, 3, ((-1, 4), (2, 10**9), (9, 3), *((i, i + 1) for i in range(500))))
    read = decode_sample(encode_sample(DocumentSample(1, SampleOutcome.DROPPED, rule="r" * 5000, excerpt=excerpt)))
    assert read.excerpt is not None
    assert (len(read.excerpt.text), read.excerpt.start, len(read.rule)) == (EXCERPT_CHARS, 0, 200)
    assert all(0 <= a < b <= EXCERPT_CHARS for a, b in read.excerpt.marks)


def test_a_store_continues_where_a_killed_run_left_it(tmp_path: Path) -> None:
    documents = some(3000)
    for i in range(3):
        part = documents[i * 1000 : (i + 1) * 1000]
        (tmp_path / f"u{i}").write_bytes(b"".join(encode_sample(s) for s in select(part).samples()))
    store = SampleStore(str(tmp_path))
    store.merge([str(tmp_path / "u0"), str(tmp_path / "u1")])  # killed: never closed
    with open(tmp_path / FILE, "ab") as file:
        file.write(encode_sample(documents[0])[:20])
    again = SampleStore(str(tmp_path))
    assert again.limits == store.limits
    again.merge([str(tmp_path / "u1"), str(tmp_path / "u2")])  # the partition of u1 is done again
    again.close()
    with open(tmp_path / FILE, "rb") as file:
        assert select(read_samples(file)).samples() == select(documents).samples()


def test_a_store_whose_disk_is_full_is_no_error(tmp_path: Path) -> None:
    (tmp_path / FILE).mkdir()
    (tmp_path / "u0").write_bytes(encode_sample(dropped(1)))
    store = SampleStore(str(tmp_path))
    store.merge([str(tmp_path / "u0")])
    store.close()


def pending(key: int, text: str) -> DocumentSample:
    record = json.dumps({"id": f"id {key}", "body": text}).encode()
    return DocumentSample(
        key, SampleOutcome.DROPPED, 0, key, stage="words", rule="short", record=record, text_field="body"
    )


def test_a_record_is_a_line_of_its_own_until_it_is_described(tmp_path: Path) -> None:
    sample = pending(3, "two lines\nof text")
    assert list(read_samples(io.BytesIO(encode_sample(sample)))) == [sample]
    assert list(read_samples(io.BytesIO(encode_sample(sample)[:-3]))) == []  # killed while it was written
    described = describe(sample, lambda text: [(text.index("of"), len(text))])
    assert (described.id, described.record, described.text_field) == ("id 3", None, "")
    assert described.excerpt == Excerpt("two lines\nof text", 0, 17, ((10, 17),))
    broken = describe(sample._replace(record=b"{"))
    assert broken.excerpt == Excerpt("", 0, 0)


def test_a_store_hands_out_records_and_takes_their_descriptions(tmp_path: Path) -> None:
    (tmp_path / "u0").write_bytes(b"".join(encode_sample(pending(key, f"text {key}")) for key in range(1, 200)))
    store = SampleStore(str(tmp_path))
    store.merge([str(tmp_path / "u0")])
    store = SampleStore(str(tmp_path))  # killed, and resumed
    assert store.write_chosen(str(tmp_path / "chosen"))
    with open(tmp_path / "chosen", "rb") as file:
        chosen = [s for s in read_samples(file) if isinstance(s, DocumentSample)]
    assert len(chosen) == 199
    with open(tmp_path / "chosen", "rb") as source, open(tmp_path / "described", "wb") as target:
        describe_file(source, target, lambda sample, text: [(0, 4)])
    for path in (str(tmp_path / "described"), None):  # without a worker there are no marks
        store = SampleStore(str(tmp_path))
        store.settle(str(tmp_path / "chosen"), path)
        with open(tmp_path / FILE, "rb") as file:
            final = select(read_samples(file))
        shown = final.of_role("dropped")
        assert [s.excerpt and s.excerpt.text for s in shown] == [f"text {k}" for k in range(1, 81)]
        assert {len(s.excerpt.marks) for s in shown if s.excerpt} == {1 if path else 0}
        assert sum(s.has_text for s in final.samples()) == 80
        assert not store.write_chosen(str(tmp_path / "chosen again"))
        store.close()
        with open(tmp_path / FILE, "rb") as file:
            assert select(read_samples(file)).samples() == final.samples()


def test_a_part_with_many_small_documents_leaves_the_sample_fair() -> None:
    """A part that chose up to some key only takes all documents of other parts beyond it out of the sample."""
    part, samples = RoleSelection(share=0.01), [DocumentSample(key, SampleOutcome.KEPT, 1) for key in range(100)]
    for sample in samples:
        part.add(sample.key, orders_of(sample.key, sample.outcome, has_text=False))
    assert part.complete_to == CompleteTo(size_of_role("all", 0.01) - 1)
    others = [DocumentSample(1000 + key, SampleOutcome.KEPT, 2) for key in range(300)]
    assert part.complete_to is not None
    in_part = [sample for sample in samples if sample.key in part.members()]
    chosen = select([*others, part.complete_to, *in_part])
    assert chosen.samples() == in_part
    assert chosen.chosen.limits().keys["all"] == part.complete_to.key
