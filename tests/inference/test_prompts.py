"""Blanks in prompts."""

from modalities_pipeline.inference.prompts import fill_in, placeholders

JSON = '{"a": {"b": 1}, "c": {}} {0} {x!r} {x:>4} {a.b} {a[0]}'


def test_each_name_is_asked_for_once_in_the_order_of_the_template():
    assert placeholders("{b} and {a_1}, {b}") == ["b", "a_1"]


def test_all_other_braces_stand_for_themselves():
    assert placeholders(JSON) == []
    assert fill_in(JSON, {}) == JSON


def test_a_name_in_double_braces_is_text():
    assert placeholders("{{x}} {y}") == ["y"]
    assert fill_in("{{x}} {y}", {"y": "1"}) == "{x} 1"


def test_answers_are_not_filled_in_again():
    assert fill_in("{a}{b}", {"a": "{b}", "b": "{{a}} \\1"}) == "{b}{{a}} \\1"
