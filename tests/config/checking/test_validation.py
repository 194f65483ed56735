"""Configs are validated while components are not built yet: what is not known hides nothing and is no fault."""

from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, model_validator

from modalities_pipeline.config.checking.validation import arguments_of, validate_config, validate_unbuilt
from modalities_pipeline.config.component import ComponentConfig
from modalities_pipeline.config.interfaces import MODULE, NUMBER, OPTIMIZER
from modalities_pipeline.config.pydantic_if_types import PydanticOptimizerIFType, PydanticPytorchModuleOrListType
from modalities_pipeline.config.unbuilt import Unbuilt

NUMBER_TO_COME = Unbuilt("number_conversion", "some", NUMBER)
OPTIMIZER_TO_COME = Unbuilt("optimizer", "adam", OPTIMIZER)
MODEL_TO_COME = Unbuilt("model", "gpt2", MODULE)
UNKNOWN = Unbuilt("mine", "own", None)


class Somebodys:
    """A class that only an `isinstance` check knows."""


class Inner(ComponentConfig):
    size: Annotated[int, Field(strict=True, gt=0)]
    inner: "Inner | None" = None


class One(ComponentConfig):
    kind: Literal["one"]
    size: int


class Two(ComponentConfig):
    kind: Literal["two"]


class Outer(ComponentConfig):
    size: Annotated[int, Field(strict=True, gt=0)] = 1
    other: int = 0
    text: str = ""
    inner: Inner | None = None
    inners: list[Inner] = Field(default_factory=list)
    chosen: Annotated[One | Two, Field(discriminator="kind")] | None = None
    optimizer: PydanticOptimizerIFType = None
    models: PydanticPytorchModuleOrListType = None
    somebodys: Somebodys | None = None

    @model_validator(mode="after")
    def _check(self) -> "Outer":
        if self.other > self.size:
            raise ValueError("other is larger than size")
        return self


@pytest.mark.parametrize(
    "values",
    [
        {"size": NUMBER_TO_COME},
        {"size": UNKNOWN, "text": UNKNOWN},
        {"inner": UNKNOWN},
        {"inner": {"size": NUMBER_TO_COME, "inner": {"size": 1}}},
        {"inners": [{"size": 1}, {"size": NUMBER_TO_COME}]},
        {"chosen": {"kind": "one", "size": NUMBER_TO_COME}},
        {"optimizer": OPTIMIZER_TO_COME, "models": [MODEL_TO_COME, UNKNOWN]},
        {"somebodys": OPTIMIZER_TO_COME},
    ],
)
def test_what_is_not_built_is_taken_where_it_may_fit(values):
    _, faults = validate_unbuilt(Outer, values)
    assert faults == []


@pytest.mark.parametrize(
    ("values", "key", "message"),
    [
        ({"size": OPTIMIZER_TO_COME}, "size", "has to be an integer, but optimizer/adam is an Optimizer"),
        ({"text": NUMBER_TO_COME}, "text", "has to be a text, but number_conversion/some is a number"),
        ({"inner": MODEL_TO_COME}, "inner", "has to be a mapping (key: value), but model/gpt2 is a Module"),
        ({"optimizer": MODEL_TO_COME}, "optimizer", "has to be an Optimizer, but model/gpt2 is a Module"),
        (
            {"models": [OPTIMIZER_TO_COME]},
            "models",
            "has to be a Module or a list of them, but optimizer/adam is an Optimizer",
        ),
        ({"inner": {"size": NUMBER_TO_COME, "sice": 1}}, "inner.sice", "unknown key; did you mean 'size'?"),
        ({"size": 1, "other": 2}, "", "other is larger than size"),
        ({"size": NUMBER_TO_COME, "other": "a"}, "other", "has to be an integer (given: 'a')"),
    ],
)
def test_what_cannot_fit_is_a_fault(values, key, message):
    result, faults = validate_unbuilt(Outer, values)
    assert result is None
    assert [(".".join(map(str, key_path)), text) for key_path, text in faults] == [(key, message)]


def test_known_values_stay_readable_beside_unknown_ones():
    class Checked(ComponentConfig):
        size: int
        inner: Inner

    result, faults = validate_unbuilt(Checked, {"size": 3, "inner": {"size": NUMBER_TO_COME}})
    assert faults == []
    assert isinstance(result, Checked)
    assert isinstance(result.inner, Inner)
    assert (result.size, result.inner.size) == (3, NUMBER_TO_COME)


def test_a_check_that_stumbles_over_the_unknown_is_left_to_the_building():
    assert validate_unbuilt(Outer, {"size": NUMBER_TO_COME, "other": 2}) == (None, [])


def test_a_check_that_fails_without_anything_unknown_is_a_fault():
    class Broken(BaseModel):
        size: int

        @model_validator(mode="after")
        def _check(self) -> "Broken":
            return self.nothing  # type: ignore[attr-defined]

    _, faults = validate_unbuilt(Broken, {"size": 1})
    assert faults[0][1].startswith("cannot be checked: AttributeError")


def test_configs_that_say_nothing_of_unknown_keys_refuse_them():
    """B077: a user's own config class need not forbid them itself."""

    class Own(BaseModel):
        size: int = 1

    _, faults = validate_unbuilt(Own, {"sice": 1}, is_config=True)
    assert faults == [(("sice",), "unknown key; did you mean 'size'?")]
    with pytest.raises(ValueError, match="sice"):
        validate_config(Own, {"sice": 1})


@pytest.mark.parametrize("extra", ["allow", "ignore"])
def test_unknown_keys_are_refused_whatever_the_class_says(extra):
    class Own(BaseModel):
        model_config = ConfigDict(extra=extra)
        size: int = 1
        inner: Any = None

    _, faults = validate_unbuilt(Own, {"sice": 1}, is_config=True)
    assert faults == [(("sice",), "unknown key; did you mean 'size'?")]
    with pytest.raises(ValueError, match="sice"):
        validate_config(Own, {"sice": 1})
    config = validate_config(Own, {"size": 3})
    assert isinstance(config, Own)
    assert arguments_of(config) == {"size": 3, "inner": None}


def test_components_are_called_with_every_field_but_the_excluded():
    class Config(ComponentConfig):
        inner: Inner
        size: int = 2
        ignored: Any = Field(default=None, exclude=True)

    config = validate_config(Config, {"inner": {"size": 1}, "ignored": 3})
    assert arguments_of(config) == {"inner": Inner(size=1), "size": 2}
