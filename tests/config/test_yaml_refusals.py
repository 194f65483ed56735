"""What no config may hold is refused in one line, with file, line, column and what to do, and in no time."""

import codecs
import re
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from loader_helpers import refusal_of

from modalities_pipeline.config.loader import load_yaml
from modalities_pipeline.exceptions import ConfigError


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3", "config.yaml:3:1: the key 'a' is there twice; it first stands in line 1; remove one."),
        (
            "a:\n  - {b: 1, b: 2}",
            "config.yaml:2:12: the key 'b' is there twice; it first stands in line 2; remove one.",
        ),
        ("1: a\n1: b", "config.yaml:2:1: the key '1' is there twice; it first stands in line 1; remove one."),
        ("b: 1\n? [a]\n: 1", "config.yaml:2:3: a key has to be a text, not a list or a mapping."),
        ("a: {? {b: 1} : 2}", "config.yaml:1:7: a key has to be a text, not a list or a mapping."),
        ("a: {~: 2}", "config.yaml:1:5: there is no key before the colon; put it in quotes if it is meant as text."),
        (
            "- 1",
            "config.yaml:1:1: the top level has to be a mapping (key: value, with a blank behind the colon), but is a "
            "list.",
        ),
        (
            "lr:0.1",
            "config.yaml:1:1: the top level has to be a mapping (key: value, with a blank behind the colon), but is a "
            "single value.",
        ),
        ("a: 1\n---\nb: 1", "config.yaml:2:1: a second document ('---') begins here; a config is one document."),
        ("a: *x", "config.yaml:1:4: the alias *x has no anchor &x above it."),
        ("a: 1\n<<: [1]", "config.yaml:2:1: << wants the alias of a mapping, or a list of such."),
    ],
)
def test_what_yaml_allows_but_a_config_does_not_is_named(write_config, text, message):
    """B076: the same key twice."""
    assert refusal_of(write_config(text)) == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1,\nb: 2", "config.yaml:2:5: a ',' or ']' is missing; the '[' stands in line 1."),
        ("x: [1, ${a}]", 'config.yaml:1:9: inside [...] and {...}, an interpolation has to be in quotes: "${...}".'),
        ("x: {k: ${a}}", 'config.yaml:1:9: inside [...] and {...}, an interpolation has to be in quotes: "${...}".'),
        ("a:\n\tb: 1", "config.yaml:2:1: a tab stands where YAML wants blanks; indent and separate with blanks."),
        (
            "a:\n  b: 1\n\tc: 2",
            "config.yaml:3:1: a tab stands where YAML wants blanks; indent and separate with blanks.",
        ),
        ("lr:0.1\nb: 2", "config.yaml:1:3: a blank is missing behind the colon; write 'key: value'."),
        ("a: 1\nlr:0.1\nb: 2", "config.yaml:2:3: a blank is missing behind the colon; write 'key: value'."),
        ("a: 1\nlr\nb: 2", "config.yaml:2:1: no 'key: value': the colon is missing."),
        ("a: x: y", "config.yaml:1:5: a second ': ' in one line; put a text that holds ': ' in quotes."),
        (
            "a: 1\n b: 2",
            "config.yaml:2:3: a key is not expected here: the key above has a value already; check the indentation.",
        ),
        (
            "a:\n  - 1\n b: 2",
            "config.yaml:3:2: the indentation fits nothing above; what it belongs to begins in line 1.",
        ),
        ("b: 1\na: 'x", "config.yaml:2:4: the quote that opens here is not closed."),
        (
            'a: "C:\\data"',
            "config.yaml:1:7: \\d is no escape in double quotes; use single quotes, or double the backslash.",
        ),
        ("a: @x", "config.yaml:1:4: a value cannot begin with '@'; put it in quotes."),
        (
            "files: *.jsonl",
            "config.yaml:1:8: '*' begins an alias, but no name follows; put a value that begins with it in quotes.",
        ),
        (
            "a: &&",
            "config.yaml:1:4: '&' begins an anchor, but no name follows; put a value that begins with it in quotes.",
        ),
        (
            "a: >=5",
            "config.yaml:1:4: behind '>', text has to begin in the next line; put a value that begins with it in "
            "quotes.",
        ),
        ("  a: 1\nb: 2", "config.yaml:2:1: this belongs to nothing above; check the indentation."),
        (
            "a: - 1\n   - 2",
            "config.yaml:1:4: a list element ('- ') is not expected here; begin a list in a line of its own.",
        ),
        ("a: }", "config.yaml:1:4: '}' is not expected here."),
    ],
)
def test_syntax_errors_tell_where_and_what_to_do(write_config, text, message):
    assert refusal_of(write_config(text)) == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("b: 1\na: &x [*x]", "config.yaml:2:8: the anchor &x contains the alias *x of itself."),
        ("a: &x {b: {c: *x}}", "config.yaml:1:15: the anchor &x contains the alias *x of itself."),
        (
            "\n".join(f"a{n}: &x{n} [{', '.join([f'*x{n - 1}'] * 9) if n else 1}]" for n in range(12)),
            "config.yaml:7:10: the file has more than 250000 values once its aliases (*) are expanded; a config is far "
            "smaller.",
        ),
        (
            "\n".join(f"a{n}: &x{n} {'[' * 30}{f'*x{n - 1}' if n else 1}{']' * 30}" for n in range(5)),
            "config.yaml:4:39: lists and mappings are nested too deeply (more than 100 levels).",
        ),
        (
            "a: " + "[" * 900 + "]" * 900,
            "config.yaml:1:104: lists and mappings are nested too deeply (more than 100 levels).",
        ),
        ("a: 1\nb: x\x00", "config.yaml:2:5: the control character U+0000 is not allowed in YAML; remove it."),
        ("a: \x1b[0m", "config.yaml:1:4: the control character U+001B is not allowed in YAML; remove it."),
        (
            "a: !!python/object/apply:os.getcwd []",
            "config.yaml:1:4: the tag !!python/object/apply:os.getcwd asks the reader to make a Python object, which a "
            "config may not; remove the tag.",
        ),
        (
            "a: !!python/name:os.system",
            "config.yaml:1:4: the tag !!python/name:os.system asks the reader to make a Python object, which a config "
            "may not; remove the tag.",
        ),
        (
            "a: !!python/object:os.X {b: 1}",
            "config.yaml:1:4: the tag !!python/object:os.X asks the reader to make a Python object, which a config may "
            "not; remove the tag.",
        ),
        ("a: !!timestamp 2024-01-01", "config.yaml:1:4: the tag !!timestamp of a value is not known; leave it out."),
        ("a: !mine [1]", "config.yaml:1:4: the tag !mine of a list is not known; leave it out."),
        (
            "a: {b: !remove }",
            "config.yaml:1:5: a.b: !remove removes an inherited key, but nothing is inherited here.",
        ),
    ],
)
def test_hostile_files_are_refused_in_one_line(write_config, text, message):
    """Alias bombs, nesting, Python tags, control characters."""
    start = time.process_time()
    assert refusal_of(write_config(text)) == message
    assert time.process_time() - start < 1


def test_nesting_beyond_what_libyaml_takes_is_refused_alike(write_config):
    message = refusal_of(write_config("a: " + "[" * 200_000))
    assert re.fullmatch(
        r"config.yaml:1:\d+: lists and mappings are nested too deeply( \(more than 100 levels\))?\.", message
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a: 1\nb: caf\xe9", "config.yaml:2:7: byte 0xe9 is no UTF-8; save it as UTF-8."),
        (codecs.BOM_UTF16_LE + "a: 1".encode("utf-16-le"), "config.yaml: is encoded as UTF-16; save it as UTF-8."),
    ],
)
def test_other_encodings_are_refused(write_config, content, message):
    assert refusal_of(write_config(content)) == message


_PIECES = ["a: ", "b:", "- ", "\n", "  ", "\t", "{", "}", "[", "]", ",", ": ", "#", "&x ", "*x", "<<: ", "!!int ", "!"]


_PIECES += [
    "'",
    '"',
    "\\",
    "|",
    ">",
    "%",
    "@",
    "---",
    "...",
    "? ",
    "1:30",
    "010",
    "word",
    "${a}",
    "\x00",
    "é",
    "\u2028",
    "~",
]


@pytest.mark.filterwarnings("ignore:.*is read as text")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.sampled_from(_PIECES), max_size=15).map("".join) | st.binary(max_size=20))
def test_whatever_a_file_holds_it_is_read_or_refused_in_one_line(write_config, content):
    path, refusal = write_config(content), None
    try:
        assert isinstance(load_yaml(path).data, dict)
    except ConfigError as error:
        refusal = str(error)
    assert refusal is None or re.fullmatch(r"config\.yaml:[^\n]+", refusal)


@pytest.mark.slow
def test_a_file_of_10_mb_is_refused_or_read_in_seconds(write_config):
    start = time.process_time()
    assert "more than 250000 values" in refusal_of(write_config("\n".join(f"key{n}: value" for n in range(700_000))))
    assert len(load_yaml(write_config("text: |\n" + "  some text\n" * 850_000)).data["text"]) == 8_500_000
    assert time.process_time() - start < 30
