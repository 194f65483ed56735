"""Builders that take one model, or the parts of one."""

import inspect

import pytest

from modalities_pipeline.config.model_parts import for_each_part


@for_each_part("model")
def _double(model: int, factor: int = 2) -> int:
    return model * factor


def test_one_object_gives_one_result():
    assert _double(3) == 6


@pytest.mark.parametrize(("parts", "results"), [([1, 2], [3, 6]), ([4], [12]), ([], [])])
def test_a_list_gives_a_list_of_the_same_length(parts, results):
    assert _double(factor=3, model=parts) == results


def test_results_of_parts_can_be_combined():
    combined = for_each_part("model", combine=lambda parts, results: (parts, sum(results)))(_double.__wrapped__)
    assert combined([1, 2]) == ([1, 2], 6)
    assert combined(5) == 10


def test_a_builder_keeps_its_signature():
    assert list(inspect.signature(_double).parameters) == ["model", "factor"]


def test_a_parameter_that_is_not_there_is_refused_at_once():
    with pytest.raises(ValueError, match="_double has no parameter optimizer"):
        for_each_part("optimizer")(_double)
