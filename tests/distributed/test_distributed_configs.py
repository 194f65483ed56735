"""Configs of meshes and of models spread over ranks: what can be known of them before anything is built."""

from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError

from modalities_pipeline.config.interfaces import DEVICE_MESH, MODULE, NUMBER
from modalities_pipeline.config.unbuilt import Unbuilt
from modalities_pipeline.distributed.configs import (
    DeviceMeshConfig,
    FSDP1WrappedModelConfig,
    FSDP2WrappedModelConfig,
    GPT2ModelTPConfig,
    ParallelDegreeConfig,
    static_parallel_degree,
)

MODEL = Unbuilt("model", "gpt2", MODULE)


def _mesh(world_size: int = 8, **degrees: Any) -> DeviceMeshConfig:
    return DeviceMeshConfig(**{"data_parallel_shard_degree": -1, "world_size": world_size, **degrees})


def _unbuilt_mesh(world_size: int = 8, **degrees: Any) -> Unbuilt:
    return Unbuilt("device_mesh", "default", DEVICE_MESH, _mesh(world_size, **degrees))


@pytest.mark.parametrize(
    ("degrees", "filled"),
    [
        ({}, (1, 1, 8, 1, 1)),
        ({"tensor_parallel_degree": 2, "pipeline_parallel_degree": 2}, (2, 1, 2, 1, 2)),
        ({"data_parallel_replicate_degree": -1, "data_parallel_shard_degree": 4}, (1, 2, 4, 1, 1)),
    ],
)
def test_a_degree_of_minus_one_is_whatever_is_left(degrees, filled):
    mesh = _mesh(**degrees)
    assert tuple(mesh.degrees.values()) == filled
    assert [kind.value for kind in mesh.degrees] == ["pp", "dp_replicate", "dp_shard", "cp", "tp"]


@pytest.mark.parametrize(
    ("degrees", "message"),
    [
        ({"data_parallel_shard_degree": 2}, "data_parallel_shard_degree 2 is not world_size 8"),
        (
            {"data_parallel_shard_degree": 2, "tensor_parallel_degree": 2},
            "data_parallel_shard_degree 2 x tensor_parallel_degree 2 is not world_size 8",
        ),
        ({"tensor_parallel_degree": 3}, "world_size 8 is not a multiple of .*tensor_parallel_degree 3"),
        ({"tensor_parallel_degree": 16}, "world_size 8 is not a multiple of"),
        ({"data_parallel_replicate_degree": -1}, "only one data parallel degree may be -1"),
        ({"data_parallel_shard_degree": 0}, "data_parallel_shard_degree is 0"),
        ({"data_parallel_shard_degree": -2}, "data_parallel_shard_degree"),
        ({"tensor_parallel_degree": -1}, "tensor_parallel_degree"),
        ({"tensor_parallel_degree": 2.0}, "tensor_parallel_degree"),
        ({"context_parallel_degree": 2}, r"context_parallel_degree\n.*there is no context parallelism"),
        ({"enable_loss_parallel": True, "tensor_parallel_degree": 2}, r"enable_loss_parallel\n.*of whole logits"),
    ],
)
def test_degrees_that_cannot_be_are_refused_without_building_the_mesh(degrees, message):
    """B078; W18: kinds of parallelism that there are not."""
    with pytest.raises(ValidationError, match=message):
        _mesh(**degrees)


def test_a_parallel_degree_is_known_before_the_mesh_is_built():
    mesh = _unbuilt_mesh(data_parallel_replicate_degree=2, tensor_parallel_degree=2)
    config = ParallelDegreeConfig(device_mesh=mesh, parallelism_methods=["dp_shard", "dp_replicate"])
    assert config.static_value() == 4
    assert static_parallel_degree(mesh.config, ["tp", "tp"]) == 2
    assert static_parallel_degree(Unbuilt("device_mesh", "default", DEVICE_MESH), ["tp"]) is None


def test_a_degree_of_a_mesh_whose_world_size_is_not_known_is_not_known_either():
    world_size = Unbuilt("number_conversion", "x", NUMBER)
    unknown = _mesh().model_copy(update={"world_size": world_size})
    assert unknown.degrees is None
    assert static_parallel_degree(unknown, ["tp"]) is None


def test_a_typo_in_a_dimension_lists_all_of_them():
    with pytest.raises(ValidationError, match="'dp_replicate', 'dp_shard', 'cp', 'tp' or 'pp'"):
        ParallelDegreeConfig(device_mesh=_unbuilt_mesh(), parallelism_methods=["dp"])


FSDP2 = {
    "model": MODEL,
    "block_names": ["GPT2Block"],
    "mixed_precision_settings": {"param_dtype": "BF_16", "reduce_dtype": "FP_32"},
    "device_mesh": _unbuilt_mesh(),
}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mixed_precision_settings": {"param_dtype": "BF16", "reduce_dtype": "FP_32"}}, "'FP_16', 'FP_32' or 'BF_16'"),
        ({"layers_per_fsdp_unit": 0}, "layers_per_fsdp_unit"),
        ({"device_mesh": MODEL}, "has to be a DeviceMesh, but model/gpt2 is a Module"),
        ({"model": "model_raw"}, "has to be a component"),
        ({"block_name": "GPT2Block"}, "block_name"),
    ],
)
def test_a_sharded_model_that_cannot_be_is_refused(changes, message):
    assert FSDP2WrappedModelConfig(**FSDP2).reshard_after_forward
    with pytest.raises(ValidationError, match=message):
        FSDP2WrappedModelConfig(**{**FSDP2, **changes})


@pytest.mark.parametrize("strategy", ["FULL_SHARD", "_HYBRID_SHARD_ZERO2"])
def test_a_model_for_fsdp1_takes_torchs_names_of_strategies(strategy):
    fields = {"model": MODEL, "sync_module_states": True, "block_names": [], "mixed_precision_settings": "BF_16"}
    assert FSDP1WrappedModelConfig(**fields, sharding_strategy=strategy).sharding_strategy.value == strategy
    with pytest.raises(ValidationError, match="'FULL_SHARD', 'SHARD_GRAD_OP', 'NO_SHARD'"):
        FSDP1WrappedModelConfig(**fields, sharding_strategy="FULL")


def test_tensor_parallelism_needs_a_mesh_for_it():
    assert GPT2ModelTPConfig(model=MODEL, device_mesh=_unbuilt_mesh(tensor_parallel_degree=2))
    with pytest.raises(ValidationError, match="needs a tensor_parallel_degree greater than 1"):
        GPT2ModelTPConfig(model=MODEL, device_mesh=_unbuilt_mesh())
    replicated = _unbuilt_mesh(tensor_parallel_degree=2, data_parallel_replicate_degree=2)
    with pytest.raises(ValidationError, match="data_parallel_replicate_degree 1 only"):
        GPT2ModelTPConfig(model=MODEL, device_mesh=replicated)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"n_head_q": 9}, r"model\n.*n_head_q 9 is not a multiple of tensor_parallel_degree 2"),
        ({"n_head_kv": 1}, r"model\n.*n_head_kv 1 is not a multiple of tensor_parallel_degree 2"),
        ({"fused_loss": object()}, r"model\n.*set the model's fused_loss to null"),
    ],
)
def test_a_model_that_cannot_be_split_is_refused_before_anything_is_built(fields, message):
    mesh = _unbuilt_mesh(tensor_parallel_degree=2)
    for changes in ({}, fields):
        config: Any = SimpleNamespace(**{"n_head_q": 8, "n_head_kv": 4, "fused_loss": None, **changes})
        model = Unbuilt("model", "gpt2", MODULE, config)
        if not changes:
            assert GPT2ModelTPConfig(model=model, device_mesh=mesh).model is model
            continue
        with pytest.raises(ValidationError, match=message):
            GPT2ModelTPConfig(model=model, device_mesh=mesh)
