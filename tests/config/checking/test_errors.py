"""What pydantic complains about comes out in plain words, once for each mistake, at the key that has to be changed."""

import enum
from typing import Annotated, Any, Literal

import pytest
from pydantic import AliasChoices, Field, FilePath, ValidationError, field_validator, model_validator

from modalities_pipeline.config.checking.errors import faults_in_words
from modalities_pipeline.config.component import ComponentConfig


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Inner(ComponentConfig):
    size: Annotated[int, Field(strict=True, ge=1)]
    eps: float = 0.1


class Circle(ComponentConfig):
    shape: Literal["circle"]
    radius: int


class Box(ComponentConfig):
    shape: Literal["box"]
    width: int


class Outer(ComponentConfig):
    integer: Annotated[int, Field(strict=True, gt=0)] = 1
    number: Annotated[float, Field(strict=True, lt=1)] = 0.1
    text: str = ""
    flag: bool = True
    integers: Annotated[list[int], Field(max_length=2)] = Field(default_factory=list)
    by_name: dict[str, int] = Field(default_factory=dict)
    path: FilePath | None = None
    colour: Colour = Colour.RED
    choice: Literal["fast", "slow", 3] = 3
    inner: Inner | None = None
    inner_or_number: Inner | int = 3
    positive_or_text: Annotated[int, Field(gt=0)] | str = 3
    one_of_two: Inner | Circle | None = None
    shape: Annotated[Circle | Box, Field(discriminator="shape")] | None = None
    shapes: list[Annotated[Circle | Box, Field(discriminator="shape")]] = Field(default_factory=list)
    renamed: int = Field(default=1, validation_alias=AliasChoices("new_name", "old_name"))

    @field_validator("text")
    @classmethod
    def _check_text(cls, value: str) -> str:
        if value == "bad":
            raise ValueError("bad is a bad text")
        return value

    @model_validator(mode="after")
    def _check_both(self) -> "Outer":
        if self.text == "13" and self.integer == 13:
            raise ValueError("13 twice brings bad luck")
        return self


def _faults(values: dict[str, Any]) -> list[tuple[str, str]]:
    with pytest.raises(ValidationError) as error:
        Outer.model_validate(values)
    return [(".".join(map(str, key_path)), message) for key_path, message in faults_in_words(error.value, Outer)]


@pytest.mark.parametrize(
    ("values", "key", "message"),
    [
        ({"integer": "3"}, "integer", "has to be an integer (given: '3')"),
        ({"integer": 3.0}, "integer", "has to be an integer (given: 3.0)"),
        ({"integer": True}, "integer", "has to be an integer (given: true)"),
        ({"integer": None}, "integer", "has to be an integer (given: null)"),
        ({"integer": 0}, "integer", "has to be greater than 0 (given: 0)"),
        ({"number": "1e-4"}, "number", "has to be a number (given: '1e-4')"),
        ({"text": 1}, "text", "has to be a text (given: 1)"),
        ({"flag": "maybe"}, "flag", "has to be true or false (given: 'maybe')"),
        ({"integers": {"a": 1}}, "integers", "has to be a list, not a mapping"),
        ({"integers": 3}, "integers", "has to be a list (given: 3)"),
        ({"integers": [1, "a"]}, "integers.1", "has to be an integer (given: 'a')"),
        ({"integers": [1, 2, 3]}, "integers", "may have at most 2 elements, has 3 (given: [1, 2, 3])"),
        ({"by_name": [1]}, "by_name", "has to be a mapping (key: value), not a list"),
        ({"by_name": {"a": "b"}}, "by_name.a", "has to be an integer (given: 'b')"),
        ({"path": "nowhere"}, "path", "there is no such file (given: 'nowhere')"),
        ({"colour": "rde"}, "colour", "has to be one of red, blue (given: 'rde'); did you mean 'red'?"),
        ({"colour": 7}, "colour", "has to be one of red, blue (given: 7)"),
        ({"choice": "FAST"}, "choice", "has to be one of fast, slow, 3 (given: 'FAST'); did you mean 'fast'?"),
        ({"inner": [1]}, "inner", "has to be a mapping (key: value), not a list"),
        ({"inner": {}}, "inner.size", "is missing"),
        ({"inner": {"size": 0}}, "inner.size", "has to be at least 1 (given: 0)"),
        ({"inner": {"size": 1, "epps": 1}}, "inner.epps", "unknown key; did you mean 'eps'?"),
        ({"inner": {"size": 1, "zzz": 1}}, "inner.zzz", "unknown key; known: eps, size"),
        ({"text": "bad"}, "text", "bad is a bad text"),
        ({"text": "13", "integer": 13}, "", "13 twice brings bad luck"),
    ],
)
def test_a_wrong_value_is_named_in_plain_words(values, key, message):
    """B077"""
    assert _faults(values) == [(key, message)]


@pytest.mark.parametrize(
    ("values", "key", "message"),
    [
        ({"inner_or_number": "a"}, "inner_or_number", "has to be a mapping (key: value) or an integer (given: 'a')"),
        ({"inner_or_number": {"size": 0}}, "inner_or_number.size", "has to be at least 1 (given: 0)"),
        ({"positive_or_text": 0}, "positive_or_text", "has to be greater than 0 (given: 0)"),
        ({"positive_or_text": {"a": 1}}, "positive_or_text", "has to be an integer or a text, not a mapping"),
        ({"one_of_two": {"size": 1, "esp": 1}}, "one_of_two.esp", "unknown key; did you mean 'eps'?"),
        ({"one_of_two": {"shape": "circle"}}, "one_of_two.radius", "is missing"),
        ({"shape": {"shape": "bx"}}, "shape.shape", "has to be one of circle, box (given: 'bx'); did you mean 'box'?"),
        ({"shape": {"shape": "box"}}, "shape.width", "is missing"),
        ({"shape": {}}, "shape.shape", "is missing"),
        ({"shape": {"sahpe": "box"}}, "shape.sahpe", "unknown key; did you mean 'shape'?"),
        ({"shapes": [{"shape": "box", "width": "a"}]}, "shapes.0.width", "has to be an integer (given: 'a')"),
    ],
)
def test_a_value_that_fits_no_member_of_a_union_is_one_fault(values, key, message):
    assert _faults(values) == [(key, message)]


def test_a_misspelt_key_is_not_reported_as_missing_too():
    assert _faults({"inner": {"sice": 1}}) == [("inner.sice", "unknown key; did you mean 'size'?")]


def test_old_and_new_name_at_once_are_both_named():
    assert _faults({"new_name": 1, "old_name": 2}) == [
        ("old_name", "is another name of 'new_name', which is there, too; leave one out")
    ]


def test_a_key_close_to_an_old_name_is_told():
    assert _faults({"old_nmae": 1}) == [("old_nmae", "unknown key; did you mean 'old_name'?")]


def test_long_values_are_cut():
    ((_, message),) = _faults({"integer": "x" * 500})
    assert len(message) < 120
    assert message.endswith("xxx...)")


def test_all_faults_come_out_at_once():
    faults = _faults({"integer": "a", "inner": {"size": 0}, "colour": "x", "zzz": 1})
    assert [key for key, _ in faults] == ["integer", "colour", "inner.size", "zzz"]
