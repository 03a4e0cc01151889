"""The text of a recipe -> a tree of located values.

Covers YAML syntax, limits, `--set` and `${...}`; builds no objects.

YAML is read event by event through PyYAML's safe parser; no constructor of PyYAML ever runs, so a tag can create
nothing. Plain scalars follow the YAML 1.2 core rules (`true`/`false`, `null`, numbers): `lang: no` stays the text "no"
and `1e-3` is a number, both of which YAML 1.1 gets wrong. Limits on size, depth and the number of values (aliases
counted as often as they are used) are checked while reading, before memory is spent.

`${env:NAME}`, `${env:NAME,default}` and `${name}` (a top-level scalar of the same recipe) are replaced inside scalars;
`$${` writes a literal `${`. A plain scalar that is one reference as a whole takes the type its value would have if it
were written there; inside quotes it stays text.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import replace
from typing import Any, NamedTuple

from tamis._dataclasses import dataclass
from tamis.errors import RecipeError

MAX_FILE_BYTES = 4_000_000
MAX_DEPTH = 40
MAX_VALUES = 100_000
MAX_TEXT = 1_000_000
MISSING = "???"

Scalar = None | bool | int | float | str

_STANDARD_TAGS = {f"tag:yaml.org,2002:{kind}" for kind in ("str", "int", "float", "bool", "null", "map", "seq")}
_INT = re.compile(r"[-+]?[0-9][0-9_]*|0x[0-9a-fA-F]+|0o[0-7]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_SPECIAL: dict[str, Scalar] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf"), float("inf")),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}
_REFERENCE = re.compile(r"\$\$\{|\$\{([^{}]*)\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PATHS = ("input", "output", "input_path", "output_path", "file_paths", "path", "scratch")  # fields that hold paths


@dataclass
class Node:
    """One value and its line (0: it came from `--set`). `plain`: a scalar written without quotes."""

    value: Scalar | list[Node] | dict[str, Node]
    line: int = 0
    plain: bool = False
    n_values: int = 1
    depth: int = 0


def plain_scalar(text: str) -> Scalar:
    """Parse an unquoted scalar.

    >>> [plain_scalar(t) for t in ("12", "1e-3", "no", "true", "~", "512MB", "0x10")]
    [12, 0.001, 'no', True, None, '512MB', 16]
    """
    if text in _SPECIAL:
        return _SPECIAL[text]
    if _INT.fullmatch(text) and len(text) < 40:
        return int(text.replace("_", ""), 16 if text[:2] == "0x" else 8 if text[:2] == "0o" else 10)
    if _FLOAT.fullmatch(text) and len(text) < 400:
        return float(text.replace("_", ""))
    return text


def read_text(file: str, keep_mark: bool = False, what: str = "recipe", most: int = MAX_FILE_BYTES) -> str:
    """Read the text of a recipe (or of a similar file), without its byte order mark unless `keep_mark` is set."""
    try:
        with open(file, "rb") as handle:
            raw = handle.read(most + 1)
    except OSError as exc:
        raise RecipeError(f"cannot read the {what}: {exc.strerror}", file=file) from None
    if len(raw) > most:
        raise RecipeError(f"larger than {most:,} bytes; is this a {what} and not data?", file=file)
    try:
        return raw.decode("utf-8" if keep_mark else "utf-8-sig")
    except UnicodeDecodeError as exc:
        line = raw.count(b"\n", 0, exc.start) + 1
        raise RecipeError(f"not UTF-8 at byte {exc.start}; save the {what} as UTF-8", file=file, line=line) from None


def parse(text: str, file: str) -> Node:
    """Parse the one document in `text` into a tree."""
    import yaml  # here: who has no file to read need not wait for it

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return _TreeBuilder(file, yaml.parse(text, Loader=loader)).read()
    except yaml.MarkedYAMLError as exc:
        mark = exc.problem_mark or exc.context_mark
        line = mark.line + 1 if mark else 0
        raise RecipeError(f"not valid YAML: {exc.problem or exc.context}", file=file, line=line) from None
    except yaml.YAMLError as exc:
        raise RecipeError(f"not valid YAML: {exc}", file=file) from None


def fields_of(path: str) -> dict[str, Node]:
    """Return the top-level fields of a recipe file as written there, unchecked."""
    root = parse(read_text(path), path).value
    return root if isinstance(root, dict) else {}


class _TreeBuilder:
    """Builds the tree of one document from the events of the parser; bounds guard against endless or deep files."""

    def __init__(self, file: str, events: Iterator[Any]) -> None:
        self.file, self.events = file, events
        self.path: list[str] = []  # names and numbers that lead to what is being read
        self.anchors: dict[str, Node] = {}
        self.n_values = 0

    def fail(self, message: str, line: int) -> RecipeError:
        return RecipeError(message, file=self.file, line=line, field=".".join(self.path))

    def read(self) -> Node:
        import yaml

        root = None
        while not isinstance(event := self.next(), yaml.StreamEndEvent):
            if isinstance(event, yaml.DocumentStartEvent) and root is not None:
                raise self.fail(
                    "expected one YAML document, found a second one; put it into its own file", _line(event)
                )
            if isinstance(event, yaml.NodeEvent):
                root = self.node(event)
        if root is None:
            raise RecipeError("the file is empty; expected 'name:' and 'stages:' or 'workflow:'", file=self.file)
        return root

    def next(self) -> Any:
        event = next(self.events)
        tag = getattr(event, "tag", None)
        if tag not in (None, "!") and tag not in _STANDARD_TAGS:
            raise self.fail(
                f"tag {tag!r} is refused: a recipe holds plain values only; write _target_ instead", _line(event)
            )
        return event

    def node(self, event: Any) -> Node:
        """Read the value that begins with this event."""
        import yaml

        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in self.anchors:
                raise self.fail(f"alias *{event.anchor} refers to nothing that is complete above it", _line(event))
            return self.counted(self.anchors[event.anchor], self.anchors[event.anchor].n_values, _line(event))
        if isinstance(event, yaml.ScalarEvent):
            plain = event.implicit[0]
            is_text = not plain and (not event.tag or event.tag[-3:] == "str" or event.tag == "!")
            node = Node(event.value if is_text else plain_scalar(event.value), _line(event), plain)
        else:
            if len(self.path) >= MAX_DEPTH:
                raise self.fail(f"nested deeper than {MAX_DEPTH} levels; flatten the recipe", _line(event))
            is_mapping = isinstance(event, yaml.MappingStartEvent)
            inside = self.mapping() if is_mapping else self.sequence()
            parts = list(inside.values()) if isinstance(inside, dict) else inside
            n_values, depth = 1 + sum(p.n_values for p in parts), 1 + max((p.depth for p in parts), default=0)
            node = Node(inside, _line(event), n_values=n_values, depth=depth)
        if event.anchor is not None:
            self.anchors[event.anchor] = node
        return self.counted(node, 1, node.line)

    def mapping(self) -> dict[str, Node]:
        import yaml

        fields: dict[str, Node] = {}
        while not isinstance(event := self.next(), yaml.MappingEndEvent):
            if not isinstance(event, yaml.ScalarEvent):
                what = "an alias cannot be a field name"
                if not isinstance(event, yaml.AliasEvent):
                    what = "a field name must be a plain word, got a list or mapping"
                raise self.fail(what, _line(event))
            name = event.value
            if name == "<<":
                raise self.fail("merge keys ('<<') are not supported; repeat the fields or use ${name}", _line(event))
            if name in fields:
                first = fields[name].line
                raise self.fail(f"{name!r} is given twice, first on line {first}; remove one", _line(event))
            fields[name] = self.inside(name)
        return fields

    def sequence(self) -> list[Node]:
        import yaml

        items: list[Node] = []
        while not isinstance(event := self.next(), yaml.SequenceEndEvent):
            items.append(self.inside(str(len(items)), event))
        return items

    def inside(self, name: str, event: Any = None) -> Node:
        """Read the value under a name or number; it begins with `event`, or with the next event."""
        self.path.append(name)
        node = self.node(event if event is not None else self.next())
        self.path.pop()
        return node

    def counted(self, node: Node, n_values: int, line: int) -> Node:
        self.n_values += n_values
        if self.n_values > MAX_VALUES:
            raise self.fail(
                f"more than {MAX_VALUES:,} values (aliases counted each time they are used); split the recipe", line
            )
        # Aliases of aliases could nest deeper than the text does.
        if len(self.path) + node.depth > MAX_DEPTH:
            raise self.fail(f"nested deeper than {MAX_DEPTH} levels through aliases; flatten the recipe", line)
        return node


def _line(event: Any) -> int:
    return int(event.start_mark.line) + 1


def override(root: Node, key: str, text: str, file: str) -> None:
    """Apply `--set key=text`: replace or add the value at a dotted path (list items by number) in place.

    Text that starts with `[` or `{` is read as YAML, anything else as one plain scalar, so that paths need no quotes;
    one that looks like a number (a folder 2024) stays text. `settings` and `write` are made where the recipe does not
    have them.
    """
    parts = key.split(".")
    new = _override_value(key, parts[-1], text)
    here, done = root, ""
    if isinstance(root.value, dict) and len(parts) > 1 and _may_begin(root.value, parts[0]):
        root.value[parts[0]] = Node({})
    for position, part in enumerate(parts):
        last = position == len(parts) - 1
        index = _index_of(part, here, may_add=last)
        if index is None:
            raise _no_such_part(key, part, here, done or "the recipe", file)
        container: Any = here.value
        if last:
            container[index] = new
        else:
            here = container[index] = _unshared(container[index])
        done = f"{done}.{part}" if done else part


def _override_value(key: str, name: str, text: str) -> Node:
    """Parse the text of `--set key=text`; `name`: the last part of the key."""
    if text[:1] in ("[", "{"):
        new = parse(text, f"--set {key}")
        new.line = 0
        return new
    scalar = plain_scalar(text)
    if name in _PATHS and isinstance(scalar, (int, float)) and not isinstance(scalar, bool):
        scalar = text
    return Node(scalar, 0, plain=True)


def _index_of(part: str, node: Node, may_add: bool) -> str | int | None:
    """Return the key or the position of a part inside a node, or None if there is no such part.

    `may_add`: a mapping takes any key, not only those it has.
    """
    if isinstance(node.value, dict) and part and (may_add or part in node.value):
        return part
    if isinstance(node.value, list) and part.isdecimal() and int(part) < len(node.value):
        return int(part)
    return None


def _no_such_part(key: str, part: str, node: Node, path: str, file: str) -> RecipeError:
    """Return the error for a part of `--set key=...` that the node at `path` does not have."""
    names = list(node.value) if isinstance(node.value, dict) else []
    size = f"; it has {len(node.value)} items, from 0" if isinstance(node.value, list) else ""
    return RecipeError(
        f"--set {key}: there is no {part!r} in {path}{size}{suggest(part, names)}", file=file, line=node.line
    )


def _may_begin(root: Mapping[str, Node], name: str) -> bool:
    """Return True if `--set name.key=value` may begin a part that the recipe leaves out, or leaves empty."""
    is_part = name == "settings" or (name == "write" and "steps" in root)
    return is_part and (name not in root or root[name].value is None)


def _unshared(node: Node) -> Node:
    # An alias shares its node with every other use; an override must change only the one that was named.
    return replace(node, value=copy(node.value))


def suggest(name: str, known: list[str]) -> str:
    """Return the end of a sentence about an unknown name: the nearest spelling and what is accepted.

    >>> suggest("blocksise", ["blocksize", "fields"])
    '; did you mean blocksize? Accepted: blocksize, fields'
    """
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    hint = f"; did you mean {near[0]}?" if near else ""
    if not known:
        return hint
    return f"{hint or ';'} {'A' if hint else 'a'}ccepted: {', '.join(sorted(known))}"


class References:
    """Replaces `${...}` in scalars. `used` collects the top-level names that were referred to."""

    def __init__(self, root: Mapping[str, Node], environ: Mapping[str, str], file: str) -> None:
        self.root, self.environ, self.file = root, environ, file
        self.used: set[str] = set()
        self._values: dict[str, Scalar] = {}
        self._open: list[str] = []

    def value(self, node: Node, path: str) -> Scalar:
        """Return the scalar in `node` with every reference replaced."""
        raw = node.value
        if not isinstance(raw, str):
            assert not isinstance(raw, (list, dict))
            return raw
        if raw == MISSING and node.plain:
            raise self._fail(f"has no value yet; set it with --set {path}=...", node, path)
        if "${" not in raw:
            return raw
        whole = _REFERENCE.fullmatch(raw)
        if whole is not None and whole.group(1) is not None:
            value = self._lookup(whole.group(1), node, path)
            if not node.plain:
                return _as_text(value)
            return plain_scalar(value) if isinstance(value, str) and whole.group(1).startswith("env:") else value
        pieces, at, n_chars = [], 0, 0
        for match in _REFERENCE.finditer(raw):
            inside = match.group(1)
            pieces += [raw[at : match.start()], "${" if inside is None else _as_text(self._lookup(inside, node, path))]
            at = match.end()
            n_chars += len(pieces[-1])
            if n_chars > MAX_TEXT:
                raise self._fail(f"grows beyond {MAX_TEXT:,} characters when its references are replaced", node, path)
        rest = raw[at:]
        if "${" in rest:
            raise self._fail("'${' is not closed; write ${name} or ${env:NAME}, or $${ for a literal '${'", node, path)
        return "".join(pieces) + rest

    def _fail(self, message: str, node: Node, path: str) -> RecipeError:
        return RecipeError(message, file=self.file, line=node.line, field=path)

    def _lookup(self, inside: str, node: Node, path: str) -> Scalar:
        if inside.startswith("env:"):
            name, comma, default = inside[4:].partition(",")
            if not _NAME.fullmatch(name.strip()):
                raise self._fail(f"${{{inside}}}: {name!r} is not the name of an environment variable", node, path)
            if name.strip() in self.environ:
                return self.environ[name.strip()]
            if comma:
                return default.strip()
            raise self._fail(
                f"environment variable {name.strip()} is not set; set it, or give a default: "
                f"${{env:{name.strip()},value}}",
                node,
                path,
            )
        if not _NAME.fullmatch(inside):
            raise self._fail(
                f"${{{inside}}} is not supported; write ${{env:NAME}}, ${{env:NAME,default}} or the ${{name}} of a "
                "top-level value",
                node,
                path,
            )
        target = self.root.get(inside)
        scalars = [key for key, other in self.root.items() if not isinstance(other.value, (list, dict))]
        if target is None or isinstance(target.value, (list, dict)):
            raise self._fail(
                f"${{{inside}}}: the recipe has no top-level value of that name{suggest(inside, scalars)}", node, path
            )
        self.used.add(inside)
        if inside in self._open:
            raise self._fail(f"${{{inside}}} refers to itself: {' -> '.join([*self._open, inside])}", node, path)
        if inside not in self._values:
            self._open.append(inside)
            self._values[inside] = self.value(target, inside)
            self._open.pop()
        return self._values[inside]


class Located(NamedTuple):
    """A value of a file and its dotted key, so that checks can name file, line and key."""

    node: Node
    key: str
    references: References

    def fail(self, message: str) -> RecipeError:
        return RecipeError(message, file=self.references.file, line=self.node.line, field=self.key)

    def scalar(self) -> Scalar:
        """Return its single value, with references replaced."""
        if isinstance(self.node.value, (list, dict)):
            raise self.fail("expected one value, got a list or mapping")
        return self.references.value(self.node, self.key)

    def items(self) -> list[Located]:
        """Return the items of a list; for anything else, itself as the only item."""
        if not isinstance(self.node.value, list):
            return [self]
        return [Located(item, f"{self.key}.{i}", self.references) for i, item in enumerate(self.node.value)]

    def fields(self) -> dict[str, Located]:
        """Return the fields of a mapping; for anything else, none."""
        inside = self.node.value if isinstance(self.node.value, dict) else {}
        before = f"{self.key}." if self.key else ""
        return {name: Located(item, f"{before}{name}"[:200], self.references) for name, item in inside.items()}

    def all(self) -> Iterator[Located]:
        """Yield this value and everything in it."""
        yield self
        for item in (*self.fields().values(), *(self.items() if isinstance(self.node.value, list) else ())):
            yield from item.all()


def _as_text(value: Scalar) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value)
