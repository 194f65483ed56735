"""Every model runs forward, backward and an optimizer step: alone without torch.distributed, and sharded over two."""

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
import training_steps
from training_steps import BLOCK_NAMES, NUM_CLASSES, build_step, train_one_step

from modalities_pipeline.loss_functions import CLMCrossEntropyLoss
from modalities_pipeline.models.coca_configs import VisionTransformerConfig
from modalities_pipeline.models.vision_transformer import VisionTransformer
from modalities_pipeline.optim.optimizers import get_adam_w

# The contrastive loss is one within each rank's part of the batch, and dropout draws other masks on each rank.
SAME_WHEN_SHARDED = [name for name in BLOCK_NAMES if name not in ("coca", "gpt2_qk_norm")]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", BLOCK_NAMES)
def test_each_model_takes_a_step_in_one_process(name, dtype, data):
    assert not dist.is_initialized()
    components = build_step(name, data)
    components.app_model.to(dtype)
    result = train_one_step(components, dtype)
    assert math.isfinite(result["loss"])
    assert {weight.dtype for weight in result["weights"].values()} == {dtype}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_vision_transformer_takes_a_step_as_a_classifier(dtype):
    sizes = {"img_size": 8, "patch_size": 4, "patch_stride": 4, "n_embd": 32, "n_head": 2, "n_layer": 1}
    keys = {"sample_key": "images", "prediction_key": "scores"}
    model = VisionTransformer(VisionTransformerConfig(**keys, **sizes, n_classes=NUM_CLASSES)).to(dtype)
    optimizer = get_adam_w(0.05, model, (0.9, 0.95), 1e-3, 0.0, [])
    loss = CLMCrossEntropyLoss(target_key="classes", prediction_key="scores")
    result = train_one_step(SimpleNamespace(app_model=model, loss_fn=loss, optimizer=optimizer), dtype)
    assert math.isfinite(result["loss"])


@pytest.fixture(scope="module")
def ranks(run_distributed, data, tmp_path_factory) -> list[dict[tuple[str, str], Any]]:
    """What two processes found: (name, precision) -> results."""
    output = tmp_path_factory.mktemp("steps")
    run_distributed(Path(training_steps.__file__), 2, str(data), str(output))
    return [torch.load(output / f"rank_{rank}.pt") for rank in range(2)]


@pytest.mark.multi_process
@pytest.mark.parametrize("precision", ["FP_32", "BF_16"])
@pytest.mark.parametrize("name", BLOCK_NAMES)
def test_each_model_takes_the_same_step_on_all_ranks_when_sharded(name, precision, ranks):
    first, second = (results[name, precision] for results in ranks)
    assert math.isfinite(first["loss"])
    assert first["loss"] == second["loss"]
    for parameter, weight in first["weights"].items():
        assert weight.dtype is torch.float32
        assert torch.equal(weight, second["weights"][parameter]), parameter


@pytest.mark.multi_process
@pytest.mark.parametrize("name", SAME_WHEN_SHARDED)
def test_a_sharded_step_is_that_of_one_process(name, data, ranks):
    single = train_one_step(build_step(name, data))
    for precision, tolerance in (("FP_32", 1e-5), ("BF_16", 2e-2)):
        assert ranks[0][name, precision]["loss"] == pytest.approx(single["loss"], rel=tolerance)
    for parameter, weight in ranks[0][name, "FP_32"]["weights"].items():
        torch.testing.assert_close(weight, single["weights"][parameter], rtol=1e-4, atol=1e-4, msg=parameter)
