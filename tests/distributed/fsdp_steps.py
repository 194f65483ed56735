"""Trains a tiny model for three steps, sharded or not; run by torchrun it writes what happened to a file."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from wrapping_helpers import compile_eagerly

from modalities_pipeline.batch import InferenceResultBatch
from modalities_pipeline.distributed.activation_checkpointing import get_activation_checkpointed_model
from modalities_pipeline.distributed.compilation import get_compiled_model
from modalities_pipeline.distributed.configs import FSDP2MixedPrecisionSettings
from modalities_pipeline.distributed.env import DistributedEnv, get_rank, get_world_size
from modalities_pipeline.distributed.fsdp import get_fsdp2_wrapped_model
from modalities_pipeline.distributed.mesh import get_device_mesh
from modalities_pipeline.distributed.wrapping_configs import ActivationCheckpointingVariants, FullACParams
from modalities_pipeline.loss_functions import IGNORE_INDEX, CLMCrossEntropyLoss
from modalities_pipeline.models.gpt2 import build_gpt2
from modalities_pipeline.models.initialization import get_composed_model_initializer, get_initialized_model
from modalities_pipeline.models.initialization_configs import WeightInitTypes
from modalities_pipeline.optim.configs import GradientClippingMode
from modalities_pipeline.optim.gradient_clipping import FSDPGradientClipper
from modalities_pipeline.optim.optimizers import get_adam_w

GLOBAL_BATCH_SIZE = 4


def train(
    config: dict[str, Any], precision: str = "FP_32", replicate_degree: int = 1, is_wrapped: bool = False
) -> dict[str, Any]:
    """Train on this process' part of a fixed global batch, sharded if there is a process group.

    With `is_wrapped` the blocks have activation checkpointing and are compiled, but run without C++.

    Returns full tensors and the losses and norms of the global batch: the same on every rank.
    """
    model: nn.Module = build_gpt2(**config, use_meta_device=True)
    if is_wrapped:
        model = wrap(model)
    if dist.is_initialized():
        model = _shard(model, precision, replicate_degree)
    initializer = get_composed_model_initializer("gpt2", WeightInitTypes.SCALED, 0.0, 0.02, num_layers=2)
    model = get_initialized_model(model, initializer)
    initial = _full_weights(model)
    # A large eps, so that rounding in gradients near 0 does not decide the direction of a step.
    optimizer = get_adam_w(1e-2, model, (0.9, 0.95), 1e-4, 0.1, ["embedding", "layernorm"])
    clipper = FSDPGradientClipper(model, GradientClippingMode.P2_NORM, max_norm=0.5)
    losses, norms = zip(*(_step(model, optimizer, clipper, step) for step in range(3)), strict=True)
    return {"initial": initial, "final": _full_weights(model), "losses": list(losses), "norms": list(norms)}


def wrap(model: nn.Module) -> nn.Module:
    """Checkpoint the activations of all blocks, then compile them."""
    full = ActivationCheckpointingVariants.FULL_ACTIVATION_CHECKPOINTING
    get_activation_checkpointed_model(full, "transformer.h", model, FullACParams())
    with pytest.MonkeyPatch.context() as monkeypatch:
        compile_eagerly(monkeypatch)
        return get_compiled_model(model, ["GPT2Block"])


def _shard(model: nn.Module, precision: str, replicate_degree: int) -> nn.Module:
    mesh = get_device_mesh(-1, get_world_size(), data_parallel_replicate_degree=replicate_degree)
    settings = FSDP2MixedPrecisionSettings.model_validate({"param_dtype": precision, "reduce_dtype": "FP_32"})
    return get_fsdp2_wrapped_model(model, ["GPT2Block"], settings, mesh)


def _step(
    model: nn.Module, optimizer: torch.optim.Optimizer, clipper: FSDPGradientClipper, step: int
) -> tuple[float, float]:
    generator = torch.Generator().manual_seed(step)
    tokens = torch.randint(128, (GLOBAL_BATCH_SIZE, 17), generator=generator)
    targets = tokens[:, 1:].clone()
    targets[0, :10] = IGNORE_INDEX  # so that ranks have unequal numbers of targets
    part = slice(get_rank(), None, get_world_size())
    predictions = model({"input_ids": tokens[part, :-1]})
    loss_function = CLMCrossEntropyLoss(target_key="targets", prediction_key="logits")
    loss_sum, _ = loss_function.sum_and_count(InferenceResultBatch({"targets": targets[part]}, predictions))
    count = (targets != IGNORE_INDEX).sum()
    # FSDP averages gradients over the ranks.
    (loss_sum / count * get_world_size()).backward()
    norm = clipper.clip_gradients()
    optimizer.step()
    optimizer.zero_grad()
    loss = loss_sum.detach()
    if dist.is_initialized():
        dist.all_reduce(loss)
    return (loss / count).item(), norm.item()


def _full_weights(model: nn.Module) -> dict[str, torch.Tensor]:
    state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=False))
    return {name: tensor.clone() for name, tensor in state.items()}


if __name__ == "__main__":
    output, settings = Path(sys.argv[1]), json.loads(sys.argv[2])
    with DistributedEnv():
        result = train(**settings)
        torch.save(result, output / f"rank_{get_rank()}.pt")
