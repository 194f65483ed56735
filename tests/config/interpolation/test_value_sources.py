"""Where a value of a config is written down."""

import pytest

from modalities_pipeline.config.interpolation.value_sources import source_of


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
