"""YAML files are read as people mean them, and faults are told with file and line."""

from pathlib import Path

import pytest

from modalities_pipeline.config.loader import apply_overrides, load_app_config_dict, load_yaml
from modalities_pipeline.exceptions import ConfigError


@pytest.fixture
def write(tmp_path):
    def write_file(text: str) -> Path:
        path = tmp_path / "config.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return write_file


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-4", 1e-4),
        ("1E5", 1e5),
        (".5", 0.5),
        ("-1.", -1.0),
        ("1e3", 1000.0),
        ("1_000", 1000),
        ("0x10", 16),
        ("0", 0),
        ("-3", -3),
        ("no", False),
        ("1:30", "1:30"),
        ("2024-01-01", "2024-01-01"),
        (".text", ".text"),
        (".inf", float("inf")),
        ("", None),
        ("'1e-4'", "1e-4"),
    ],
)
def test_scalars_are_what_they_look_like(write, text, value):
    """B076: PyYAML alone makes '1e-4' of 1e-4 and 90 of 1:30."""
    read = load_yaml(write(f"key: {text}")).data["key"]
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seed: 010", "config.yaml:1:7: 010 could mean two numbers"),
        ("a: 1\nb: 2\na: 3", "config.yaml:3: the key 'a' is there twice; it first stands in line 1"),
        ("a:\n  - {b: 1, b: 2}", "config.yaml:2: the key 'b' is there twice"),
        ("a: [1,\nb: 2", "config.yaml:2"),
        ("- 1", "the top level has to be a mapping"),
        ("a: !!python/object/apply:os.getcwd []", "python/object/apply:os.getcwd"),
    ],
)
def test_faults_name_file_and_line(write, text, message):
    """B076: the same key twice, ambiguous numbers; no YAML tag runs code."""
    with pytest.raises(ConfigError, match=message.replace("(", r"\(")):
        load_yaml(write(text))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("b: 1\na: &x [*x]", r"config.yaml:2:4: an anchor \(&\) contains an alias"),
        ("a: &x {b: {c: *x}}", "config.yaml:1:4: an anchor"),
        ("b: 1\n? [a]\n: 1", "config.yaml:2:3: a key has to be a text"),
        ("a: {? {b: 1} : 2}", "config.yaml:1:7: a key has to be a text"),
        ("a: " + "[" * 3000 + "]" * 3000, "config.yaml: .*nested too deeply"),
        ("a: \x00", "config.yaml: unacceptable character"),
        ("a: !!float x", "config.yaml: a value does not fit its tag"),
        ("a: !!bool x", "config.yaml: a value does not fit its tag"),
        ("a: !!timestamp x", "config.yaml: a value does not fit its tag"),
        ("\n".join(f"a{n}: &x{n} [{', '.join([f'*x{n - 1}'] * 9) if n else 1}]" for n in range(12)), "aliases"),
    ],
)
def test_hostile_files_are_refused_in_one_line(write, text, message):
    with pytest.raises(ConfigError, match=message) as caught:
        load_yaml(write(text))
    assert "\n" not in str(caught.value)


def test_an_alias_may_be_used_often(write):
    assert load_yaml(write("a: &x [1]\nb: [*x, *x]\nc: *x")).data == {"a": [1], "b": [[1], [1]], "c": [1]}


def test_missing_file_is_a_config_error(tmp_path):
    with pytest.raises(ConfigError, match="no such file"):
        load_yaml(tmp_path / "nope.yaml")


def test_empty_file_is_an_empty_config(write):
    assert load_yaml(write("# nothing\n")).data == {}


def test_positions_lead_to_keys_and_list_elements(write):
    document = load_yaml(write("a:\n  b: 1\n  c:\n    - x\n    - {d: 2}\n"))
    assert document.position(("a", "c")) == (3, 3)
    assert document.position(("a", "c", 1, "d")) == (5, 8)
    assert document.position(("a", "nope")) is None


def test_merge_keys_and_anchors_work(write):
    data = load_yaml(write("base: &base {x: 1, y: 2}\nother:\n  <<: *base\n  y: 3\n")).data
    assert data["other"] == {"x": 1, "y": 3}


def test_overrides_change_a_copy(write):
    data = {"a": {"b": [1, {"c": 2}]}}
    changed = apply_overrides(data, {"a.b.1.c": 5, "a.new": {"d": 1}, "top": True})
    assert changed == {"a": {"b": [1, {"c": 5}], "new": {"d": 1}}, "top": True}
    assert data == {"a": {"b": [1, {"c": 2}]}}


@pytest.mark.parametrize("key", ["a.nope.c", "a.b.7", "a.b.x"])
def test_overrides_that_fit_nowhere_are_refused(key):
    """B077: a misspelt override is no silent addition."""
    with pytest.raises(ConfigError, match=f"override '{key}' does not fit"):
        apply_overrides({"a": {"b": [1]}}, {key: 1})


def test_references_are_resolved_after_overrides(write):
    path = write("a: {b: 1}\nc: ${a.b}\nd: x-${a.b}\n")
    assert load_app_config_dict(path, overrides={"a.b": 7}) == {"a": {"b": 7}, "c": 7, "d": "x-7"}


def test_modalities_env_gives_paths_and_id(write, tmp_path):
    path = write("a: ${modalities_env:experiments_root_path}/${modalities_env:experiment_id}\n")
    assert load_app_config_dict(path, tmp_path, "run1") == {"a": f"{tmp_path}/run1"}


def test_a_process_without_launcher_is_rank_0_of_1(write, monkeypatch):
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    path = write("a: ['${cuda_env:RANK}', '${cuda_env:LOCAL_RANK}', '${cuda_env:WORLD_SIZE}']")
    assert load_app_config_dict(path)["a"] == [0, 0, 1]


def test_an_incomplete_launch_names_the_missing_variable(write, monkeypatch):
    """B043: LOCAL_RANK missing is a named error."""
    monkeypatch.setenv("RANK", "1")
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    with pytest.raises(
        ConfigError, match=r"config.yaml:1: a: the environment variable LOCAL_RANK is not set; start .*torchrun"
    ):
        load_app_config_dict(write("a: ${cuda_env:LOCAL_RANK}"))


def test_given_resolvers_replace_ours(write):
    path = write("a: ${cuda_env:WORLD_SIZE}\nb: ${twice:4}")
    resolvers = {"cuda_env": lambda name: 8, "twice": lambda number: 2 * number}
    assert load_app_config_dict(path, additional_resolver_funs=resolvers) == {"a": 8, "b": 8}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x: 1\na: ${b.c}", "config.yaml:2: a: Interpolation key 'b.c' not found"),
        ("a: ${modalities_env:nope}", "unknown modalities_env variable 'nope'"),
        ("a: ${node_env:nope}", "unknown node_env variable 'nope'; known here: num_cpus"),
        ("a: ${nope:1}", "nope"),
        ("a: ${b}\nb: ${a}", "config.yaml:1: a: .*[Rr]ecursive"),
    ],
)
def test_references_that_lead_nowhere_name_the_key(write, text, message):
    with pytest.raises(ConfigError, match=message):
        load_app_config_dict(write(text))


def test_reading_warns_about_nothing(write, recwarn):
    load_app_config_dict(write("a: 1"))
    load_app_config_dict(write("a: 1"))
    assert not recwarn.list
