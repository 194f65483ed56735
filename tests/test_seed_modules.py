"""The public modules have every name of Modalities', with its parameters in their order and with their defaults.

`vectors/seed_modules.json`: module -> name -> kind, parameters as text (null: not documented), members.
"""

import enum
import importlib
import inspect
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from modalities_pipeline.exceptions import ModalitiesPipelineError, UserError

MODULES = json.loads((Path(__file__).parent / "vectors" / "seed_modules.json").read_text("utf-8"))
# what a user of Modalities catches, and what we let follow from it: a user's mistake is a ValueError, too
OF_USERS = {"ConfigError", "DatasetNotFoundError"}


def _documented() -> Iterator[tuple[str, str]]:
    for module, names in MODULES.items():
        for name in names:
            yield module, name


def _parameters(function: Callable[..., Any]) -> list[str]:
    """Each parameter as `name` or `name=default`."""
    parameters = inspect.signature(function).parameters.values()
    return [
        parameter.name if parameter.default is parameter.empty else f"{parameter.name}={parameter.default!r}"
        for parameter in parameters
        if parameter.name != "self"
    ]


def _assert_takes(function: Callable[..., Any], documented: str) -> None:
    """The documented parameters come first, in their order; those that we add are optional."""
    expected = documented.split(", ") if documented else []
    actual = _parameters(function)
    assert actual[: len(expected)] == expected
    assert all("=" in parameter for parameter in actual[len(expected) :])


@pytest.mark.parametrize(("module", "name"), _documented())
def test_a_name_of_modalities_is_there_with_its_parameters_and_members(module, name):
    documented = MODULES[module][name]
    found = getattr(importlib.import_module(f"modalities_pipeline.{module}"), name)
    assert inspect.isfunction(found) == (documented["kind"] == "function")
    is_enum = isinstance(found, enum.EnumMeta)
    if documented["params"] is not None and not is_enum:
        _assert_takes(found, documented["params"])
    for member, expected in documented["members"].items():
        if expected["kind"] == "enum":
            assert found[member].value == expected["value"]
        elif expected["kind"] == "field":
            assert member in inspect.signature(found).parameters
        elif expected["kind"] == "property":
            assert isinstance(inspect.getattr_static(found, member), property)
        else:
            _assert_takes(getattr(found, member), expected["params"])


@pytest.mark.parametrize("name", MODULES["exceptions"])
def test_exceptions_have_one_base_and_those_of_a_user_are_value_errors(name):
    error = getattr(importlib.import_module("modalities_pipeline.exceptions"), name)
    assert issubclass(error, ModalitiesPipelineError)
    assert issubclass(error, UserError) == issubclass(error, ValueError) == (name in OF_USERS)
