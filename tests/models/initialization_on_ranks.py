"""Initialises sharded models and compares them with plain ones; run by torchrun."""

import json
import sys

import torch
import torch.distributed as dist
from coca_helpers import coca_config, coca_inputs
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.tensor import DTensor

from modalities_pipeline.distributed.configs import (
    FSDP2MixedPrecisionSettings,
    MixedPrecisionSettings,
    ShardingStrategy,
)
from modalities_pipeline.distributed.env import DistributedEnv, get_world_size
from modalities_pipeline.distributed.fsdp import get_fsdp2_wrapped_model
from modalities_pipeline.distributed.fsdp1 import get_fsdp1_wrapped_model
from modalities_pipeline.distributed.mesh import get_device_mesh
from modalities_pipeline.models.coca import build_coca
from modalities_pipeline.models.gpt2 import build_gpt2
from modalities_pipeline.models.initialization import get_composed_model_initializer, get_initialized_model

FP_32 = FSDP2MixedPrecisionSettings.model_validate({"param_dtype": "FP_32", "reduce_dtype": "FP_32"})


def check_coca() -> None:
    """FSDP2, from the meta device; it predicts as the plain model does."""
    initializer = get_composed_model_initializer("coca", "plain", 0.0, 0.02)
    plain = get_initialized_model(build_coca(**coca_config()), initializer)
    with torch.device("meta"):
        sharded: nn.Module = build_coca(**coca_config())
    blocks = ["VisionTransformerBlock", "TransformerBlock"]
    sharded = get_fsdp2_wrapped_model(sharded, blocks, FP_32, get_device_mesh(-1, get_world_size()))
    get_initialized_model(sharded, initializer)
    _assert_same_weights(sharded, plain)
    _assert_shards_differ(sharded.get_parameter("text_decoder.transformer.wte.weight"))
    expected = plain(coca_inputs())
    for key, prediction in sharded(coca_inputs()).items():
        assert torch.allclose(prediction, expected[key], atol=1e-6), key


def check_fsdp1(config: dict) -> None:
    """FSDP1, which splits flattened parameters, and does not show where one begins."""
    initializer = get_composed_model_initializer("gpt2", "plain", 0.0, 0.02)
    plain = get_initialized_model(build_gpt2(**config), initializer)
    kinds = MixedPrecisionSettings.NO_MIXED_PRECISION, ShardingStrategy.FULL_SHARD
    sharded = get_fsdp1_wrapped_model(build_gpt2(**config), False, *kinds, ["GPT2Block"])
    get_initialized_model(sharded, initializer)
    _assert_same_weights(sharded, plain)


def _assert_same_weights(sharded: nn.Module, plain: nn.Module) -> None:
    state = get_model_state_dict(sharded, options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=False))
    expected = plain.state_dict()
    assert state.keys() == expected.keys(), state.keys() ^ expected.keys()
    for name, value in expected.items():
        assert torch.equal(state[name], value), name


def _assert_shards_differ(parameter: torch.Tensor) -> None:
    assert isinstance(parameter, DTensor)
    shards = [torch.empty_like(parameter.to_local()) for _ in range(get_world_size())]
    dist.all_gather(shards, parameter.to_local().detach())
    assert not torch.equal(*shards)


if __name__ == "__main__":
    with DistributedEnv():
        check_coca()
        check_fsdp1(json.loads(sys.argv[1]))
