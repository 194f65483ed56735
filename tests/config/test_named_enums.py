"""Enum fields that are written by name."""

import enum
from typing import Annotated

import pytest
from pydantic import ValidationError

from modalities_pipeline.config.component import ComponentConfig
from modalities_pipeline.config.named_enums import ByName


class _Mode(enum.Enum):
    FAST = "fast"
    EXACT = 1


class _Config(ComponentConfig):
    mode: Annotated[_Mode, ByName()]


@pytest.mark.parametrize(
    ("given", "member"),
    [("FAST", _Mode.FAST), ("fast", _Mode.FAST), (_Mode.FAST, _Mode.FAST), ("EXACT", _Mode.EXACT), (1, _Mode.EXACT)],
)
def test_a_member_is_known_by_its_name_and_its_value(given, member):
    assert _Config(mode=given).mode is member


@pytest.mark.parametrize("given", ["Fast", "1", True, 1.0, None, ["FAST"]])
def test_what_is_no_member_is_answered_with_all_names(given):
    with pytest.raises(ValidationError) as error:
        _Config(mode=given)
    (fault,) = error.value.errors()
    assert (fault["type"], fault["loc"]) == ("enum", ("mode",))
    assert fault["msg"] == "Input should be 'FAST' or 'EXACT'"
