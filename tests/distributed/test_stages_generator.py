"""A model is cut into stages as Modalities cuts it."""

import json
from pathlib import Path

import pytest

from modalities_pipeline.distributed.stages_generator import GPT2LLMStagesGenerator
from modalities_pipeline.exceptions import ConfigError

CASES = json.loads((Path(__file__).parent / "vectors" / "pipeline_stages.json").read_text())["stages"]


def _stages(case):
    equivalences = case["input_layer_equivalence"], case["output_layer_equivalence"]
    generator = GPT2LLMStagesGenerator(case["num_model_layers"], *equivalences)
    return generator.get_stages(case["num_layers_per_stage"], case["pp_dims"])


@pytest.mark.parametrize("case", [case for case in CASES if isinstance(case["stages"], list)])
def test_stages_are_those_of_modalities(case):
    assert _stages(case) == case["stages"]


@pytest.mark.parametrize("case", [case for case in CASES if isinstance(case["stages"], dict)])
def test_a_model_that_cannot_be_cut_evenly_is_refused(case):
    message = ("exceeds weight" in case["stages"]["error"] and "more than the 1 of a stage") or "not divisible by the 4"
    with pytest.raises(ConfigError, match=message):
        _stages(case)


@pytest.mark.parametrize("equivalences", [(1, 1), (2, 3), (3, 1)])
def test_every_module_is_in_exactly_one_stage_and_no_stage_is_empty(equivalences):
    for num_layers in range(1, 13):
        generator = GPT2LLMStagesGenerator(num_layers, *equivalences)
        modules = [name for names, _ in generator.units() for name in names]
        for num_layers_per_stage in range(max(equivalences), 13):
            try:
                num_stages = generator.num_stages(num_layers_per_stage, pp_dims=1)
            except ConfigError:  # a stage has to be smaller than embeddings or head to be even
                continue
            stages = generator.get_stages(num_layers_per_stage, pp_dims=1)
            assert len(stages) == num_stages
            assert all(stages)
            assert [name for stage in stages for name in stage] == modules
