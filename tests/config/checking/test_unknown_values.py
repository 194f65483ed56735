"""Numbers are worked out before they are checked, and a value that is not known hides no other fault."""

import pytest
from static_check_helpers import HEAD, SHARED, THING
from things import built

from modalities_pipeline.config.unbuilt import Unbuilt

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
