"""YAML values are read as people mean them; what may mean two things is refused or noted."""

from pathlib import Path

import pytest
from loader_helpers import refusal_of

from modalities_pipeline.config.loader import load_app_config_dict, load_yaml


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
def test_scalars_are_what_they_look_like(write_config, text, value):
    """B076: PyYAML alone makes '1e-4' of 1e-4, 8 of 010 and 90 of 1:30."""
    read = load_yaml(write_config(f"key: {text}")).data["key"]
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
def test_numbers_that_may_mean_something_else_are_refused(write_config, text, message):
    """B076: `seed: 010` is answered with file, line and column."""
    assert refusal_of(write_config(text)) == message


@pytest.mark.parametrize(
    ("word", "note"),
    [
        ("1:30", "1:30 is read as text; other YAML readers take it for the number 90. Put it in quotes"),
        ("inf", "inf is read as text; the number is written with a dot (.inf, -.inf, .nan). Put the text in quotes"),
        ("-NaN", "-NaN is read as text; the number is written with a dot (.inf, -.inf, .nan). Put the text in quotes"),
    ],
)
def test_text_that_looks_like_a_number_is_noted(write_config, word, note, caplog):
    """B076: `1:30` would be 90 for other readers of YAML 1.1; `inf` is no number for any."""
    path = write_config(f"a: 1\ntimes: [{word}]\n")
    document = load_yaml(path)
    assert document.data["times"] == [word]
    assert document.text_notes == {("times", 0): note}
    load_app_config_dict(path)
    assert caplog.messages == [f"config.yaml:2:9: {note}"]


def test_ordinary_text_with_colons_gives_no_note(write_config):
    assert not load_yaml(write_config("a: '1:30'\nb: cuda:0\nc: http://x:80\nd: 1:99\ne: 'inf'\nf: info\n")).text_notes


def test_an_alias_may_be_used_often_and_makes_copies(write_config):
    data = load_yaml(write_config("a: &x [1]\nb: [*x, *x]\nc: *x")).data
    assert data == {"a": [1], "b": [[1], [1]], "c": [1]}
    data["c"].append(2)
    assert data["a"] == [1]


def test_merge_keys_and_anchors_work(write_config):
    text = "base: &base {x: 1, y: 2}\nmore: &more {y: 7, z: 8}\nother:\n  <<: [*base, *more]\n  z: 3\n'<<': text\n"
    data = load_yaml(write_config(text)).data
    assert data["other"] == {"x": 1, "y": 2, "z": 3}
    assert list(data["other"]) == ["y", "z", "x"]  # as PyYAML has it
    assert data["<<"] == "text"


@pytest.mark.parametrize(
    "tag", ["pathlib.PosixPath", "pathlib.Path", "pathlib._local.PosixPath", "pathlib.PurePosixPath"]
)
def test_the_paths_of_modalities_resolved_files_are_read(write_config, tag):
    text = f"a: !!python/object/apply:{tag}\n- /\n- home\n- x\nb: !!python/object/apply:{tag} [c.yaml]\n"
    assert load_yaml(write_config(text)).data == {"a": Path("/home/x"), "b": Path("c.yaml")}
