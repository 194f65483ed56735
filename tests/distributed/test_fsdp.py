"""FSDP2: a sharded run is the unsharded one."""

import json
from pathlib import Path

import fsdp_steps
import pytest
import torch
from torch import nn
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.fsdp import FSDPModule

from modalities_pipeline.distributed.configs import FSDP2MixedPrecisionSettings
from modalities_pipeline.distributed.fsdp import get_fsdp2_wrapped_model
from modalities_pipeline.distributed.mesh import get_device_mesh
from modalities_pipeline.exceptions import ConfigError
from modalities_pipeline.models.gpt2 import build_gpt2
from modalities_pipeline.models.initialization import get_composed_model_initializer, get_initialized_model
from modalities_pipeline.models.initialization_configs import WeightInitTypes

SCRIPT = Path(fsdp_steps.__file__)
FP_32 = FSDP2MixedPrecisionSettings.model_validate({"param_dtype": "FP_32", "reduce_dtype": "FP_32"})


def _assert_equal(actual: dict, expected: dict, tolerance: float) -> None:
    assert actual["losses"] == pytest.approx(expected["losses"], abs=tolerance)
    assert actual["norms"] == pytest.approx(expected["norms"], rel=10 * tolerance)
    for name, tensor in expected["final"].items():
        assert torch.allclose(actual["final"][name], tensor, rtol=0, atol=20 * tolerance), name


@pytest.mark.multi_process
@pytest.mark.parametrize(
    ("num_processes", "tied", "replicate_degree", "is_wrapped"),
    [(3, True, 1, False), (4, False, 2, False), (2, False, 1, True)],
)
def test_sharded_training_equals_training_of_the_plain_model(
    num_processes, tied, replicate_degree, is_wrapped, make_gpt2_config, run_distributed, tmp_path
):
    """Same initial weights (B058), norm and clipped step (B052), tie of the head (B063) on any number of ranks.

    W1, W13: all the same with activation checkpointing and compilation, which come before sharding.
    """
    config = make_gpt2_config(use_weight_tying=tied)
    expected = fsdp_steps.train(config)
    settings = json.dumps({"config": config, "replicate_degree": replicate_degree, "is_wrapped": is_wrapped})
    run_distributed(SCRIPT, num_processes, str(tmp_path), settings)
    results = [torch.load(tmp_path / f"rank_{rank}.pt") for rank in range(num_processes)]
    for result in results:
        assert all(torch.equal(tensor, expected["initial"][name]) for name, tensor in result["initial"].items())
        _assert_equal(result, expected, 2e-6)
    if tied:
        final = results[0]["final"]
        assert torch.equal(final["transformer.wte.weight"], final["transformer.lm_head.weight"])


def test_bfloat16_works_on_the_cpu_and_stays_close(make_gpt2_config, process_group):
    config = make_gpt2_config()
    exact, rounded = fsdp_steps.train(config), fsdp_steps.train(config, precision="BF_16")
    assert rounded["losses"] == pytest.approx(exact["losses"], abs=0.02)
    assert rounded["losses"] != exact["losses"]
    assert all(tensor.dtype == torch.float32 for tensor in rounded["final"].values())


@pytest.mark.parametrize(("layers_per_unit", "first_layers"), [(1, ["0", "1", "2"]), (2, ["0", "2"]), (5, ["0"])])
def test_layers_are_grouped_into_units(layers_per_unit, first_layers, make_gpt2_config, process_group):
    model = build_gpt2(**make_gpt2_config(n_layer=3))
    mesh = get_device_mesh(1, 1)
    wrapped = get_fsdp2_wrapped_model(model, ["GPT2Block"], FP_32, mesh, layers_per_fsdp_unit=layers_per_unit)
    assert wrapped is model
    assert isinstance(model, FSDPModule)
    groups = {id(module._get_fsdp_state()): name for name, module in reversed(list(model.transformer["h"].items()))}
    assert sorted(groups.values()) == first_layers


def _units(model: nn.Module) -> dict[str, list[str]]:
    """Name of the first module of each unit of sharding -> names of the parameters in the unit."""
    names = {parameter: name for name, parameter in model.named_parameters()}
    return {
        name: [names[sharded.sharded_param] for sharded in module._get_fsdp_state()._fsdp_param_group.fsdp_params]
        for name, module in model.named_modules()
        if isinstance(module, FSDPModule)
    }


def test_wrapped_blocks_are_units_and_get_the_weights_of_plain_ones(make_gpt2_config, process_group):
    """W1, W13: in the documented order checkpointing, compilation, sharding, initialisation."""
    config = make_gpt2_config()
    model = fsdp_steps.wrap(build_gpt2(**config, use_meta_device=True))
    get_fsdp2_wrapped_model(model, ["GPT2Block"], FP_32, get_device_mesh(1, 1))
    units = _units(model)
    assert list(units) == ["", "transformer.h.0", "transformer.h.1"]
    assert all(name.startswith("transformer.h.0._orig_mod._checkpoint_") for name in units["transformer.h.0"])
    assert len(units[""]) == 3
    initializer = get_composed_model_initializer("gpt2", WeightInitTypes.PLAIN, 0.0, 0.02)
    weights = get_model_state_dict(get_initialized_model(model, initializer))
    expected = get_initialized_model(build_gpt2(**config, use_meta_device=True), initializer).state_dict()
    assert weights["transformer.h.0.attn.q_attn.weight"].full_tensor().std().item() == pytest.approx(0.02, rel=0.05)
    for name, parameter in expected.items():
        if not name.endswith("inv_freq"):
            assert torch.equal(weights[name].full_tensor(), parameter), name


@pytest.mark.parametrize(("layers_per_unit", "is_resharded"), [(1, [True, True, False]), (2, [True, True, False])])
def test_all_but_the_last_unit_are_resharded_after_the_forward_pass(
    layers_per_unit, is_resharded, make_gpt2_config, process_group
):
    """W13: the last unit is the last one of blocks, whatever modules come after it."""
    model = build_gpt2(**make_gpt2_config(n_layer=3))
    get_fsdp2_wrapped_model(model, ["GPT2Block"], FP_32, get_device_mesh(1, 1), layers_per_fsdp_unit=layers_per_unit)
    groups = [block._get_fsdp_state()._fsdp_param_group for block in model.transformer["h"].children()]
    assert [group._reshard_after_forward for group in groups] == is_resharded


def test_blocks_within_blocks_and_each_part_of_a_model_are_sharded(make_gpt2_config, process_group):
    parts = [build_gpt2(**make_gpt2_config(n_layer=1)) for _ in range(2)]
    assert get_fsdp2_wrapped_model(parts, ["GPT2Block", "SwiGLU"], FP_32, get_device_mesh(1, 1)) == parts
    for part in parts:
        units = _units(part)
        assert units["transformer.h.0.mlp"] == [f"transformer.h.0.mlp.{name}.weight" for name in ("W", "V", "W_2")]
        assert len(units["transformer.h.0"]) == 6


def test_an_unknown_block_name_is_refused_and_the_known_ones_listed(make_gpt2_config, process_group):
    model = build_gpt2(**make_gpt2_config())
    with pytest.raises(ConfigError, match=r"the model has no GPTBlock\. It has: .*GPT2Block"):
        get_fsdp2_wrapped_model(model, ["GPTBlock"], FP_32, get_device_mesh(1, 1))
