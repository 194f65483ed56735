"""Fields whose values are components take objects of the right class, and what will become one."""

from typing import Annotated, Any

import pytest
from pydantic import ValidationError

from modalities_pipeline.config.checking.errors import faults_in_words
from modalities_pipeline.config.component import ComponentConfig
from modalities_pipeline.config.interfaces import FSDP2_MODULE, MODULE, NUMBER
from modalities_pipeline.config.pydantic_if_types import PydanticThirdPartyTypeIF
from modalities_pipeline.config.unbuilt import Unbuilt


class Animal:
    pass


class Dog(Animal):
    pass


class Config(ComponentConfig):
    by_name: Annotated[Any, PydanticThirdPartyTypeIF(f"{__name__}:Animal")] = None
    by_class: Annotated[Any, PydanticThirdPartyTypeIF(Animal)] = None
    several: Annotated[Any, PydanticThirdPartyTypeIF(Animal, or_list=True)] = None
    module: Annotated[Any, PydanticThirdPartyTypeIF(MODULE)] = None


def _message(values: dict[str, Any]) -> str:
    with pytest.raises(ValidationError) as error:
        Config.model_validate(values)
    ((_, message),) = faults_in_words(error.value, Config)
    return message


@pytest.mark.parametrize("field", ["by_name", "by_class", "several"])
def test_objects_of_the_class_and_of_those_derived_from_it_are_taken_as_they_are(field):
    dog = Dog()
    assert getattr(Config.model_validate({field: dog}), field) is dog


def test_a_list_is_taken_where_it_is_allowed():
    animals = [Animal(), Dog()]
    assert Config.model_validate({"several": animals}).several == animals


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"by_name": object()}, "has to be an Animal, not an object"),
        ({"by_class": "dog"}, "has to be a component (Animal), or a reference to one (given: 'dog')"),
        ({"by_class": {"component": "dog"}}, "has to be a component (Animal), or a reference to one, not a mapping"),
        ({"by_class": [Animal()]}, "has to be a component (Animal), or a reference to one, not a list"),
        ({"several": [Animal(), object()]}, "has to be an Animal or a list of them, not an object"),
        ({"by_name": Unbuilt("tool", "hammer", "tools:Hammer")}, "has to be an Animal, but tool/hammer is a Hammer"),
        ({"by_class": Unbuilt("a", "b", f"{__name__}:Config")}, "has to be an Animal, but a/b is a Config"),
        ({"by_class": Unbuilt("number", "sum", NUMBER)}, "has to be an Animal, but number/sum is a number"),
    ],
)
def test_other_things_are_refused_in_plain_words(values, message):
    assert _message(values) == message


@pytest.mark.parametrize(
    ("field", "interface"),
    [
        ("by_name", f"{__name__}:Animal"),
        ("by_name", None),
        ("by_class", f"{__name__}:Dog"),
        ("by_class", "builtins:object"),
        ("module", FSDP2_MODULE),
    ],
)
def test_what_may_become_one_is_taken(field, interface):
    unbuilt = Unbuilt("some", "component", interface)
    assert getattr(Config.model_validate({field: unbuilt}), field) is unbuilt
