"""YAML files are read as people mean them, every value knows its place, and faults are told with file, line, column."""

import codecs
import re
import time
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from modalities_pipeline.config.loader import ConfigDocument, Origin, load_app_config_dict, load_yaml
from modalities_pipeline.exceptions import ConfigError


@pytest.fixture(params=["libyaml", "pure Python"])
def write(request, tmp_path, monkeypatch):
    """Writes config.yaml into the working directory; each test runs with either of PyYAML's parsers."""
    if request.param == "libyaml" and not yaml.__with_libyaml__:
        pytest.skip("PyYAML was built without libyaml")
    monkeypatch.setattr(yaml, "__with_libyaml__", request.param == "libyaml")
    monkeypatch.chdir(tmp_path)

    def write_file(content: str | bytes) -> Path:
        path = Path("config.yaml")
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write_file


def _message(path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        load_yaml(path)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-4", 1e-4),
        ("1E5", 1e5),
        (".5", 0.5),
        ("-1.", -1.0),
        ("1e3", 1000.0),
        ("1_000", 1000),
        ("1_000.5", 1000.5),
        ("0x10", 16),
        ("0o17", 15),
        ("0b101", 5),
        ("-0x1f", -31),
        ("0", 0),
        ("-3", -3),
        ("+7", 7),
        ("no", False),
        ("On", True),
        ("TRUE", True),
        ("yEs", "yEs"),
        ("2024-01-01", "2024-01-01"),
        (".text", ".text"),
        (".inf", float("inf")),
        ("-.INF", float("-inf")),
        ("inf", "inf"),
        ("1.2.3", "1.2.3"),
        ("=", "="),
        ("~", None),
        ("Null", None),
        ("", None),
        ("'1e-4'", "1e-4"),
        ('"no"', "no"),
        ("! 12", "12"),
        ("!!str 12", "12"),
        ("!!float 1", 1.0),
        ("!!int '12'", 12),
        ("!!bool off", False),
        ("!!null ''", None),
        ("!!map {x: 1}", {"x": 1}),
        ("!!seq [1]", [1]),
        ("${settings.x}", "${settings.x}"),
        ("|\n  two\n  lines\n", "two\nlines\n"),
    ],
)
def test_scalars_are_what_they_look_like(write, text, value):
    """B076: PyYAML alone makes '1e-4' of 1e-4, 8 of 010 and 90 of 1:30."""
    read = load_yaml(write(f"key: {text}")).data["key"]
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "seed: 010",
            "config.yaml:1:7: 010 could mean two numbers (10 or 8); write it without leading zeros, or in quotes if it "
            "is text.",
        ),
        (
            "seed: -08",
            "config.yaml:1:7: -08 begins with a 0 too many; write it without leading zeros, or in quotes if it is "
            "text.",
        ),
        (
            "lr: 1e999",
            "config.yaml:1:5: 1e999 is beyond the numbers that a float can hold; write .inf if infinity is meant.",
        ),
        ("a: " + "9" * 5000, "config.yaml:1:4: a number of 5000 digits is too long."),
        ("a: !!float x", "config.yaml:1:4: the value does not fit its tag !!float: 'x' is no float."),
        ("a: !!bool 1", "config.yaml:1:4: the value does not fit its tag !!bool: '1' is no bool."),
    ],
)
def test_numbers_that_may_mean_something_else_are_refused(write, text, message):
    """B076: `seed: 010` is answered with file, line and column."""
    assert _message(write(text)) == message


@pytest.mark.parametrize(
    ("word", "note"),
    [
        ("1:30", "1:30 is read as text; other YAML readers take it for the number 90. Put it in quotes"),
        ("inf", "inf is read as text; the number is written with a dot (.inf, -.inf, .nan). Put the text in quotes"),
        ("-NaN", "-NaN is read as text; the number is written with a dot (.inf, -.inf, .nan). Put the text in quotes"),
    ],
)
def test_text_that_looks_like_a_number_is_noted(write, word, note, caplog):
    """B076: `1:30` would be 90 for other readers of YAML 1.1; `inf` is no number for any."""
    path = write(f"a: 1\ntimes: [{word}]\n")
    document = load_yaml(path)
    assert document.data["times"] == [word]
    assert document.text_notes == {("times", 0): note}
    load_app_config_dict(path)
    assert caplog.messages == [f"config.yaml:2:9: {note}"]


def test_ordinary_text_with_colons_gives_no_note(write):
    assert not load_yaml(write("a: '1:30'\nb: cuda:0\nc: http://x:80\nd: 1:99\ne: 'inf'\nf: info\n")).text_notes


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
def test_what_yaml_allows_but_a_config_does_not_is_named(write, text, message):
    """B076: the same key twice."""
    assert _message(write(text)) == message


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
def test_syntax_errors_tell_where_and_what_to_do(write, text, message):
    assert _message(write(text)) == message


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
def test_hostile_files_are_refused_in_one_line(write, text, message):
    """Alias bombs, nesting, Python tags, control characters."""
    start = time.process_time()
    assert _message(write(text)) == message
    assert time.process_time() - start < 1


def test_nesting_beyond_what_libyaml_takes_is_refused_alike(write):
    message = _message(write("a: " + "[" * 200_000))
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
def test_other_encodings_are_refused(write, content, message):
    assert _message(write(content)) == message


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
def test_whatever_a_file_holds_it_is_read_or_refused_in_one_line(write, content):
    path, refusal = write(content), None
    try:
        assert isinstance(load_yaml(path).data, dict)
    except ConfigError as error:
        refusal = str(error)
    assert refusal is None or re.fullmatch(r"config\.yaml:[^\n]+", refusal)


def test_a_byte_order_mark_and_windows_line_ends_change_nothing(write):
    document = load_yaml(write(codecs.BOM_UTF8 + b"a: 1\r\nb: {c: 2}\r\n"))
    assert document.data == {"a": 1, "b": {"c": 2}}
    assert str(document.origin(("b", "c"))) == "config.yaml:2:5"


def test_a_missing_file_names_the_closest_one(write):
    write("a: 1")
    assert _message(Path("confg.yaml")) == "confg.yaml: no such file; did you mean 'config.yaml'?"
    assert _message(Path("nope/x.yaml")) == "nope/x.yaml: no such file; there is no folder nope either."
    assert _message(Path(".")) == ".: is a folder; name a YAML file in it."


@pytest.mark.slow
def test_a_file_of_10_mb_is_refused_or_read_in_seconds(write):
    start = time.process_time()
    assert "more than 250000 values" in _message(write("\n".join(f"key{n}: value" for n in range(700_000))))
    assert len(load_yaml(write("text: |\n" + "  some text\n" * 850_000)).data["text"]) == 8_500_000
    assert time.process_time() - start < 30


def test_an_alias_may_be_used_often_and_makes_copies(write):
    data = load_yaml(write("a: &x [1]\nb: [*x, *x]\nc: *x")).data
    assert data == {"a": [1], "b": [[1], [1]], "c": [1]}
    data["c"].append(2)
    assert data["a"] == [1]


def test_merge_keys_and_anchors_work(write):
    text = "base: &base {x: 1, y: 2}\nmore: &more {y: 7, z: 8}\nother:\n  <<: [*base, *more]\n  z: 3\n'<<': text\n"
    data = load_yaml(write(text)).data
    assert data["other"] == {"x": 1, "y": 2, "z": 3}
    assert list(data["other"]) == ["y", "z", "x"]  # as PyYAML has it
    assert data["<<"] == "text"


@pytest.mark.parametrize(
    "tag", ["pathlib.PosixPath", "pathlib.Path", "pathlib._local.PosixPath", "pathlib.PurePosixPath"]
)
def test_the_paths_of_modalities_resolved_files_are_read(write, tag):
    text = f"a: !!python/object/apply:{tag}\n- /\n- home\n- x\nb: !!python/object/apply:{tag} [c.yaml]\n"
    assert load_yaml(write(text)).data == {"a": Path("/home/x"), "b": Path("c.yaml")}


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "{}"])
def test_an_empty_file_is_an_empty_config(write, text):
    document = load_yaml(write(text))
    assert document.data == {}
    assert document.is_empty


def test_every_node_knows_its_place(write):
    text = "a:\n  b: 1\n  'c':\n    - x\n    - {d: 2}\n    -   - y\nä: {ö: [1, *z]}\n".replace("1, *z", "&z 1, *z")
    document = load_yaml(write(text + "m: &m {p: 1}\nn:\n  <<: *m\n  q: *m\n"))
    places = {".".join(map(str, key_path)): str(origin)[12:] for key_path, origin in document.origins.items()}
    assert places == {
        "a": "1:1",
        "a.b": "2:3",
        "a.c": "3:3",
        "a.c.0": "4:7",
        "a.c.1": "5:7",
        "a.c.1.d": "5:8",
        "a.c.2": "6:9",
        "a.c.2.0": "6:11",
        "ä": "7:1",
        "ä.ö": "7:5",
        "ä.ö.0": "7:9",
        "ä.ö.1": "7:15",
        "m": "8:1",
        "m.p": "8:8",
        "n": "9:1",
        "n.p": "8:8",
        "n.q": "11:3",
        "n.q.p": "8:8",
    }


def test_the_origin_of_what_is_not_there_is_the_nearest_above(write):
    document = load_yaml(write("a:\n  b: 1\n"))
    assert document.origin(("a", "nope", 0)) == Origin("config.yaml", 1, 1)
    assert document.origin(("nope",)) == document.origin(()) == Origin("config.yaml")
    assert document.position(("a", "b")) == (2, 3)
    assert document.position(("a", "nope")) is None
    assert isinstance(document, ConfigDocument)


def test_load_app_config_dict_gives_plain_data(write, tmp_path):
    path = write("a: {b: 1}\nc: ${a.b}\nd: x-${a.b}\ne: ${modalities_env:experiments_root_path}/${twice:2}\n")
    resolvers = {"twice": lambda number: 2 * number}
    read = load_app_config_dict(path, tmp_path, "run", additional_resolver_funs=resolvers, overrides={"a.b": 7})
    assert read == {"a": {"b": 7}, "c": 7, "d": "x-7", "e": f"{tmp_path}/4"}


def test_load_app_config_dict_lists_everything_that_has_no_value(write):
    with pytest.raises(ConfigError) as caught:
        load_app_config_dict(write("a: ${b}\nc: {d: '${nope:1}'}\ne: ${modalities_env:experiment_id}\n"))
    lines = str(caught.value).splitlines()
    assert [line[:20] for line in lines] == ["config.yaml:1:1: a: ", "config.yaml:2:5: c.d", "config.yaml:3:1: e: "]
