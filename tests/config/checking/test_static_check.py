"""Every fault of a config is found, with file, line, column, key and the nearest valid name, and nothing is built."""

import pytest
import things
from things import Model, built, load, registry

from modalities_pipeline.config.checking.faults import Fault, sorted_faults
from modalities_pipeline.config.checking.static_check import StaticCheck
from modalities_pipeline.config.unbuilt import Unbuilt

THING = "{component_key: thing, variant_key: plain, config: {size: 1}}"
SHARED = "{instance_key: shared, pass_type: BY_REFERENCE}"
HEAD = "settings: {name: x}\n"


@pytest.fixture
def check(tmp_path):
    """Function yaml text -> `StaticCheck` of it as a `Model`."""

    def check_text(text: str, is_run: bool = True) -> StaticCheck:
        data, document = load(tmp_path / "config.yaml", text)
        result = StaticCheck(data, registry(), document, is_run)
        built.clear()
        result.check_model(Model)
        assert not any(isinstance(item, things.Thing | things.Tool) for item in built), "something was built"
        return result

    return check_text


@pytest.fixture
def faults(check):
    """Function yaml text -> its faults, as "line:column: key: message"."""

    def faults_of(text: str, is_run: bool = True) -> list[str]:
        return [_without_path(fault) for fault in sorted_faults(check(text, is_run).faults)]

    return faults_of


def _without_path(fault: Fault) -> str:
    return str(fault).partition("config.yaml:")[2].strip()


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
    assert [(fault.is_note, _without_path(fault)) for fault in sorted_faults(found)] == [
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


SUM = "{component_key: number, variant_key: sum, config: {numbers: [%s]}}"


def test_numbers_are_worked_out_once_before_they_are_checked(check, faults):
    zero = THING.replace("1", SUM % "1, -1, 0".replace("-1", "0").replace("1", "0"))
    assert faults(HEAD + f"first: {zero}\n") == ["2:60: first.config.size: has to be greater than 0 (given: 0)"]
    sections = check(
        HEAD + f"first: [{THING.replace('1', SUM % '1, 2')}, {THING.replace('1', SUM % '1, 2')}]\n"
    ).sections
    assert [thing.config.size for thing in sections["first"]] == [3, 3]
    assert built == [[1, 2]], "the same number was worked out twice"


def test_a_number_that_cannot_be_worked_out_is_a_fault_where_it_stands(faults):
    (line,) = faults(HEAD + f"first: {THING.replace('1', SUM % '-5')}\n")
    assert line.startswith("2:60: first.config.size: ValueError: a number is negative")


@pytest.mark.parametrize("is_run", [True, False])
def test_a_number_from_a_missing_file_is_a_fault_of_a_run_and_a_note_of_a_check(check, is_run):
    number = "{component_key: number, variant_key: sum, config: {numbers: [1], path: nowhere.txt}}"
    result = check(HEAD + f"first: {THING.replace('1', number)}\n", is_run)
    (fault,) = result.faults
    assert fault.is_note is not is_run
    assert "nowhere.txt" in fault.message
    number = result.sections["first"].config.size
    assert isinstance(number, Unbuilt)
    assert number.name == "number/sum"


def test_what_is_not_known_keeps_other_faults_from_being_hidden(faults):
    number = "{component_key: number, variant_key: sum, config: {numbers: [1], path: nowhere.txt}}"
    lines = faults(HEAD + f"first: {THING.replace('1', number + ', sice: 3')}\n", is_run=False)
    assert len(lines) == 2
    assert lines[1].endswith("first.config.sice: unknown key; did you mean 'size'?")


def test_components_of_unknown_kind_are_taken_anywhere(faults):
    custom = "{component_key: tool, variant_key: unknown, config: {}}"
    assert faults(HEAD + f"first: {THING.replace('1', custom)}\nthing: {custom}\n") == []


@pytest.mark.parametrize("is_run", [True, False])
def test_a_component_that_cannot_be_built_is_a_fault_of_a_run_and_a_note_of_a_check(check, is_run):
    (fault,) = check(HEAD + f"first: {THING.replace('plain', 'planned')}\n", is_run).faults
    assert fault.is_note is not is_run
    assert fault.message == "this version knows thing/planned by its config only and cannot build it"


def test_an_interpolation_without_value_is_reported_once_although_it_is_copied(faults):
    first, shared = "{a: '${shared}', b: '${shared}'}", "'${oc.env:NO_SUCH_VARIABLE_HERE}'"
    (copied,) = faults(HEAD + f"first: {first}\nshared: {shared}\n")
    assert copied.startswith("2:9: first.a: ")
    (line,) = faults(HEAD + f"first: {first}\noptional: {SHARED}\nshared: {shared}\n")
    assert line.startswith("4:1: shared: ")


def test_values_of_the_environment_are_not_repeated(faults, monkeypatch):
    monkeypatch.setenv("MY_TOKEN", "sesame")
    thing = THING.replace("1", "3, colour: '${scratch}'")
    lines = faults(HEAD + f"first: {thing}\nscratch: ${{oc.env:MY_TOKEN}}\n")
    assert len(lines) == 1
    assert "has to be one of red, blue (given: a value from the environment)" in lines[0]
    assert "sesame" not in lines[0]


def test_what_nothing_uses_is_noted_with_its_faults(check):
    result = check(HEAD + f"first: 1\nnumbers: [1]\nscratch: {THING.replace('1', '0')}\n")
    result.check_unused()
    assert [(fault.is_note, _without_path(fault)) for fault in result.faults] == [
        (True, "3:1: numbers: nothing uses this key"),
        (True, "4:1: scratch: nothing uses this section"),
        (True, "4:62: scratch.config.size: has to be greater than 0 (given: 0)"),
    ]


def test_positions_are_no_must():
    check = StaticCheck({"first": 1}, registry(), None)
    check.check_model(Model)
    assert list(map(str, check.faults)) == ["settings: is missing"]
