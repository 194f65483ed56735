"""What one step of profiling does."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import nn

from modalities_pipeline.dataloading.batch_generator import RandomDatasetBatchGenerator
from modalities_pipeline.exceptions import ConfigError
from modalities_pipeline.loss_functions import CLMCrossEntropyLoss
from modalities_pipeline.models.gpt2 import build_gpt2
from modalities_pipeline.profiling.configs import SteppableForwardPassConfig, SteppableKernelProfilerConfig
from modalities_pipeline.profiling.steppable import SteppableForwardPass

BATCHES = {"dims": {"batch_size": 2, "sequence_length": 8}, "data_type": "int64", "min_val": 0, "max_val": 128}


@pytest.fixture
def model(make_gpt2_config: Callable[..., dict[str, Any]]) -> nn.Module:
    """A tiny model that counts its calls in `num_calls`."""
    model = build_gpt2(**make_gpt2_config(n_layer=1))
    model.num_calls = 0

    def count(*call: Any) -> None:
        model.num_calls += 1

    model.register_forward_hook(count)
    return model


def test_without_a_loss_a_step_is_a_forward_pass(model):
    component = SteppableForwardPass(model, RandomDatasetBatchGenerator(**BATCHES))
    for _ in range(3):
        component.step()
    assert model.num_calls == 3
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("has_optimizer", [False, True])
def test_with_a_loss_gradients_are_made_and_an_optimizer_uses_them(has_optimizer, model):
    before = [parameter.detach().clone() for parameter in model.parameters()]
    calls = []
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(calls.append)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0) if has_optimizer else None
    loss = CLMCrossEntropyLoss("target_ids", "logits")
    SteppableForwardPass(model, RandomDatasetBatchGenerator(**BATCHES), loss, optimizer).step()
    assert len(calls) == len(before)
    assert all(parameter.grad is None for parameter in model.parameters())
    changed = [not torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True)]
    assert any(changed) == has_optimizer


def test_an_optimizer_without_a_loss_is_refused(model):
    generator = RandomDatasetBatchGenerator(**BATCHES)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    with pytest.raises(ValidationError, match="optimizer does nothing without loss_fn"):
        SteppableForwardPassConfig(model=model, dataset_batch_generator=generator, optimizer=optimizer)
    with pytest.raises(ConfigError, match="does nothing without a loss_fn"):
        SteppableForwardPass(model, generator, optimizer=optimizer)


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"profiler_activities": ["GPU"]}, "profiler_activities"),
        ({"profiler_activities": []}, "profiler_activities"),
        ({"num_active_steps": 0}, "num_active_steps"),
        ({"num_wait_steps": -1}, "num_wait_steps"),
        ({"tracked_ranks": [-1]}, "tracked_ranks"),
        ({"num_measurements": 3}, "num_measurements"),
    ],
)
def test_settings_of_profilers_that_make_no_sense_are_refused(changes, key):
    fields = {
        **dict.fromkeys(("num_wait_steps", "num_warmup_steps", "num_active_steps"), 1),
        **dict.fromkeys(("profile_memory", "record_shapes", "with_flops", "with_stack", "with_modules"), True),
        "profiler_activities": ["CPU", "CUDA"],
        "output_folder_path": "out",
    }
    assert SteppableKernelProfilerConfig(**fields).tracked_ranks is None
    assert SteppableKernelProfilerConfig(**{**fields, "tracked_ranks": [], "num_wait_steps": "2"}).num_wait_steps == 2
    with pytest.raises(ValidationError) as caught:
        SteppableKernelProfilerConfig(**{**fields, **changes})
    assert {error["loc"][0] for error in caught.value.errors()} == {key}
