"""Where a value of a config is written down."""

import pytest

from modalities_pipeline.config.interpolation.value_sources import source_of
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
