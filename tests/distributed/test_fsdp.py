"""FSDP2: a sharded run is the unsharded one."""

import json
from pathlib import Path

import fsdp_steps
import pytest
import torch
from torch.distributed.fsdp import FSDPModule

from modalities_pipeline.distributed.configs import FSDP2MixedPrecisionSettings
from modalities_pipeline.distributed.fsdp import get_fsdp2_wrapped_model
from modalities_pipeline.distributed.mesh import get_device_mesh
from modalities_pipeline.exceptions import ConfigError
from modalities_pipeline.models.gpt2 import build_gpt2

SCRIPT = Path(fsdp_steps.__file__)
FP_32 = FSDP2MixedPrecisionSettings.model_validate({"param_dtype": "FP_32", "reduce_dtype": "FP_32"})


def _assert_equal(actual: dict, expected: dict, tolerance: float) -> None:
    assert actual["losses"] == pytest.approx(expected["losses"], abs=tolerance)
    assert actual["norms"] == pytest.approx(expected["norms"], rel=10 * tolerance)
    for name, tensor in expected["final"].items():
        assert torch.allclose(actual["final"][name], tensor, rtol=0, atol=20 * tolerance), name


@pytest.mark.multi_process
@pytest.mark.parametrize(("num_processes", "tied", "replicate_degree"), [(3, True, 1), (4, False, 2)])
def test_sharded_training_equals_training_of_the_plain_model(
    num_processes, tied, replicate_degree, make_gpt2_config, run_distributed, tmp_path
):
    """Same initial weights (B058), norm and clipped step (B052), tie of the head (B063) on any number of ranks."""
    config = make_gpt2_config(use_weight_tying=tied)
    expected = fsdp_steps.train(config)
    settings = json.dumps({"config": config, "replicate_degree": replicate_degree})
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


def test_an_unknown_block_name_is_refused_and_the_known_ones_listed(make_gpt2_config, process_group):
    model = build_gpt2(**make_gpt2_config())
    with pytest.raises(ConfigError, match=r"the model has no GPTBlock\. It has: .*GPT2Block"):
        get_fsdp2_wrapped_model(model, ["GPTBlock"], FP_32, get_device_mesh(1, 1))
