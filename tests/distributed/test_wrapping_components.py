"""Activation checkpointing, compilation and sharding from YAML, in the documented order."""

from typing import Any

import pytest
import torch
import yaml
from pydantic import BaseModel, ValidationError
from wrapping_helpers import compile_eagerly, gradients

from modalities_pipeline.config.factory import ComponentFactory
from modalities_pipeline.config.interfaces import MODULE
from modalities_pipeline.config.registry import Registry
from modalities_pipeline.config.unbuilt import Unbuilt
from modalities_pipeline.distributed.wrapping_configs import ActivationCheckpointedModelConfig, CompiledModelConfig

TEXT = """
model:
  component_key: model
  variant_key: model_initialized
  config:
    model: {instance_key: sharded, pass_type: BY_REFERENCE}
    model_initializer:
      component_key: model_initialization
      variant_key: composed
      config: {model_type: gpt2, weight_init_type: plain, mean: 0.0, std: 0.02}
sharded:
  component_key: model
  variant_key: fsdp2_wrapped
  config:
    model: {instance_key: compiled, pass_type: BY_REFERENCE}
    block_names: [GPT2Block]
    mixed_precision_settings: {param_dtype: BF_16, reduce_dtype: FP_32}
    layers_per_fsdp_unit: 2
    device_mesh:
      component_key: device_mesh
      variant_key: default
      config: {data_parallel_shard_degree: -1, world_size: 1}
compiled:
  component_key: model
  variant_key: compiled
  config:
    model: {instance_key: checkpointed, pass_type: BY_REFERENCE}
    block_names: [GPT2Block]
    fullgraph: true
checkpointed:
  component_key: model
  variant_key: activation_checkpointed
  config:
    model: {instance_key: model_raw, pass_type: BY_REFERENCE}
    layers_fqn: transformer.h
    preserve_rng_state: null
"""
VARIANTS = [
    "{ac_variant: full_activation_checkpointing, ac_fun_params: {}}",
    "{ac_variant: selective_layer_activation_checkpointing, ac_fun_params: {ac_freq: 2}}",
    "{ac_variant: selective_op_activation_checkpointing, ac_fun_params: {save_ops_keys: [ops.aten.mm.default]}}",
]


class Model(BaseModel):
    model: Any


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_documented_order_is_built_from_yaml_and_trains_in_bfloat16(
    variant, make_gpt2_config, process_group, monkeypatch
):
    compile_eagerly(monkeypatch)
    content = yaml.safe_load(TEXT)
    content["checkpointed"]["config"].update(yaml.safe_load(variant))
    raw = make_gpt2_config(n_layer=4, dropout=0.1, use_meta_device=True)
    content["model_raw"] = {"component_key": "model", "variant_key": "gpt2", "config": raw}
    model = ComponentFactory(Registry()).build_components(content, Model).model
    grads = gradients(model)
    assert all(torch.isfinite(grad.full_tensor()).all() for grad in grads.values())
    number = {"full": 4, "selective_layer": 2, "selective_op": 4}[content["checkpointed"]["config"]["ac_variant"][:-25]]
    wrapped = {name.split(".")[2] for name, _ in model.named_parameters() if "_checkpoint_wrapped_module" in name}
    assert len(wrapped) == number


def test_what_is_done_already_is_found_before_anything_is_built():
    gpt2 = Unbuilt("model", "gpt2", MODULE)
    fields = {"ac_variant": "full_activation_checkpointing", "ac_fun_params": {}}

    def checkpointed(model: Unbuilt, layers_fqn: str) -> Unbuilt:
        config = ActivationCheckpointedModelConfig(model=model, layers_fqn=layers_fqn, **fields)
        return Unbuilt("model", "activation_checkpointed", MODULE, config)

    def compiled(model: Unbuilt, name: str) -> Unbuilt:
        config = CompiledModelConfig(model=model, block_names=[name])
        return Unbuilt("model", "compiled", MODULE, config)

    compiled(compiled(checkpointed(checkpointed(gpt2, "first"), "second"), "First"), "Second")
    with pytest.raises(ValidationError, match="the layers first have activation checkpointing already"):
        checkpointed(checkpointed(gpt2, "first"), "first")
    with pytest.raises(ValidationError, match="First is compiled already, in model"):
        compiled(checkpointed(compiled(gpt2, "First"), "first"), "First")
