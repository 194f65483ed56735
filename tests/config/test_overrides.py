"""Single values are set from outside as YAML; a key that fits nowhere is refused, not added."""

import pytest
from overlay_helpers import BASE, merge_refusal

from modalities_pipeline.config.loader import load_yaml
from modalities_pipeline.config.origins import Origin
from modalities_pipeline.config.overlays import REMOVED, Override, load_config, overrides_from, parse_override
from modalities_pipeline.exceptions import ConfigError


@pytest.mark.parametrize("key", ["extends", "plugins", "plugins.0.component_path"])
def test_what_is_read_before_anything_is_set_cannot_be_set(write_files, key):
    message = merge_refusal(write_files(top="plugins: [{component_path: x}]"), parse_override(f"{key}=x"))
    assert message.startswith(f"--set: {key}: cannot be set, because ")
    assert "write a file that extends" in message


@pytest.mark.parametrize(
    ("text", "dotted_key", "value"),
    [
        ("a.b=1e-4", "a.b", 1e-4),
        ("a.b[0].c=x=y", "a.b[0].c", "x=y"),
        ("a.b.0.c={d: [1, yes]}", "a.b.0.c", {"d": [1, True]}),
        ("a=", "a", None),
        ("a='1'", "a", "1"),
        (" a =${b.c}", "a", "${b.c}"),
        ("a=!remove", "a", REMOVED),
    ],
)
def test_values_of_overrides_are_yaml(text, dotted_key, value):
    override = parse_override(text)
    assert override == Override(dotted_key, value, Origin("--set"))
    assert type(override.value) is type(value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a.b", "--set a.b: write KEY=VALUE, for example optimizer.config.lr=1e-4."),
        ("=1", "--set =1: write KEY=VALUE, for example optimizer.config.lr=1e-4."),
        ("a..b=1", "--set a..b=1: write KEY=VALUE, for example optimizer.config.lr=1e-4."),
        ("a[x]=1", "--set a[x]=1: write KEY=VALUE, for example optimizer.config.lr=1e-4."),
        ("a=[1", "--set a:1:3: a ',' or ']' is missing; the '[' stands in line 1."),
        (
            "a=010",
            "--set a:1:1: 010 could mean two numbers (10 or 8); write it without leading zeros, or in quotes if it is "
            "text.",
        ),
    ],
)
def test_overrides_that_say_nothing_are_refused(text, message):
    with pytest.raises(ConfigError) as caught:
        parse_override(text)
    assert str(caught.value) == message


def test_overrides_set_keys_elements_and_new_keys(write_files):
    path = write_files(base="a: {b: [1, {c: 2}]}\n1: {x: 1}")
    texts = ["a.b[1].c=5", "a.b.0=7", "a.new={d: 1}", "top=true", "1.x=2", "a.new.d=3"]
    document = load_config(path, [parse_override(text) for text in texts])
    assert document.data == {"a": {"b": [7, {"c": 5}], "new": {"d": 3}}, "top": True, 1: {"x": 2}}


def test_overrides_remove_keys_and_elements(write_files):
    path = write_files(base="a: {b: [1, 2, 3], c: 1}")
    overrides = [parse_override("a.b[1]=!remove"), parse_override("a.c=!remove")]
    assert load_config(path, overrides).data == {"a": {"b": [1, 3]}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "optimzer.config.lr=1",
            "--set: optimzer.config.lr: there is no 'optimzer' in the config; did you mean 'optimizer'?",
        ),
        (
            "optimizer.confg.lr=1",
            "--set: optimizer.confg.lr: there is no 'optimizer.confg' in the config; did you mean 'config'?",
        ),
        (
            "optimizer.config.betas[2]=1",
            "--set: optimizer.config.betas[2]: there is no 'optimizer.config.betas.2' in the config; "
            "'optimizer.config.betas' has 2 elements, counted from 0",
        ),
        (
            "optimizer.config.lr.x=1",
            "--set: optimizer.config.lr.x: there is no 'optimizer.config.lr.x' in the config; 'optimizer.config.lr' is "
            "1.0 (base.yaml:4:12)",
        ),
        ("loss.tga=!remove", "--set: loss.tga: there is no 'loss.tga' in the config; did you mean 'tag'?"),
    ],
)
def test_overrides_that_fit_nowhere_are_refused(write_files, text, message):
    """B077: a misspelt override is no silent addition."""
    assert merge_refusal(write_files(base=BASE), parse_override(text)) == message


def test_overrides_of_another_file_carry_its_lines(write_files):
    spec = load_yaml(write_files(spec="experiments:\n  one:\n    overrides:\n      loss.nope.x: 1\n"))
    key_path = ("experiments", "one", "overrides")
    overrides = overrides_from(spec.data["experiments"]["one"]["overrides"], spec, key_path)
    assert merge_refusal(write_files(base=BASE), *overrides) == (
        "spec.yaml:4:7: loss.nope.x: there is no 'loss.nope' in the config; known: tag"
    )
