"""The factory builds what a config says, once for each name, and finds all faults before building anything."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import AliasChoices, BaseModel, Field, model_validator

from modalities_pipeline.config.component import ComponentConfig
from modalities_pipeline.config.factory import ComponentFactory
from modalities_pipeline.config.loader import load_app_config_dict, load_yaml
from modalities_pipeline.config.registry import ComponentEntity, Registry
from modalities_pipeline.exceptions import ConfigError


class Thing:
    built: int = 0

    def __init__(self, size: int, child: Any, children: list[Any]) -> None:
        Thing.built += 1
        self.size, self.child, self.children = size, child, children


class ThingConfig(ComponentConfig):
    size: int = Field(gt=0)
    child: Any = Field(default=None, validation_alias=AliasChoices("child", "kid"))
    children: list[Any] = Field(default_factory=list)


class Settings(BaseModel, extra="forbid"):
    name: str
    number: int = 0

    @model_validator(mode="after")
    def _check(self) -> "Settings":
        if self.number == 13:
            raise ValueError("13 brings bad luck")
        return self


class Model(BaseModel):
    settings: Settings
    first: Any
    optional: Any = None


@pytest.fixture
def build(tmp_path):
    """Function yaml text -> built `Model`."""
    registry = Registry([ComponentEntity("thing", "plain", Thing, ThingConfig)])

    def build_text(text: str, model: type[BaseModel] = Model) -> Any:
        path = tmp_path / "config.yaml"
        path.write_text(text, encoding="utf-8")
        factory = ComponentFactory(registry, path, load_yaml(path).position)
        return factory.build_components(load_app_config_dict(path), model)

    return build_text


def _faults(build, text: str) -> list[str]:
    built_before = Thing.built
    with pytest.raises(ConfigError) as error:
        build(text)
    assert Thing.built == built_before, "something was built although the config is wrong"
    return [line.rsplit("/", 1)[-1] for line in str(error.value).split("\n")]


REFERENCE = "{instance_key: shared, pass_type: BY_REFERENCE}"
HEAD = "settings: {name: x}\n"


def test_references_share_one_object_and_inline_components_do_not(build):
    built = build(
        HEAD
        + f"""
first: {{component_key: thing, variant_key: plain, config: {{size: 1, child: {REFERENCE}, children: [{REFERENCE}]}}}}
optional:
  a: {REFERENCE}
  b: [{{component_key: thing, variant_key: plain, config: {{size: 3}}}}, {REFERENCE}]
shared: {{component_key: thing, variant_key: plain, config: {{size: 2}}}}
"""
    )
    shared = built.first.child
    assert (built.first.size, shared.size, built.optional["b"][0].size) == (1, 2, 3)
    assert built.first.children == [shared]
    assert built.optional["a"] is built.optional["b"][1] is shared


def test_top_level_list_of_components_is_built_once_whoever_comes_first(build):
    things = "[{component_key: thing, variant_key: plain, config: {size: 1}}]"
    for first, optional in (
        (REFERENCE.replace("shared", "optional"), things),
        (things, REFERENCE.replace("shared", "first")),
    ):
        built = build(HEAD + f"first: {first}\noptional: {optional}\n")
        assert built.first[0] is built.optional[0]


def test_references_reach_settings_and_numbers(build):
    built = build(HEAD + "first: {instance_key: five, pass_type: BY_REFERENCE}\nfive: 5\n")
    assert built.first == 5


def test_keys_that_nothing_refers_to_are_ignored(build):
    assert build(HEAD + "first: 1\nscratch: {component_key: nope}\n").first == 1


def test_component_can_be_given_under_an_alias(build):
    thing = "{component_key: thing, variant_key: plain, config: {size: 2}}"
    built = build(HEAD + f"first: {{component_key: thing, variant_key: plain, config: {{size: 1, kid: {thing}}}}}\n")
    assert built.first.child.size == 2


def test_build_component_builds_a_single_node():
    registry = Registry([ComponentEntity("thing", "plain", Thing, ThingConfig)])
    node = {"component_key": "thing", "variant_key": "plain", "config": {"size": 4}}
    assert ComponentFactory(registry).build_component(node).size == 4


def test_all_faults_are_reported_together_with_line_key_and_closest_name(build):
    """B077, B078: a misspelt key at any level, a wrong value, and a missing key come out in one message."""
    faults = _faults(
        build,
        """settings:
  nam: x
first:
  component_key: thing
  variant_key: plain
  config:
    size: 0
    chidl: 1
    children:
      - {component_key: thing, variant_key: plian, config: {}}
      - {component_key: thing, variant_key: plain, config: {size: a}}
""",
    )
    assert faults == [
        "config.yaml:1: settings.name: is missing",
        "config.yaml:2: settings.nam: unknown key; did you mean 'name'?",
        "config.yaml:7: first.config.size: input should be greater than 0 (given: 0)",
        "config.yaml:8: first.config.chidl: unknown key; did you mean 'child'?",
        "config.yaml:10: first.config.children.0: unknown variant_key 'plian' of component 'thing'; "
        "did you mean 'plain'?",
        "config.yaml:11: first.config.children.1.config.size: input should be a valid integer, "
        "unable to parse string as an integer (given: 'a')",
    ]


@pytest.mark.parametrize(
    ("first", "fault"),
    [
        (
            "{instance_key: sharde, pass_type: BY_REFERENCE}",
            "there is no top-level key 'sharde'; did you mean 'shared'?",
        ),
        ("{instance_key: shared, pass_type: BY_VALUE}", "first.pass_type: has to be BY_REFERENCE (given: 'BY_VALUE')"),
        ("{instance_key: shared}", "first.pass_type: has to be BY_REFERENCE (given: nothing)"),
        (
            "{component_key: thing, config: {}}",
            "a component needs component_key, variant_key, config; missing: variant_key",
        ),
        ("{component_key: thing, variant_key: plain, config: }", "write 'config: {}' if there is nothing to set"),
        ("{component_key: thing, variant_key: plain, config: {size: 1}, confg: 1}", "did you mean 'config'?"),
        ("{instance_key: loop, pass_type: BY_REFERENCE}", "refers to itself in a circle: loop -> loop"),
    ],
)
def test_nodes_that_cannot_work_are_named(build, first, fault):
    shared = "shared: 1\nloop: {component_key: thing, variant_key: plain, config: {size: 1, child: "
    faults = _faults(build, HEAD + f"first: {first}\n{shared}{{instance_key: loop, pass_type: BY_REFERENCE}}}}}}\n")
    assert any(fault in line for line in faults), faults


def test_misspelt_optional_section_is_not_just_ignored(build):
    faults = _faults(build, HEAD + "first: 1\noptionl: 2\n")
    assert faults == ["config.yaml:3: optionl: nothing uses this key; did you mean 'optional'?"]


def test_checks_of_several_values_together_keep_their_words(build):
    assert _faults(build, "settings: {name: x, number: 13}\nfirst: 1\n") == [
        "config.yaml:1: settings: 13 brings bad luck"
    ]


def test_values_that_only_building_shows_are_reported_with_their_place(build):
    text = "settings:\n  name: x\n  number: {instance_key: word, pass_type: BY_REFERENCE}\nfirst: 1\nword: five\n"
    (fault,) = _faults(build, text)
    assert fault.startswith("config.yaml:3: settings.number: input should be a valid integer")


def test_missing_file_position_is_no_problem():
    factory = ComponentFactory(Registry([]), Path("x.yaml"))
    with pytest.raises(ConfigError, match=r"x.yaml: settings: is missing"):
        factory.build_components({"first": 1}, Model)
