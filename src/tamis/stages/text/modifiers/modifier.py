"""The stage that runs modifiers: which fields they read and where their results go."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tamis.errors import UsageError
from tamis.stages.base import ProcessingStage
from tamis.stages.text.modifiers.doc_modifier import DocumentModifier
from tamis.stages.text.modifiers.fields import plain_column, python_values, text_column
from tamis.tasks import DocumentBatch

if TYPE_CHECKING:
    import pyarrow as pa

Modifier = DocumentModifier | Callable[..., Any]

_NAME = "modifier_fn"  # what users know as the default; the modifiers say more


@dataclass(repr=False)
class Modify(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Changes fields by a modifier, a function, or a list of them, one after the other.

    `input_fields`: one field for all modifiers, a list with one field per modifier, or a list of lists: a modifier with several
    input fields is called with them by name. `output_fields`: where results go, one name or one per modifier (None: in place,
    for modifiers with one input). A null stays null; a DocumentModifier changes texts only; a function gets any value.
    """

    modifier_fn: Modifier | list[Modifier]
    input_fields: str | list[str] | list[list[str]] = "text"
    output_fields: str | list[str | None] | None = None
    name: str = _NAME

    def __post_init__(self) -> None:
        modifiers = self.modifier_fn if isinstance(self.modifier_fn, list) else [self.modifier_fn]
        if not modifiers:
            raise UsageError("Modify(modifier_fn=...): the list is empty; give at least one modifier")
        for modifier in modifiers:
            is_class = isinstance(modifier, type) and issubclass(modifier, DocumentModifier)  # its () was forgotten
            if is_class or not (isinstance(modifier, DocumentModifier) or callable(modifier)):
                raise UsageError(
                    f"Modify(modifier_fn=...): expected DocumentModifier objects or functions, got {modifier!r}"
                )
        inputs = _inputs(self.input_fields, len(modifiers))
        self._steps = list(zip(modifiers, inputs, _outputs(self.output_fields, inputs), strict=True))
        for modifier, fields, _ in self._steps:
            if isinstance(modifier, DocumentModifier) and len(fields) > 1:
                raise UsageError(f"Modify: {modifier.name} reads one field, got {fields}; write a function for several")
        names = [m.name if isinstance(m, DocumentModifier) else getattr(m, "__name__", "function") for m in modifiers]
        if self.name == _NAME:
            self.name = names[0] if len(names) == 1 else "modifier_chain_of_" + "_".join(names)

    @property
    def kernel_groups(self) -> tuple[str, ...]:  # type: ignore[override]  # those of its modifiers
        chosen = [m for m, _, _ in self._steps if isinstance(m, DocumentModifier)]
        return tuple(dict.fromkeys(g for m in chosen for g in m.kernel_groups))

    def inputs(self) -> Any:
        made: set[str] = set()
        needed: dict[str, None] = {}
        for _, fields, output in self._steps:
            needed.update(dict.fromkeys(f for f in fields if f not in made))
            made.add(output)
        return ["data"], list(needed)

    def outputs(self) -> Any:
        given = set(self.inputs()[1])
        return ["data"], [o for o in dict.fromkeys(o for _, _, o in self._steps) if o not in given]

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        if not batch.num_items:
            return batch
        for modifier, fields, output in self._steps:
            if isinstance(modifier, DocumentModifier):
                batch = _modify_texts(batch, modifier, fields[0], output)
                self._log_metrics(modifier.take_metrics())
            else:
                batch = _call(batch, modifier, fields, output)
        return batch


def _modify_texts(batch: DocumentBatch, modifier: DocumentModifier, field: str, output: str) -> DocumentBatch:
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = text_column(batch, field)
    after = modifier.modify_batch(texts)
    if isinstance(after, pa.ChunkedArray):
        after = after.combine_chunks()
    if len(after) != len(texts):
        raise UsageError(f"{modifier.name}.modify_batch returned {len(after)} texts for {len(texts)}")
    if texts.null_count and after.null_count < len(after):  # a batch method of a user may have forgotten nulls
        after = pc.if_else(texts.is_valid(), after, pa.scalar(None, after.type))
    if output != field:
        return batch.with_column(output, after)
    if after is texts or after.equals(texts):
        return batch
    column = plain_column(batch, field)
    if texts.null_count > column.null_count:  # beside texts there are values that are none
        after = pc.if_else(texts.is_valid(), after.cast(column.type), column)
    return batch.with_column(field, after)


def _call(batch: DocumentBatch, function: Callable[..., Any], fields: list[str], output: str) -> DocumentBatch:
    """A user's function, value by value. Values it leaves as they are keep their bytes."""
    columns = [python_values(batch, f) for f in fields]
    if len(fields) == 1:
        results = [None if v is None else function(v) for v in columns[0]]
    else:
        rows = zip(*columns, strict=True)
        results = [None if all(v is None for v in r) else function(**dict(zip(fields, r, strict=True))) for r in rows]
    kind = None
    if [output] == fields:
        column = plain_column(batch, output)
        kind, shown = column.type, column.to_pylist()
        same = [type(a) is type(b) and a == b for a, b in zip(results, columns[0], strict=True)]
        if all(same):
            return batch
        results = [s if equal else r for s, r, equal in zip(shown, results, same, strict=True)]
    return batch.with_column(output, _array(results, kind, function))


def _array(values: list[Any], kind: pa.DataType | None, function: Callable[..., Any]) -> pa.Array:
    import pyarrow as pa

    for wanted in (kind, None) if kind is not None else (None,):
        try:
            return pa.array(values, wanted)
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
            continue
    kinds = sorted({type(v).__name__ for v in values if v is not None})
    raise UsageError(f"Modify: {getattr(function, '__name__', function)!r} returned values of several types: {kinds}")


def _inputs(given: Any, n: int) -> list[list[str]]:
    """One list of fields per modifier."""
    entries = [given] if isinstance(given, str) else list(given) if isinstance(given, (list, tuple)) else []
    groups = [[e] if isinstance(e, str) else list(e) if isinstance(e, (list, tuple)) else [] for e in entries]
    if not groups or not all(g and all(isinstance(f, str) for f in g) for g in groups):
        raise UsageError(
            f"Modify(input_fields=...): expected a field, a list of fields or a list of lists, got {given!r}"
        )
    if len(groups) not in (1, n):
        raise UsageError(
            f"Modify(input_fields=...): {len(groups)} entries for {n} modifiers; give 1 or {n}. Several fields for one "
            "modifier are a list in a list: [['title', 'text']]"
        )
    return groups if len(groups) == n else groups * n


def _outputs(given: Any, inputs: list[list[str]]) -> list[str]:
    n = len(inputs)
    names = (
        [given] if given is None or isinstance(given, str) else list(given) if isinstance(given, (list, tuple)) else [0]
    )
    if not all(name is None or isinstance(name, str) for name in names) or len(names) not in (1, n):
        raise UsageError(f"Modify(output_fields=...): expected None, a field or {n} of them, got {given!r}")
    outputs = []
    for name, fields in zip(names if len(names) == n else names * n, inputs, strict=True):
        if name is None and len(fields) > 1:
            raise UsageError(f"Modify: a modifier that reads {fields} needs an output field; give output_fields")
        outputs.append(fields[0] if name is None else name)
    return outputs
