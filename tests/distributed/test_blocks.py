"""Blocks are found by the names of their classes."""

import pytest
import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

from modalities_pipeline.distributed.activation_checkpointing import get_activation_checkpointed_model
from modalities_pipeline.distributed.blocks import CHECKPOINTED, COMPILED, find_blocks, is_wrapped
from modalities_pipeline.distributed.pipeline_stages import cut_stages
from modalities_pipeline.distributed.wrapping_configs import ActivationCheckpointingVariants, FullACParams
from modalities_pipeline.exceptions import ConfigError

STAGES = [["embedding"], ["layers.0"]]


def test_the_outermost_wrapper_of_a_block_is_the_block():
    """W13: a wrapped block would otherwise be missed, or sharded without its wrapper."""
    plain, inner, outer = nn.Linear(1, 1), checkpoint_wrapper(nn.Linear(1, 1)), nn.Linear(1, 1)
    outer = torch.compile(checkpoint_wrapper(outer))
    model = nn.Sequential(plain, inner, outer, nn.Identity())
    assert find_blocks(model, ["Linear"], "x") == {"0": plain, "1": inner, "2": outer}
    assert [is_wrapped(module, COMPILED) for module in model] == [False, False, True, False]


def test_a_module_that_is_used_twice_has_both_its_names():
    layer = nn.Linear(1, 1)
    assert list(find_blocks(nn.Sequential(layer, nn.Sequential(layer)), ["Linear"], "x")) == ["0", "1.0"]


def test_the_model_itself_is_no_block():
    with pytest.raises(ConfigError, match=r"x: the model has no Sequential\. It has: Linear\."):
        find_blocks(nn.Sequential(nn.Linear(1, 1)), ["Sequential"], "x")


def test_a_stage_of_a_pipeline_may_lack_blocks_that_the_whole_model_has():
    """One rank may have the embeddings alone."""
    layers = nn.ModuleList([nn.Linear(2, 2)])
    first, second = cut_stages(nn.ModuleDict({"embedding": nn.Embedding(2, 2), "layers": layers}), STAGES)
    assert find_blocks(first, ["Linear"], "x") == {}
    assert find_blocks(second, ["Linear"], "x") == {"layers.0": layers[0]}
    with pytest.raises(ConfigError, match=r"the model has no Linaer\. It has: Embedding, Linear, ModuleDict"):
        find_blocks(first, ["Linaer"], "x")
    full = ActivationCheckpointingVariants.FULL_ACTIVATION_CHECKPOINTING
    assert get_activation_checkpointed_model(full, "layers", [first, second], FullACParams()) == [first, second]
    assert [is_wrapped(module, CHECKPOINTED) for module in (*second["layers"], *layers)] == [True, False]
