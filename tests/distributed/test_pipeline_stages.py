"""Stages are cut out of a whole model without copying weights or changing the model."""

import pytest
import torch
from torch import nn

from modalities_pipeline.distributed.pipeline_stages import cut_stages
from modalities_pipeline.distributed.stages_generator import GPT2LLMStagesGenerator
from modalities_pipeline.exceptions import ConfigError
from modalities_pipeline.models.gpt2 import build_gpt2

STAGES = GPT2LLMStagesGenerator(num_model_layers=2).get_stages(num_layers_per_stage=1, pp_dims=2)


@pytest.fixture
def model(make_gpt2_config) -> nn.Module:
    return build_gpt2(**make_gpt2_config())


def test_stages_share_the_weights_of_the_whole_model_under_their_names(model):
    """W36"""
    whole = dict(model.named_parameters())
    parts = cut_stages(model, STAGES)
    found = [item for part in parts for item in part.named_parameters()]
    assert {name for name, _ in found} == whole.keys()
    assert len(found) == len(whole)
    assert all(parameter is whole[name] for name, parameter in found)
    assert [sorted(dict(part.transformer["h"].named_children())) for part in parts] == [[], ["0"], ["1"], []]


def test_a_part_knows_the_classes_of_the_blocks_that_are_in_others(model):
    first, *_ = cut_stages(model, STAGES)
    assert not any(type(module).__name__ == "GPT2Block" for module in first.modules())
    assert "GPT2Block" in first.classes_of_whole_model


def test_the_whole_model_stays_whole(model):
    names = list(model.state_dict())
    first, *_ = cut_stages(model, STAGES)
    first.register_forward_pre_hook(lambda module, inputs: pytest.fail("a hook of a stage is one of the whole model"))
    first.transformer["new"] = nn.Linear(1, 1)
    assert list(model.state_dict()) == names
    assert model(torch.zeros(1, 3, dtype=torch.int64)).shape == (1, 3, 128)


def test_stages_one_after_the_other_compute_what_the_whole_model_computes(model):
    token_ids = torch.randint(128, (2, 5), generator=torch.Generator().manual_seed(0))
    x = token_ids
    for part in cut_stages(model, STAGES):
        x = part(x)
    assert torch.equal(x, model(token_ids))


def test_a_model_on_the_meta_device_stays_there(make_gpt2_config):
    parts = cut_stages(build_gpt2(**make_gpt2_config(), use_meta_device=True), STAGES)
    assert all(parameter.is_meta for part in parts for parameter in part.parameters())


@pytest.mark.parametrize(
    ("changes", "num_layers", "message"),
    [
        ({}, 3, r"cuts out transformer\.h\.2, but the model has no such module"),
        ({}, 1, r"Parameter transformer\.h\.1\.\S+ of the model is in no stage"),
        ({"use_weight_tying": True}, 2, r"transformer\.wte\.weight and transformer\.lm_head\.weight are the same"),
    ],
)
def test_a_model_that_does_not_fit_the_stages_is_refused(make_gpt2_config, changes, num_layers, message):
    stages = GPT2LLMStagesGenerator(num_layers).get_stages(num_layers_per_stage=1, pp_dims=1)
    with pytest.raises(ConfigError, match=message):
        cut_stages(build_gpt2(**make_gpt2_config(**changes)), stages)
