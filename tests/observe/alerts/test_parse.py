"""Rule files: what they mean, and what is said about wrong ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tamis.errors import RecipeError, TamisError, UsageError
from tamis.observe.alerts.choose import AlertSetup, choose, find_file
from tamis.observe.alerts.measures import MEASURES, RunContext
from tamis.observe.alerts.parse import RULE_KEYS, Section, read_file, read_section
from tamis.observe.alerts.rules import AlertLimit, AlertRule
from tamis.observe.alerts.sinks import CommandSink, WebhookSink
from tamis.recipe.load import load_recipe
from tamis.yaml_text import Located, Node, References, parse
from tests.support.limits import examples

PLACE = RunContext("out")


def section(text: str, prefix: str = "") -> Section:
    return read_section(Located(parse(text, "a.yaml"), prefix, References({}, {"TOKEN": "secret"}, "a.yaml")))


def chosen(own: str = "", recipe: str = "", allow: bool = False) -> AlertSetup:
    return choose(section(recipe, "alerts") if recipe else None, section(own) if own else None, PLACE, allow)


def rule(name: str, made: AlertSetup) -> AlertRule:
    return next(r for r in made.rules if r.name == name)


def test_the_defaults() -> None:
    made = chosen()
    assert [(r.name, r.for_s, r.level, [(x.amount, x.unit) for x in r.limits], r.low) for r in made.rules] == [
        ("memory", 30.0, "warning", [(0.85, "share")], False),
        ("throughput", 30.0, "warning", [(0.5, "share")], True),
        ("quarantine", 10.0, "warning", [(0.0005, "share")], False),
        ("disk", 5.0, "critical", [(0.05, "share"), (1e9, "bytes")], True),
        ("gpu", 60.0, "warning", [(0.8, "share")], True),
        ("leak", 0.0, "warning", [(0.0, "bytes")], False),
        ("handles", 0.0, "warning", [(0.0, "number")], False),
        ("progress", 0.0, "warning", [(300.0, "seconds")], False),
    ]
    assert (made.every_s, made.to, dict(made.sinks)) == (600.0, ("log", "terminal"), {})


OWN = """
every: 1h
to: [log, pager]
rules:
  memory: {above: [90%, 900MB], for: 1min, level: critical, every: 30s, to: pager,
    do: [shrink, pause 90s], say: call Ann}
  gpu: off
  disk: {on: false}
  too long: {measure: runtime, above: 8h, do: stop}
  progress: {above: 600}
  leak: {do: recycle}
  slow parser: {measure: throughput, below: 0.3, only: parse}
sinks:
  pager: {webhook: "https://pager.example/x?y=1", headers: {Authorization: "Bearer ${env:TOKEN}"}, timeout: 5s,
    retries: 2}
  script: {command: "notify 'two words' -x", timeout: 1min}
  listed: {command: [a b, "$HOME", ""]}
"""


def test_a_file_of_the_user() -> None:
    made = chosen(OWN)
    assert rule("memory", made) == AlertRule(
        "memory",
        "memory",
        (AlertLimit(0.9, "share"), AlertLimit(900e6, "bytes")),
        False,
        60.0,
        "critical",
        30.0,
        ("pager",),
        ("shrink", "pause:90"),
        "call Ann",
    )
    assert [r.name for r in made.rules if not r.on] == ["disk", "gpu"]
    assert rule("too long", made).limits == (AlertLimit(28800.0, "seconds"),)
    assert rule("too long", made).remedies == ("stop",)
    assert rule("progress", made).limits == (AlertLimit(600.0, "seconds"),)
    assert rule("slow parser", made) == AlertRule(
        "slow parser", "throughput", (AlertLimit(0.3, "share"),), low=True, only="parse"
    )
    assert rule("leak", made).remedies == ("recycle",)
    assert (made.every_s, made.to) == (3600.0, ("log", "pager"))
    pager = made.sinks["pager"]
    assert pager == WebhookSink("pager", "https://pager.example/x?y=1", (("Authorization", "Bearer secret"),), 5.0, 2)
    assert "secret" not in repr(pager)
    assert "pager.example" not in repr(pager)
    assert made.sinks["script"] == CommandSink("script", ("notify", "two words", "-x"), 60.0)
    assert made.sinks["listed"] == CommandSink("listed", ("a b", "$HOME", ""), 10.0)


def test_toml_says_the_same(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(
        'every = "1h"\n[rules]\ngpu = false\nmemory = {above = "90%", for = 60, do = ["stop"]}\n'
        '[rules."too long"]\nmeasure = "runtime"\nabove = "8h"\n[sinks.s]\ncommand = ["true"]\n'
    )
    made = choose(None, read_file(str(tmp_path / "a.toml"), {}), PLACE)
    assert (rule("memory", made).limits, rule("memory", made).for_s, rule("gpu", made).on) == (
        (AlertLimit(0.9, "share"),),
        60.0,
        False,
    )
    assert (rule("too long", made).limits, made.sinks["s"]) == (
        (AlertLimit(28800.0, "seconds"),),
        CommandSink("s", ("true",)),
    )


def test_the_users_file_wins_over_the_recipe_which_wins_over_the_defaults() -> None:
    recipe = "{rules: {memory: {above: 70%, for: 5s}, disk: off, mine: {measure: queue, above: 1GB}}, every: 1min}"
    made = chosen("rules: {memory: {above: 80%}, mine: {do: stop}}", recipe)
    assert (rule("memory", made).limits, rule("memory", made).for_s) == ((AlertLimit(0.8, "share"),), 5.0)
    assert (rule("disk", made).on, rule("mine", made).remedies, made.every_s) == (False, ("stop",), 60.0)


WRONG = [
    ("5", "expected a mapping of every, to, rules, sinks"),
    ("{rule: {}}", "rule: unknown key 'rule'; did you mean rules? Accepted: every, rules, sinks, to"),
    ("{rules: []}", "rules: expected a mapping of names, at most 200"),
    ("{rules: {memory: 85%}}", "rules.memory: expected off, on, or a mapping of measure, above"),
    (
        "{rules: {memory: {abov: 3}}}",
        "rules.memory.abov: unknown key 'abov'; did you mean above? Accepted: above, below, do, ",
    ),
    (
        "{rules: {memory: {above: lots}}}",
        "rules.memory.above: expected a limit such as 85%, 1GB, 5min or a number, got 'lots'",
    ),
    ("{rules: {memory: {above: -5}}}", "rules.memory.above: expected a limit"),
    ("{rules: {memory: {above: .nan}}}", "rules.memory.above: expected a limit"),
    ("{rules: {memory: {above: []}}}", "rules.memory.above: expected one limit, or a list of up to 4, e.g. [5%, 1GB]"),
    (
        "{rules: {memory: {for: soon}}}",
        "rules.memory.for: time: expected a time such as 30s, 5min, 2h or 1d, got 'soon'",
    ),
    ("{rules: {memory: {for: -1}}}", "rules.memory.for: time: expected a time from 0 to 366d, got -1"),
    ("{rules: {memory: {every: 0s}}}", "rules.memory.every: expected at least 1s between two alerts"),
    ("{rules: {memory: {level: bad}}}", "rules.memory.level: unknown value 'bad'; accepted: critical, warning"),
    (
        "{rules: {memory: {do: explode}}}",
        "rules.memory.do: unknown remedy 'explode'; accepted: pause, recycle, shrink, stop; pause",
    ),
    ("{rules: {memory: {do: [pause 2h]}}}", "rules.memory.do.0: pause: expected a time above 0 and up to 3600s"),
    ("{rules: {memory: {do: shrink 5}}}", "rules.memory.do: unknown remedy 'shrink 5'"),
    ("{rules: {memory: {on: maybe}}}", "rules.memory.on: expected true or false, got 'maybe'"),
    ("{rules: {memory: {to: 5}}}", "rules.memory.to: expected the name of a sink (log, terminal, or your own), got 5"),
    (
        "{rules: {memory: {measure: x}}}",
        "rules.memory.measure: unknown value 'x'; accepted: cgroup_memory, disk, dropped, ",
    ),
    ('{rules: {"a\\nb": off}}', "rules: 'a\\nb' is no name: a letter, then up to 59 letters"),
    ("{sinks: {log: {command: a}}}", "sinks.log: 'log' is built in; choose another name"),
    ("{sinks: {s: {command: a, webhook: b}}}", "sinks.s: expected a mapping with either command: or webhook:"),
    ("{sinks: {s: {command: a, retries: 3}}}", "sinks.s.retries: unknown key 'retries'; accepted: command, timeout"),
    ("{sinks: {s: {command: []}}}", "sinks.s.command: expected a program and its arguments"),
    (
        "{sinks: {s: {command: 'a \"b'}}}",
        "sinks.s.command: cannot be split into words (No closing quotation); write a list",
    ),
    ("{sinks: {s: {command: {a: b}}}}", "a.yaml:1: sinks.s.command: expected one value, got a list or mapping"),
    ("{sinks: {s: {command: [a, 5]}}}", "sinks.s.command: expected a program and its arguments"),
    ("{sinks: {s: {command: a, timeout: 1h}}}", "sinks.s.timeout: expected a time above 0 and up to 120s"),
    (
        "{sinks: {s: {webhook: 'file:///etc/passwd'}}}",
        "sinks.s.webhook: expected an address that begins with http:// or https://",
    ),
    (
        "{sinks: {s: {webhook: 'ftp://a/b'}}}",
        "sinks.s.webhook: expected an address that begins with http:// or https://",
    ),
    ("{sinks: {s: {webhook: 'http://'}}}", "sinks.s.webhook: expected an address"),
    ("{sinks: {s: {webhook: 'http://a:b/'}}}", "sinks.s.webhook: expected an address"),
    ("{sinks: {s: {webhook: 'http://[/'}}}", "sinks.s.webhook: expected an address"),
    ("{sinks: {s: {webhook: 'http://a/ b'}}}", "sinks.s.webhook: expected an address"),
    ("{sinks: {s: {webhook: 'https://me:pw@a/'}}}", "sinks.s.webhook: an address with a password in it is refused"),
    (
        '{sinks: {s: {webhook: "https://a/", headers: {A: "b\\r\\nX: y"}}}}',
        "'A': expected a header name and one line of ASCII text",
    ),
    ('{sinks: {s: {webhook: "https://a/", headers: {host: b}}}}', "'host' is set by Tamis; remove it"),
    (
        '{sinks: {s: {webhook: "https://a/", retries: 99}}}',
        "sinks.s.retries: expected a whole number from 0 to 10, got 99",
    ),
]


@pytest.mark.parametrize(("text", "message"), WRONG)
def test_wrong_files_name_the_key_and_what_is_allowed(text: str, message: str) -> None:
    with pytest.raises(RecipeError) as raised:
        section(text)
    assert str(raised.value).startswith("a.yaml:1: ")
    assert message in str(raised.value)
    assert str(raised.value).count("a.yaml") == 1


def test_a_wrong_name_is_reported_with_its_own_line() -> None:
    with pytest.raises(RecipeError, match=r"a\.yaml:3: rules: '1st' is no name"):
        section("rules:\n  memory: off\n  1st: off\n")


UNFIT = [
    (
        "{rules: {memory: {above: 5min}}}",
        "rules.memory: above: memory is compared with a share such as 85% or a size such as 1GB",
    ),
    ("{rules: {progress: {above: 5%}}}", "rules.progress: above: progress is compared with a time such as 5min"),
    ("{rules: {gpu: {below: 80}}}", "rules.gpu: below: 80 is more than everything; write 80% or a share up to 1"),
    (
        "{rules: {hot: {measure: gpu_temperature, above: 1GB}}}",
        "above: gpu_temperature is compared with a number of degrees",
    ),
    ("{rules: {memory: {above: 5%, below: 1%}}}", "rules.memory: give above: or below:, not both"),
    (
        "{rules: {memory: {measure: disk}}}",
        "the rule 'memory' is about memory; to watch disk, give the rule another name",
    ),
    (
        "{rules: {memry: {above: 5%}}}",
        "'memry' is a new rule and must say what it measures; did you mean memory? Accepted as measure:",
    ),
    ("{rules: {queue: {for: 5s}}}", "rules.queue: a new rule needs a limit: above: or below:"),
    ("{to: pager}", "to: there is no sink 'pager'; accepted: log, terminal"),
    (
        "{rules: {memory: {to: [log, pagr]}}, sinks: {pager: {command: x}}}",
        "no sink 'pagr'; did you mean pager? Accepted: log, pager",
    ),
]


@pytest.mark.parametrize(("text", "message"), UNFIT)
def test_what_does_not_fit_together(text: str, message: str) -> None:
    with pytest.raises(RecipeError) as raised:
        chosen(text)
    assert message in str(raised.value)


def test_a_recipe_names_commands_and_webhooks_only_if_the_user_allows_it() -> None:
    for kind, sink in (("command", "{command: evil}"), ("webhook", "{webhook: 'http://evil.example/'}")):
        recipe = f"{{sinks: {{s: {sink}}}}}"
        with pytest.raises(RecipeError) as raised:
            chosen(recipe=recipe)
        assert str(raised.value) == (
            f"a.yaml:1: alerts.sinks.s: the recipe wants alerts to go to a {kind} of its own; if you trust it, add "
            "--allow-alert-sinks, or define the sink in your own alerts file (docs/guides/alerts.md)"
        )
        assert list(chosen(recipe=recipe, allow=True).sinks) == ["s"]


def test_a_recipe_uses_the_users_sinks_and_never_changes_them() -> None:
    own = "sinks: {pager: {command: page}}"
    assert rule("memory", chosen(own, "{rules: {memory: {to: pager}}}")).sinks == ("pager",)
    with pytest.raises(RecipeError, match="your own alerts file has a sink 'pager' too"):
        chosen(own, "{sinks: {pager: {command: evil}}}", allow=True)


def test_which_file_is_the_users(tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path)}
    assert find_file(None, {}) is None
    assert find_file(None, home) is None
    folder = tmp_path / ".config/tamis"
    folder.mkdir(parents=True)
    (folder / "alerts.toml").write_text("")
    assert find_file(None, home) == str(folder / "alerts.toml")
    assert find_file(None, {**home, "XDG_CONFIG_HOME": str(tmp_path / "elsewhere")}) is None
    assert find_file(None, {"XDG_CONFIG_HOME": str(tmp_path / ".config")}) == str(folder / "alerts.toml")
    assert find_file(None, {"XDG_CONFIG_HOME": "relative"}) is None
    assert find_file(None, {**home, "TAMIS_ALERTS": "x.yaml"}) == "x.yaml"
    assert find_file("given", {**home, "TAMIS_ALERTS": "x.yaml"}) == "given"
    (folder / "alerts.yaml").write_text("")
    with pytest.raises(UsageError, match=r"alerts\.yaml and .*alerts\.toml; keep one of them"):
        find_file(None, home)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.yaml", b"\xff", "a.yaml:1: not UTF-8 at byte 0"),
        ("a.yaml", b"a: [", "a.yaml:2: not valid YAML"),
        ("a.yaml", b"a: 1\na: 2\n", "a.yaml:2: 'a' is given twice, first on line 1"),
        ("a.yaml", b"x" * 1_000_001, "larger than 1,000,000 bytes"),
        ("a.toml", b"a = ", "a.toml: not valid TOML"),
        ("a.toml", b"a = " + b"[" * 5000, "a.toml: "),
        ("a.toml", b"every = " + b"9" * 5000, "a.toml: not valid TOML"),
        ("a.toml", b"every = 2020-01-01", "expected text, a number or true or false, got a date"),
        ("a.toml", b"rules = {memory = {above = [[[[[[[[[[[[1]]]]]]]]]]]]}}", "nested deeper than 10 levels"),
        ("a.yaml", None, "cannot read the alerts file: No such file or directory"),
    ],
)
def test_files_that_cannot_be_read(name: str, content: bytes | None, message: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(RecipeError) as raised:
        read_file(str(tmp_path / name), {})
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("name", "content"), [("a.yaml", ""), ("a.yaml", "# nothing\n---\n"), ("a.toml", ""), ("a.yaml", "rules:\n")]
)
def test_an_empty_file_changes_nothing(name: str, content: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    assert choose(None, read_file(str(tmp_path / name), {}), PLACE) == chosen()


RECIPE = """
name: t
limit: 90%
stages:
  - _target_: tamis.stages.text.io.reader.JsonlReader
    file_paths: in
  - _target_: tamis.stages.text.io.writer.JsonlWriter
    path: out
alerts:
  rules:
    memory: {above: "${limit}"}
"""


def test_a_recipe_has_alerts(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_text(RECIPE)
    found = load_recipe(path).alerts
    assert found is not None
    assert found.rules["memory"] == {"above": (AlertLimit(0.9, "share"),)}
    assert load_recipe(path, overrides={"limit": "80%"}).alerts.rules["memory"] == {
        "above": (AlertLimit(0.8, "share"),)
    }
    path.write_text(RECIPE.replace("above", "abve"))
    with pytest.raises(
        RecipeError, match=r"r.yaml:11: alerts.rules.memory.abve: unknown key 'abve'; did you mean above\?"
    ):
        load_recipe(path)


KEYS = st.sampled_from(
    [*RULE_KEYS, "rules", "sinks", "every", "command", "webhook", "headers", "timeout", "retries", *MEASURES, "x"]
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(
        ["85%", "1GB", "5min", "-1s", "off", "log", "pause 5", "stop", "http://a/", "${env:X,y}", "???", "1e999%"]
    ),
)
TREES: Any = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.one_of(KEYS, st.text(max_size=3)), inner, max_size=3)
    ),
)
FILES = st.one_of(
    TREES,
    st.fixed_dictionaries({"rules": st.dictionaries(KEYS, st.dictionaries(KEYS, TREES, max_size=4), max_size=3)}),
    st.fixed_dictionaries({"sinks": st.dictionaries(KEYS, st.dictionaries(KEYS, TREES, max_size=4), max_size=3)}),
)


def tree(value: Any) -> Node:
    if isinstance(value, dict):
        return Node({str(k): tree(v) for k, v in value.items()}, 1)
    return Node([tree(v) for v in value] if isinstance(value, list) else value, 1, plain=True)


def made_or_refused(read: Callable[[], Section]) -> tuple[AlertSetup, str]:
    try:
        return choose(None, read(), PLACE), ""
    except TamisError as exc:
        return AlertSetup(), str(exc)


@settings(max_examples=examples(200), deadline=None)
@given(FILES)
def test_a_hostile_file_is_read_or_refused_with_a_sentence(value: Any) -> None:
    made, refused = made_or_refused(lambda: read_section(Located(tree(value), "", References({}, {}, "f"))))
    assert refused == "" or (refused.startswith("f:") and len(refused) < 2000)
    for one in made.rules:
        assert one.limits
        assert all(x.amount >= 0 for x in one.limits)
        assert one.for_s >= 0
    for sink in made.sinks.values():
        assert sink.url.startswith("http") if isinstance(sink, WebhookSink) else sink.command


@settings(max_examples=examples(150), deadline=None)
@given(
    st.one_of(
        st.binary(max_size=200), FILES.map(lambda v: json.dumps(v).encode()), st.text(max_size=200).map(str.encode)
    )
)
def test_hostile_bytes(tmp_path_factory: pytest.TempPathFactory, raw: bytes) -> None:
    folder = tmp_path_factory.mktemp("hostile")
    for name in ("a.yaml", "a.toml"):
        (folder / name).write_bytes(raw)
        _, refused = made_or_refused(lambda path=str(folder / name): read_file(path, {}))
        assert refused == "" or name in refused
