"""A fault says where it is; all of a config come as one error, in the order of the file."""

import pytest

from modalities_pipeline.config.checking.faults import ConfigFaultsError, Fault, raise_faults, sorted_faults
from modalities_pipeline.config.origins import Origin
from modalities_pipeline.exceptions import ConfigError


def _fault(line: int, message: str = "is wrong", is_note: bool = False) -> Fault:
    return Fault(("a", 0, "b"), message, Origin("x.yaml", line, 3), is_note)


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (_fault(7), "x.yaml:7:3: a.0.b: is wrong"),
        (Fault((), "is empty", Origin("x.yaml")), "x.yaml: is empty"),
        (Fault(("a",), "is wrong", Origin("--set")), "--set: a: is wrong"),
        (Fault(("a",), "is wrong"), "a: is wrong"),
        (Fault(("a\nb\x1b",), "is \x1b[31mwrong\x9b\nand more"), "a\\nb\\x1b: is \\x1b[31mwrong\\x9b\nand more"),
    ],
)
def test_its_text_is_place_key_and_message(fault, text):
    assert str(fault) == text


def test_faults_are_ordered_by_line_and_said_once():
    assert sorted_faults([_fault(10), _fault(9), _fault(10)]) == [_fault(9), _fault(10)]


def test_all_faults_are_raised_together():
    with pytest.raises(ConfigError) as error:
        raise_faults([_fault(2), _fault(3, is_note=True), _fault(1)])
    assert str(error.value) == "x.yaml:1:3: a.0.b: is wrong\nx.yaml:2:3: a.0.b: is wrong"
    assert isinstance(error.value, ConfigFaultsError)
    assert error.value.faults == (_fault(1), _fault(2))


def test_notes_keep_nobody_from_anything():
    raise_faults([_fault(1, is_note=True)])
