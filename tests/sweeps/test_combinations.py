"""Combinations of a sweep: all of them, in order, each once."""

import pytest

from modalities_pipeline.exceptions import ConfigError
from modalities_pipeline.sweeps.combinations import combinations_of, hash_of_combination


def test_every_combination_of_lists_is_there_with_the_last_list_changing_fastest():
    combinations = list(combinations_of({"a": [1, 2], "b": {"c": ["x", "y"], "d": 5}}))
    assert combinations == [{"a": a, "b": {"c": c, "d": 5}} for a in (1, 2) for c in ("x", "y")]


def test_elements_of_a_list_may_be_of_any_kind():
    values = [None, True, 1, 1.0, "1", [1, 2], {"component_key": "x", "config": {"k": [1]}}]
    assert [combination["a"] for combination in combinations_of({"a": values})] == values


def test_combinations_share_nothing_that_could_be_changed():
    first, second = combinations_of({"a": [1, 2], "b": {"c": [{"x": 1}]}})
    first["b"]["c"]["x"] = 2
    assert second["b"]["c"] == {"x": 1}


def test_a_sweep_without_lists_is_one_combination():
    assert list(combinations_of({"a": 1})) == [{"a": 1}]


@pytest.mark.parametrize(
    ("sweep", "message"),
    [
        ({"a": {"b": []}}, r"sweep\.a\.b: the list is empty"),
        ({"a": [1, 2, 1]}, r"sweep\.a: 1 is there twice"),
        ({"a": [{"x": 1, "y": 2}, {"y": 2, "x": 1}]}, "is there twice"),
    ],
)
def test_lists_that_give_no_run_or_one_twice_are_refused(sweep, message):
    with pytest.raises(ConfigError, match=message):
        list(combinations_of(sweep))


def test_the_hash_tells_values_apart_and_not_orders_of_keys():
    values = [{"a": 1, "b": 2}, {"a": 1, "b": 3}, {"a": 1.0, "b": 2}, {"a": "1", "b": 2}, {"a": True, "b": 2}]
    hashes = [hash_of_combination(value) for value in values]
    assert len(set(hashes)) == len(hashes)
    assert all(len(text) == 16 and int(text, 16) >= 0 for text in hashes)
    assert hash_of_combination({"b": 2, "a": 1}) == hashes[0]
