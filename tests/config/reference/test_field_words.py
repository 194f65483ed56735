"""Fields of a config in plain words."""

import enum
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import AliasChoices, Field, FilePath

from modalities_pipeline.config.component import ComponentConfig
from modalities_pipeline.config.named_enums import ByName
from modalities_pipeline.config.pydantic_if_types import PydanticDatasetIFType, PydanticPytorchModuleOrListType
from modalities_pipeline.config.reference.field_words import fields_in_words, type_in_words


class _Mode(enum.Enum):
    FAST = "fast"
    EXACT = "exact"


class _Inner(ComponentConfig):
    """Fields of `an.inner` thing; one number."""

    size: int = 3


class _Outer(ComponentConfig):
    """Two fields."""

    inner: _Inner | None = None
    width: Annotated[
        int, Field(strict=True, gt=0, validation_alias=AliasChoices("width", "size"), description="in tokens")
    ]


def _keys_of(interface: str) -> list[str]:
    return ["dataset"] if interface.endswith(":Dataset") else []


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        (int, "integer"),
        (Annotated[int, Field(strict=True, ge=1)], "integer >= 1"),
        (Annotated[float, Field(gt=0.0, le=1.0)] | None, "number > 0.0 and <= 1.0 or null"),
        (bool, "true or false"),
        (Path, "path"),
        (FilePath | None, "path of a file that exists or null"),
        (Literal[False, "longest"], "one of false, longest"),
        (Literal[True], "true"),
        (_Mode, "one of fast, exact"),
        (Annotated[_Mode, ByName()], "one of FAST, EXACT"),
        (list[_Mode], "list, each one of fast, exact"),
        (Annotated[list[str], Field(min_length=1)], "list of text (not empty)"),
        (tuple[float, float], "list of 2: number, number"),
        (tuple[int, ...], "list of integer"),
        (set[int], "list of integer"),
        (dict[str, Annotated[int, Field(gt=0)]], "mapping of text to integer > 0"),
        (_Inner, "mapping _Inner"),
        (PydanticDatasetIFType, "component dataset (Dataset)"),
        (PydanticPytorchModuleOrListType | None, "component (Module or list of them) or null"),
        (Any, "anything"),
    ],
)
def test_types_are_told_with_their_limits(annotation, words):
    assert type_in_words(annotation, (), _keys_of) == words


def test_required_fields_come_first_with_all_that_is_known_of_them():
    width, inner = fields_in_words(_Outer, _keys_of)
    assert (width.name, width.other_names, width.default) == ("width", ("size",), None)
    assert (width.type_words, width.description) == ("integer > 0", "in tokens")
    assert (inner.type_words, inner.default) == ("mapping _Inner or null", "null")
    (nested,) = inner.nested
    (size,) = nested.fields
    assert (nested.name, nested.description) == ("_Inner", "One number.")
    assert (size.name, size.default) == ("size", "3")


@pytest.mark.parametrize(
    ("default", "words"),
    [
        (True, "true"),
        ("", "''"),
        ([1, 2], "[1, 2]"),
        ({"a": None}, "{a: null}"),
        (_Mode.FAST, "fast"),
        (1e-6, "1e-06"),
        (Path("a/b"), "a/b"),
        (_Inner(size=4), "{size: 4}"),
    ],
)
def test_defaults_are_told_as_yaml(default, words):
    config_type = type("C", (ComponentConfig,), {"__annotations__": {"field": Any}, "field": default})
    assert fields_in_words(config_type, _keys_of)[0].default == words
