"""The factory builds what a config says, once for each name, and finds all faults before building anything."""

import logging
from typing import Any

import pytest
import things
from pydantic import BaseModel
from things import Model, Thing, built, load, registry

from modalities_pipeline.config.checking.faults import ConfigFaultsError
from modalities_pipeline.config.factory import ComponentFactory
from modalities_pipeline.exceptions import ConfigError, DatasetNotFoundError

SHARED = "{instance_key: shared, pass_type: BY_REFERENCE}"
HEAD = "settings: {name: x}\n"


def _thing(config: str) -> str:
    return f"{{component_key: thing, variant_key: plain, config: {{{config}}}}}"


@pytest.fixture
def build(tmp_path):
    """Function yaml text -> built `Model`."""

    def build_text(text: str, model: type[BaseModel] = Model) -> Any:
        data, document = load(tmp_path / "config.yaml", text)
        built.clear()
        return ComponentFactory(registry(), document).build_components(config_dict=data, components_model_type=model)

    return build_text


def _error(build, text: str) -> ConfigError:
    with pytest.raises(ConfigError) as error:
        build(text)
    return error.value


def test_references_share_one_object_and_inline_components_do_not(build):
    things = build(
        HEAD
        + f"""
first: {_thing(f"size: 1, child: {SHARED}, children: [{SHARED}]")}
optional:
  a: {SHARED}
  b: [{_thing("size: 3")}, {SHARED}, {_thing("size: 3")}]
shared: {_thing("size: 2")}
"""
    )
    shared = things.first.child
    assert (things.first.size, shared.size, things.optional["b"][0].size) == (1, 2, 3)
    assert things.first.children == [shared]
    assert things.optional["a"] is things.optional["b"][1] is shared
    assert things.optional["b"][0] is not things.optional["b"][2]
    assert len(built) == 4


def test_references_may_point_forward_and_to_each_other(build):
    a, b = (f"{{instance_key: {name}, pass_type: BY_REFERENCE}}" for name in "ab")
    things = build(HEAD + f"first: {a}\nb: {_thing('size: 2')}\na: {_thing(f'size: 1, child: {b}')}\noptional: {b}\n")
    assert things.first.child is things.optional
    assert [thing.size for thing in built] == [2, 1], "children come before those who need them"


@pytest.mark.parametrize("is_referred_to_first", [True, False])
def test_a_list_of_components_is_built_once_whoever_comes_first(build, is_referred_to_first):
    names = ["first", "optional"] if is_referred_to_first else ["optional", "first"]
    reference = f"{{instance_key: {names[1]}, pass_type: BY_REFERENCE}}"
    things = build(HEAD + f"{names[0]}: {reference}\n{names[1]}: [{_thing('size: 1')}]\n")
    assert things.first[0] is things.optional[0]
    assert len(built) == 1


@pytest.mark.parametrize(("target", "value"), [("5", 5), ("[1, a]", [1, "a"]), ("{a: {b: 1}}", {"a": {"b": 1}})])
def test_references_reach_any_kind_of_section(build, target, value):
    assert build(HEAD + f"first: {SHARED}\noptional: [{SHARED}]\nshared: {target}\n").first == value


def test_required_fields_are_built_before_optional_ones(build):
    build(HEAD + f"thing: {_thing('size: 2')}\noptional: {_thing('size: 3')}\nfirst: {_thing('size: 1')}\n")
    assert [thing.size for thing in built] == [1, 3, 2]


def test_components_get_every_field_and_nested_configs_as_objects(build):
    thing = build(HEAD + f"first: {_thing('size: 1, kid: 7, nested: {depth: 1, deeper: {}}, ignored: 5')}\n").first
    assert thing.child == 7, "the other name of 'child'"
    assert thing.nested == things.Nested(depth=1, deeper=things.Nested())
    assert thing.colour is things.Colour.RED


def test_numbers_are_built_like_components(build):
    number = "{component_key: number, variant_key: sum, config: {numbers: [1, 2]}}"
    assert build(HEAD + f"first: {_thing(f'size: {number}')}\n").first.size == 3


def test_old_names_of_variants_build_the_same(build):
    assert build(HEAD + f"first: {_thing('size: 1').replace('plain', 'simple')}\n").first.size == 1


def test_build_component_builds_a_single_node():
    node = {"component_key": "thing", "variant_key": "plain", "config": {"size": 4}}
    thing = ComponentFactory(registry()).build_component(node)
    assert isinstance(thing, Thing)
    assert thing.size == 4


def test_nothing_is_built_if_the_last_key_is_wrong(build):
    """B078"""
    error = _error(build, HEAD + f"first: {_thing('size: 1')}\nthing: {_thing('size: 0, colour: blau')}\n")
    assert built == []
    assert isinstance(error, ConfigFaultsError)
    assert [(fault.key_path[-1], fault.origin.line) for fault in error.faults] == [("size", 3), ("colour", 3)]


def test_what_a_component_refuses_comes_with_its_place(build):
    error = _error(build, HEAD + f"first:\n- {_thing('size: 13')}\n")
    assert str(error).endswith("config.yaml:3:3: first.0: thing/plain cannot be built: 13 brings bad luck")
    assert isinstance(error.__cause__, ValueError)


@pytest.mark.parametrize(
    ("size", "what"),
    [(405, "PermissionError: [Errno 13] Permission denied: '/x'"), (406, "SystemExit: no more")],
)
def test_a_component_that_fails_at_files_or_ends_the_program_is_named(build, size, what):
    error = _error(build, HEAD + f"first: {_thing(f'size: {size}')}\n")
    assert str(error).endswith(f"config.yaml:2:1: first: thing/plain cannot be built: {what}")


def test_errors_of_ours_keep_their_kind(build, tmp_path):
    with pytest.raises(DatasetNotFoundError, match=r"config.yaml:2:1: first: there are no data$"):
        build(HEAD + f"first: {_thing('size: 404')}\n")


def test_other_errors_pass_with_a_note_of_their_place(build):
    with pytest.raises(RuntimeError, match="out of memory") as error:
        build(HEAD + f"first: {_thing('size: 500')}\n")
    (note,) = error.value.__notes__
    assert note.endswith("config.yaml:2:1: first: while thing/plain was built")


def test_values_that_only_building_shows_are_reported_with_their_place(build):
    tool = "{component_key: tool, variant_key: unknown, config: {}}"
    error = _error(build, HEAD + f"first: 1\nthing: {tool}\n")
    assert str(error).endswith("config.yaml:3:1: thing: has to be a Thing, not a Tool")
    error = _error(build, HEAD + f"first: {_thing(f'children: [{tool}], size: 1')}\n")
    assert "config.yaml:2:71: first.config.children.0: has to be a Thing, not a Tool" in str(error)


def test_what_was_built_is_logged_with_its_path(build, caplog):
    with caplog.at_level(logging.DEBUG, logger="modalities_pipeline.config.factory"):
        build(HEAD + f"first: {_thing('size: 1, children: [' + _thing('size: 2') + ']')}\n")
    assert caplog.messages == [
        "Instantiated <class 'things.Thing'>: first -> config -> children -> 0",
        "Instantiated <class 'things.Thing'>: first",
    ]


def test_missing_document_is_no_problem():
    with pytest.raises(ConfigError, match=r"^settings: is missing$"):
        ComponentFactory(registry()).build_components({"first": 1}, Model)
