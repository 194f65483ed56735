"""What is written as YAML is read back the same, by our reader, by PyYAML and by OmegaConf's."""

import io
import math
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from modalities_pipeline.config.loader import Origin
from modalities_pipeline.config.yaml_files.yaml_text import to_yaml, yaml_lines
from modalities_pipeline.config.yaml_files.yaml_tree import parse_yaml

_TEXTS = st.one_of(
    st.text(max_size=12),
    st.text(alphabet=" \n:#-abc'\"\\,[]{}&*!|>%@`?", max_size=12),
    st.sampled_from(
        [
            "010",
            "1e3",
            "1e-05",
            "yes",
            "NO",
            "y",
            "~",
            "null",
            "1:30",
            "2024-01-01",
            "0x1f",
            ".inf",
            "-",
            "=",
            "<<",
            "#",
        ]
    ),
)
_SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), _TEXTS)
_TREES = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXTS, inner, max_size=4), max_leaves=15
)


def _read_by_us(text: str) -> object:
    def plain(node):
        if isinstance(node.value, dict):
            return {key: plain(child) for key, child in node.value.items()}
        return [plain(child) for child in node.value] if isinstance(node.value, list) else node.value

    node = parse_yaml(text, "written.yaml")
    return plain(node) if node else {}


@given(st.dictionaries(_TEXTS, _TREES, max_size=4))
@example({"a": 1e-05, "b": 1e16, "c": -math.inf, "d": 5e-324, "e": -0.0, "f": 10**30})
@example({"a": "x\n  y\n\n z", "b": ["x\n", "x\n\ny\n", "\nx", "x\n ", " x\ny"], "c": {"d": {"e": [[], {}, [["f"]]]}}})
@example({"": "", " ": " ", "é": "\u2028\x85\ufeff\x7f\U0001f600", "a: b": "a: b", "a #b": "a #b", "a:": "a:"})
def test_every_reader_reads_back_what_was_written(data):
    text = to_yaml(data)
    for read in (_read_by_us(text), yaml.load(text, yaml.CSafeLoader), yaml.load(text, yaml.SafeLoader)):
        assert read == data
        assert repr(read) == repr(data)  # types, and -0.0


@pytest.mark.parametrize(
    "text", ["010", "1e3", "1e-05", "yes", "1_000", "1:30", "~", "2024-01-01", "on", "a\nb", "word"]
)
def test_modalities_reads_text_as_text(text):
    """OmegaConf has rules of its own for numbers."""
    assert OmegaConf.load(io.StringIO(to_yaml({"a": text})))["a"] == text


def test_the_text_is_readable():
    data = {
        "settings": {"lr": 1e-05, "path": "data/x.pbin", "ref": "${settings.lr}", "note": "two words"},
        "parts": [1, {"a": True, "b": [None, "x"]}, [2, 3], {}, []],
        "template": "{% for m in messages %}\n  {{ m }}\n{% endfor %}\n",
    }
    assert to_yaml(data) == (
        "settings:\n  lr: 1.0e-05\n  path: data/x.pbin\n  ref: ${settings.lr}\n  note: two words\n"
        "parts:\n  - 1\n  - a: true\n    b:\n      - null\n      - x\n  - - 2\n    - 3\n  - {}\n  - []\n"
        "template: |\n  {% for m in messages %}\n    {{ m }}\n  {% endfor %}\n"
    )


def test_lines_name_the_scalar_that_begins_in_them():
    lines = yaml_lines({"a": {"b": [1, "x\ny"]}, "c": {}})
    assert [(line.text, line.key_path) for line in lines] == [
        ("a:", None),
        ("  b:", None),
        ("    - 1", ("a", "b", 0)),
        ("    - |-", ("a", "b", 1)),
        ("      x", None),
        ("      y", None),
        ("c: {}", ("c",)),
    ]


def test_keys_that_are_numbers_stay_numbers():
    assert _read_by_us(to_yaml({3: "a", True: "b", 1.5: "c", "2": "d"})) == {3: "a", True: "b", 1.5: "c", "2": "d"}


@pytest.mark.parametrize("value", [Path("x"), {1, 2}, b"x", Origin("x")])
def test_what_yaml_does_not_know_is_refused(value):
    with pytest.raises(TypeError, match="cannot be written as YAML"):
        to_yaml({"a": value})
