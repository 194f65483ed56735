"""A file is read whatever its line ends, every value knows its place, and the plain data come as one dict."""

import codecs
from pathlib import Path

import pytest
from loader_helpers import refusal_of

from modalities_pipeline.config.loader import ConfigDocument, Origin, load_app_config_dict, load_yaml
from modalities_pipeline.exceptions import ConfigError


def test_a_byte_order_mark_and_windows_line_ends_change_nothing(write_config):
    document = load_yaml(write_config(codecs.BOM_UTF8 + b"a: 1\r\nb: {c: 2}\r\n"))
    assert document.data == {"a": 1, "b": {"c": 2}}
    assert str(document.origin(("b", "c"))) == "config.yaml:2:5"


def test_a_missing_file_names_the_closest_one(write_config):
    write_config("a: 1")
    assert refusal_of(Path("confg.yaml")) == "confg.yaml: no such file; did you mean 'config.yaml'?"
    assert refusal_of(Path("nope/x.yaml")) == "nope/x.yaml: no such file; there is no folder nope either."
    assert refusal_of(Path(".")) == ".: is a folder; name a YAML file in it."


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "{}"])
def test_an_empty_file_is_an_empty_config(write_config, text):
    document = load_yaml(write_config(text))
    assert document.data == {}
    assert document.is_empty


def test_every_node_knows_its_place(write_config):
    text = "a:\n  b: 1\n  'c':\n    - x\n    - {d: 2}\n    -   - y\nä: {ö: [1, *z]}\n".replace("1, *z", "&z 1, *z")
    document = load_yaml(write_config(text + "m: &m {p: 1}\nn:\n  <<: *m\n  q: *m\n"))
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


def test_the_origin_of_what_is_not_there_is_the_nearest_above(write_config):
    document = load_yaml(write_config("a:\n  b: 1\n"))
    assert document.origin(("a", "nope", 0)) == Origin("config.yaml", 1, 1)
    assert document.origin(("nope",)) == document.origin(()) == Origin("config.yaml")
    assert document.position(("a", "b")) == (2, 3)
    assert document.position(("a", "nope")) is None
    assert isinstance(document, ConfigDocument)


def test_load_app_config_dict_gives_plain_data(write_config, tmp_path):
    path = write_config("a: {b: 1}\nc: ${a.b}\nd: x-${a.b}\ne: ${modalities_env:experiments_root_path}/${twice:2}\n")
    resolvers = {"twice": lambda number: 2 * number}
    read = load_app_config_dict(path, tmp_path, "run", additional_resolver_funs=resolvers, overrides={"a.b": 7})
    assert read == {"a": {"b": 7}, "c": 7, "d": "x-7", "e": f"{tmp_path}/4"}


def test_load_app_config_dict_lists_everything_that_has_no_value(write_config):
    with pytest.raises(ConfigError) as caught:
        load_app_config_dict(write_config("a: ${b}\nc: {d: '${nope:1}'}\ne: ${modalities_env:experiment_id}\n"))
    lines = str(caught.value).splitlines()
    assert [line[:20] for line in lines] == ["config.yaml:1:1: a: ", "config.yaml:2:5: c.d", "config.yaml:3:1: e: "]
