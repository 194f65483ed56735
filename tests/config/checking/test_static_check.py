"""Every fault of a config is found, with file, line, column, key and the nearest valid name, and nothing is built."""

import pytest
import things
from static_check_helpers import HEAD, SHARED, THING, without_path
from things import Model, registry

from modalities_pipeline.config.checking.faults import sorted_faults
from modalities_pipeline.config.checking.static_check import StaticCheck


def test_ten_planted_faults_are_listed_in_one_go(faults):
    """B077, B078"""
    text = f"""settings:
  nam: x
first:
  component_key: thing
  variant_key: plain
  config:
    size: 0
    chidl: {{component_key: thing, variant_key: plian, config: {{}}}}
    children: {{a: 1}}
    nested:
      depht: 3
    colour: rde
    kid: {{instance_key: sharde, pass_type: BY_REFERENCE}}
optional:
  - {{component_key: thing, variant_key: plain, config: }}
  - {{component_key: tool, variant_key: hammer, confg: {{}}}}
  - {{instance_key: shared, pass_type: BY_VALUE}}
thing: {{component_key: tool, variant_key: hammer, config: {{}}}}
shared: {THING}
"""
    assert faults(text) == [
        "2:3: settings.nam: unknown key; did you mean 'name'?",
        "7:5: first.config.size: has to be greater than 0 (given: 0)",
        "8:5: first.config.chidl: unknown key; did you mean 'child'?",
        "8:35: first.config.chidl.variant_key: unknown variant_key 'plian' of component 'thing'; did you mean 'plain'?",
        "9:5: first.config.children: has to be a list, not a mapping",
        "11:7: first.config.nested.depht: unknown key; did you mean 'depth'?",
        "12:5: first.config.colour: has to be one of red, blue (given: 'rde'); did you mean 'red'?",
        "13:11: first.config.kid.instance_key: there is no top-level key 'sharde'; did you mean 'shared'?",
        "15:48: optional.0.config: has to be a mapping; write 'config: {}' if there is nothing to set",
        "16:48: optional.1.confg: unknown key in a component; did you mean 'config'?",
        "17:28: optional.2.pass_type: has to be BY_REFERENCE (given: 'BY_VALUE')",
        "18:1: thing: has to be a Thing, but tool/hammer is a Tool",
    ]


@pytest.mark.parametrize(
    ("first", "fault"),
    [
        ("{component_key: thing, variant_key: plain, config: {size: 1, sice: 2}}", "first.config.sice: unknown key;"),
        ("{component_key: thing, variant_key: plain, config: {}}", "first.config.size: is missing"),
        ("{component_key: thing, variant_key: plain, config: {size: a}}", "has to be an integer (given: 'a')"),
        (
            "{component_key: thign, variant_key: plain, config: {}}",
            "unknown component_key 'thign'; did you mean 'thing'?",
        ),
        ("{component_key: thing, variant_key: hammer, config: {}}", "of component 'thing'; there is tool/hammer"),
        ("{component_key: thing, config: {}}", "component_key, variant_key, config; missing: variant_key"),
        ("{component_key: thing, variant_key: plain}", "component_key, variant_key, config; missing: config"),
        ("{variant_key: plain, config: {}}", "component_key, variant_key, config; missing: component_key"),
        ("{componet_key: thing, variant_key: plain, config: {}}", "in a component; did you mean 'component_key'?"),
        ("{component_key: [thing], variant_key: plain, config: {}}", "first.component_key: has to be a text"),
        ("{component_key: thing, variant_key: plain, config: }", "write 'config: {}' if there is nothing to set"),
        ("{component_key: thing, variant_key: plain, config: [1]}", "has to be a mapping; write 'config: {}'"),
        (
            "{component_key: thing, variant_key: plain, config: {size: 1}, scope: 1}",
            "unknown key in a component; known:",
        ),
        ("{instance_key: sharde, pass_type: BY_REFERENCE}", "no top-level key 'sharde'; did you mean 'shared'?"),
        ("{instance_key: shared.size, pass_type: BY_REFERENCE}", "or copy the value with '${shared.size}'"),
        (
            "{instance_key: [shared], pass_type: BY_REFERENCE}",
            "first.instance_key: has to be the name of a top-level key",
        ),
        ("{instance_key: shared, pass_type: BY_VALUE}", "first.pass_type: has to be BY_REFERENCE (given: 'BY_VALUE')"),
        ("{pass_type: BY_REFERENCE}", "first.instance_key: is missing; write 'instance_key: NAME'"),
        ("{instance_kye: shared, pass_type: BY_REFERENCE}", "unknown key in a reference; did you mean 'instance_key'?"),
        ("{instance_key: shared}", "first.pass_type: is missing; write 'pass_type: BY_REFERENCE'"),
        ("{instance_key: shared, pas_type: BY_REFERENCE}", "unknown key in a reference; did you mean 'pass_type'?"),
        (
            "{component_key: thing, variant_key: plain, config: {size: 1, child: 1, kid: 2}}",
            "is another name of 'child'",
        ),
        (
            "{component_key: thing, variant_key: plain, config: {size: 1, nested: {depth: 2}}}",
            "depth 2 is more than size 1",
        ),
        (
            "{component_key: thing, variant_key: plain, config: {size: 1, nested: [2]}}",
            "mapping (key: value), not a list",
        ),
        (
            "{component_key: thing, variant_key: plain, config: {size: 1, children: [{instance_key: tool, "
            "pass_type: BY_REFERENCE}]}}",
            "first.config.children.0: has to be a Thing, but tool/hammer is a Tool",
        ),
        (
            "{component_key: thing, variant_key: plain, config: {size: {instance_key: tool, pass_type: BY_REFERENCE}}}",
            "first.config.size: has to be an integer, but tool/hammer is a Tool",
        ),
        ("{component_key: thing, variant_key: plain, config: {size: '${nowhere}'}}", "nowhere"),
    ],
)
def test_each_mistake_is_one_message(faults, first, fault):
    """What Modalities answers with a bare KeyError, AttributeError or not at all (B077)."""
    text = HEAD + f"first: {first}\nshared: {THING}\ntool: {{component_key: tool, variant_key: hammer, config: {{}}}}\n"
    (line,) = faults(text)
    assert line.startswith("2:")
    assert fault in line


def test_a_circle_is_named_once(faults):
    def thing(name: str) -> str:
        child = f"{{instance_key: {name}, pass_type: BY_REFERENCE}}"
        return f"{{component_key: thing, variant_key: plain, config: {{size: 1, child: {child}}}}}"

    text = HEAD + f"first: {thing('a')}\na: {thing('b')}\nb: {thing('a')}\n"
    (line,) = faults(text)
    assert line.startswith("4:")
    assert line.endswith("b.config.child.instance_key: refers to itself in a circle: a -> b -> a")


def test_a_fault_behind_several_references_is_reported_once(faults):
    text = HEAD + f"first: [{SHARED}, {SHARED}]\noptional: {SHARED}\nshared: {THING.replace('1', '0')}\n"
    assert faults(text) == ["4:61: shared.config.size: has to be greater than 0 (given: 0)"]


def test_missing_sections_are_named_with_a_name_that_is_close(faults):
    assert faults("settngs: {name: x}\n") == [
        "first: is missing",
        "1:1: settngs: nothing uses this key; did you mean 'settings', which is missing?",
    ]


def test_a_missing_section_names_a_similar_one_that_is_used_otherwise(faults):
    assert faults(HEAD + f"optional: {{instance_key: first_one, pass_type: BY_REFERENCE}}\nfirst_one: {THING}\n") == [
        "first: is missing (the file has 'first_one')"
    ]


def test_a_misspelt_optional_section_is_not_just_ignored(faults):
    assert faults(HEAD + "first: 1\noptionl: 2\n") == [
        "3:1: optionl: nothing uses this key; did you mean 'optional', which is not set?"
    ]


def test_sections_that_are_used_by_interpolation_only_are_no_misspelt_ones(faults):
    assert faults(HEAD + "first: ${optionl.size}\noptionl: {size: 2}\n") == []


def test_keys_that_nothing_refers_to_are_not_looked_at(faults):
    assert faults(HEAD + "first: 1\nscratch: {component_key: nope}\n") == []


def test_checks_of_several_values_together_keep_their_words(faults):
    assert faults("settings: {name: x, number: 13}\nfirst: 1\n") == ["1:1: settings: 13 brings bad luck"]


def test_checks_between_sections_get_the_settings_and_configs_of_what_is_not_built_yet(check):
    found = check("settings: {name: ab}\nfirst: " + THING.replace("1", "99") + "\n").faults
    assert [(fault.is_note, without_path(fault)) for fault in sorted_faults(found)] == [
        (True, "1:12: settings.name: is a short name"),
        (False, "2:60: first.config.size: 99 is too much for ab"),
    ]


def test_sections_hold_what_was_used_and_share_what_is_shared(check):
    sections = check(HEAD + f"first: {SHARED}\noptional: [{SHARED}]\nshared: {THING}\nscratch: 1\n").sections
    assert set(sections) == {"settings", "first", "optional", "shared"}
    assert sections["first"] is sections["optional"][0] is sections["shared"]
    assert sections["shared"].config.size == 1
    assert isinstance(sections["settings"], things.Settings)


def test_faulty_settings_are_left_out_of_the_sections(check):
    assert "settings" not in check("settings: {name: x, number: 13}\nfirst: 1\n").sections


def test_what_nothing_uses_is_noted_with_its_faults(check):
    result = check(HEAD + f"first: 1\nnumbers: [1]\nscratch: {THING.replace('1', '0')}\n")
    result.check_unused()
    assert [(fault.is_note, without_path(fault)) for fault in result.faults] == [
        (True, "3:1: numbers: nothing uses this key"),
        (True, "4:1: scratch: nothing uses this section"),
        (True, "4:62: scratch.config.size: has to be greater than 0 (given: 0)"),
    ]


def test_a_section_of_which_values_are_taken_is_used(check):
    """As `sharded_model` in `config: ${sharded_model.config}`; what is wrong with it is told all the same."""
    text = "settings: {name: '${source.config.size}'}\nfirst: 1\n" + f"source: {THING.replace('1', '0')}\n"
    result = check(text)
    result.check_unused()
    notes = [without_path(fault) for fault in result.faults if fault.is_note]
    assert notes == ["3:61: source.config.size: has to be greater than 0 (given: 0)"]


def test_positions_are_no_must():
    check = StaticCheck({"first": 1}, registry(), None)
    check.check_model(Model)
    assert list(map(str, check.faults)) == ["settings: is missing"]
