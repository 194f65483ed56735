"""Where a value of a config is written down, and whether it is the environment that has it."""

import pytest

from modalities_pipeline.config.checking.faults import fault_at
from modalities_pipeline.config.interpolation.value_sources import comes_from_environment, source_of
from modalities_pipeline.config.overlays import load_config

TEXT = """settings:
  size: "4"
  sizes: [1, 2]
  same: ${.size}
  chain: ${settings.same}
  there: "no ${settings.size} reference"
  wrong: ${settings.nowhere}
a: {size: "${settings.size}"}
b: {config: "${a}", first: "${settings.sizes[0]}", second: "${settings.sizes.1}"}
loop: ${loop}
secret: ${oc.env:MY_TOKEN}
secrets: {first: "${secret}", list: ["a ${secrets.first} b"], rank: "${cuda_env:RANK}", own: "${ cuda_env : MY_TOKEN }"}
"""


@pytest.fixture
def document(tmp_path):
    (tmp_path / "x.yaml").write_text(TEXT, encoding="utf-8")
    return load_config(tmp_path / "x.yaml")


@pytest.mark.parametrize(
    ("key", "source"),
    [
        ("settings.size", "settings.size"),
        ("settings.same", "settings.size"),
        ("settings.chain", "settings.size"),
        ("settings.there", "settings.there"),
        ("settings.wrong", "settings.wrong"),
        ("settings.missing.x", "settings.missing.x"),
        ("a.size", "settings.size"),
        ("b.config.size", "settings.size"),
        ("b.config.missing", "a.missing"),
        ("b.first", "settings.sizes.0"),
        ("b.second", "settings.sizes.1"),
        ("loop", "loop"),
    ],
)
def test_the_source_is_where_the_value_is_written(document, key, source):
    assert ".".join(map(str, source_of(document.data, tuple(key.split("."))))) == source


@pytest.mark.parametrize(
    ("key_path", "expected"),
    [
        (("secret",), True),
        (("secrets", "first"), True),
        (("secrets", "list", 0), True),
        (("secrets", "list"), True),
        (("secrets",), True),
        (("secrets", "own"), True),
        (("secrets", "rank"), False),
        (("secrets", "missing"), False),
        (("settings",), False),
        (("loop",), False),
    ],
)
def test_values_of_environment_variables_are_known_as_such(document, key_path, expected):
    assert comes_from_environment(document.data, key_path) is expected


def test_faults_do_not_repeat_values_of_environment_variables(document):
    message = "has to be an integer (given: 'hf_(secret)'); did you mean 'x'?"
    shown = fault_at(("secrets", "first"), message, document).message
    assert shown == "has to be an integer (given: a value from the environment); did you mean 'x'?"
    assert fault_at(("settings", "size"), message, document).message == message
