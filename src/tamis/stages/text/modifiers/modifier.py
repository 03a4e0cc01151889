"""Modify: the stage that applies modifiers to fields."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tamis._lazy import np, pa, pc
from tamis.errors import UsageError
from tamis.stages.base import ProcessingStage
from tamis.stages.text.modifiers.doc_modifier import DocumentModifier
from tamis.tasks import DocumentBatch

Modifier = DocumentModifier | Callable[..., Any]

_NAME = "modifier_fn"  # NeMo Curator's default, which is replaced by the names of the modifiers


@dataclass(repr=False)
class Modify(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Changes fields by a modifier, a function, or a list of them, one after the other.

    `input_fields`: one field for all modifiers, a list with one field per modifier, or a list of lists: a modifier or
    function of several fields gets them by name.

    `output_fields`: the fields of the results, one name or one per modifier (None: in place, for modifiers with one
    input). A null stays null; a DocumentModifier changes texts only, if it has one field; a function gets any value.
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
            is_class = isinstance(modifier, type) and issubclass(modifier, DocumentModifier)  # not instantiated
            if is_class or not (isinstance(modifier, DocumentModifier) or callable(modifier)):
                raise UsageError(
                    f"Modify(modifier_fn=...): expected DocumentModifier objects or functions, got {modifier!r}"
                )
        inputs = _inputs(self.input_fields, len(modifiers))
        self._steps = list(zip(modifiers, inputs, _outputs(self.output_fields, inputs), strict=True))
        names = [m.name if isinstance(m, DocumentModifier) else getattr(m, "__name__", "function") for m in modifiers]
        if self.name == _NAME:
            self.name = names[0] if len(names) == 1 else "modifier_chain_of_" + "_".join(names)

    @property
    def kernel_groups(self) -> tuple[str, ...]:  # type: ignore[override]  # those of its modifiers
        modifiers = [m for m, _, _ in self._steps if isinstance(m, DocumentModifier)]
        return tuple(dict.fromkeys(g for m in modifiers for g in m.kernel_groups))

    def inputs(self) -> Any:
        added: set[str] = set()
        required: dict[str, None] = {}
        for _, fields, output in self._steps:
            required.update(dict.fromkeys(f for f in fields if f not in added))
            added.add(output)
        return ["data"], list(required)

    def outputs(self) -> Any:
        inputs = set(self.inputs()[1])
        return ["data"], [o for o in dict.fromkeys(o for _, _, o in self._steps) if o not in inputs]

    @property
    def redacts_samples(self) -> bool:  # type: ignore[override]  # as its modifiers do
        return any(isinstance(m, DocumentModifier) and m.removes_values for m, _, _ in self._steps)

    def redact_sample(self, text: str) -> str:
        for modifier, _, _ in self._steps:
            if isinstance(modifier, DocumentModifier) and modifier.removes_values:
                text = modifier.modify_document(text)
        return text

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        if not batch.num_items:
            return batch
        for modifier, fields, output in self._steps:
            if isinstance(modifier, DocumentModifier):
                if len(fields) == 1:
                    batch = _modify_texts(batch, modifier, fields[0], output)
                else:
                    batch = _call(batch, modifier.modify_document, fields, output)
                self._log_metrics(modifier.take_metrics())
            else:
                batch = _call(batch, modifier, fields, output)
        return batch


def _modify_texts(batch: DocumentBatch, modifier: DocumentModifier, field: str, output: str) -> DocumentBatch:
    from tamis.tasks.columns.exact import replace_where

    texts = batch.texts(field)
    after = modifier.modify_batch(texts)
    if isinstance(after, pa.ChunkedArray):
        after = after.combine_chunks()
    if len(after) != len(texts):
        raise UsageError(f"{modifier.name}.modify_batch returned {len(after)} texts for {len(texts)}")
    if output == field:
        if after is texts:
            return batch
        changed = _changed(texts, after)
        if changed is None:
            return batch if after.equals(texts) else batch.with_texts(field, after)
        return batch.with_texts(field, after, changed=changed) if changed.any() else batch
    if texts.null_count and after.null_count < len(after):  # a user's modify_batch may ignore nulls
        after = replace_where(after, texts.is_null().to_numpy(zero_copy_only=False), pa.nulls(texts.null_count))
    return batch.with_column(output, after)


def _changed(before: pa.Array, after: pa.Array) -> Any:
    """Return a mask of the rows whose text changed, or None if the modifier returned something else than texts."""
    if before.type != after.type:
        return None
    valid = [np.asarray(texts.is_valid()) for texts in (before, after)]
    differ = np.asarray(pc.fill_null(pc.not_equal(before, after), False))
    return differ | (valid[0] != valid[1])


def _call(batch: DocumentBatch, function: Callable[..., Any], fields: list[str], output: str) -> DocumentBatch:
    """Apply a user's function value by value, each as JSON represents it.

    Values that it leaves unchanged keep their bytes.
    """
    columns = [batch.values(f) for f in fields]
    if len(fields) == 1:
        results = [None if v is None else function(v) for v in columns[0]]
    else:
        rows = zip(*columns, strict=True)
        results = [None if all(v is None for v in r) else function(**dict(zip(fields, r, strict=True))) for r in rows]
    if [output] == fields:
        pairs = zip(results, columns[0], strict=True)
        if all(a is b and not isinstance(a, (list, dict)) for a, b in pairs):  # lists may have been changed in place
            return batch
    return batch.with_column(output, results)


def _inputs(fields: Any, n: int) -> list[list[str]]:
    """Return one list of fields per modifier."""
    entries = [fields] if isinstance(fields, str) else list(fields) if isinstance(fields, (list, tuple)) else []
    groups = [[e] if isinstance(e, str) else list(e) if isinstance(e, (list, tuple)) else [] for e in entries]
    if not groups or not all(g and all(isinstance(f, str) for f in g) for g in groups):
        raise UsageError(
            f"Modify(input_fields=...): expected a field, a list of fields or a list of lists, got {fields!r}"
        )
    if len(groups) not in (1, n):
        raise UsageError(
            f"Modify(input_fields=...): {len(groups)} entries for {n} modifiers; give 1 or {n}. Several fields for one "
            "modifier are a list in a list: [['title', 'text']]"
        )
    return groups if len(groups) == n else groups * n


def _outputs(output_fields: Any, inputs: list[list[str]]) -> list[str]:
    """Return the output field of each modifier."""
    n = len(inputs)
    names: list[Any] = list(output_fields) if isinstance(output_fields, (list, tuple)) else [output_fields]
    if not all(name is None or isinstance(name, str) for name in names) or len(names) not in (1, n):
        raise UsageError(f"Modify(output_fields=...): expected None, a field or {n} of them, got {output_fields!r}")
    outputs = []
    for name, fields in zip(names if len(names) == n else names * n, inputs, strict=True):
        if name is None and len(fields) > 1:
            raise UsageError(f"Modify: a modifier that reads {fields} needs an output field; give output_fields")
        outputs.append(fields[0] if name is None else name)
    return outputs
