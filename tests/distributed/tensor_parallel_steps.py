"""Trains a tiny model for three steps, tensor parallel or not; run by torchrun it writes what happened to a file."""

import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from modalities_pipeline.batch import InferenceResultBatch
from modalities_pipeline.checkpointing.app_state import AppState
from modalities_pipeline.checkpointing.dcp_folders import write_distributed
from modalities_pipeline.distributed.configs import FSDP2MixedPrecisionSettings, ParallelismDegrees
from modalities_pipeline.distributed.env import DistributedEnv, get_rank, get_world_size
from modalities_pipeline.distributed.fsdp import get_fsdp2_wrapped_model
from modalities_pipeline.distributed.gradients import scale_gradients_
from modalities_pipeline.distributed.mesh import get_data_parallel_mesh, get_device_mesh, get_parallel_rank
from modalities_pipeline.distributed.tensor_parallel import get_gpt2_tensor_parallelized_model
from modalities_pipeline.exceptions import ConfigError
from modalities_pipeline.loss_functions import IGNORE_INDEX, CLMCrossEntropyLoss
from modalities_pipeline.models.gpt2 import build_gpt2
from modalities_pipeline.models.initialization import get_composed_model_initializer, get_initialized_model
from modalities_pipeline.models.initialization_configs import WeightInitTypes
from modalities_pipeline.optim.configs import GradientClippingMode
from modalities_pipeline.optim.gradient_clipping import FSDPGradientClipper
from modalities_pipeline.optim.optimizers import get_adam_w

GLOBAL_BATCH_SIZE = 4


def train(
    config: dict[str, Any], precision: str | None = None, mesh: DeviceMesh | None = None, folder: str | None = None
) -> dict[str, Any]:
    """Train on this process' part of a fixed global batch: split over a mesh, if there is one.

    Args:
        config: fields of the model.
        precision: with it, FSDP2 is put on top of tensor parallelism.
        mesh: with the dimensions dp_shard and tp.
        folder: where to save the last state.

    Returns full tensors, gradients of the first step, and losses and norms of the global batch.
    """
    model: nn.Module = build_gpt2(**config, use_meta_device=True)
    if mesh is not None:
        model = get_gpt2_tensor_parallelized_model(model, mesh)
    if mesh is not None and precision is not None:
        settings = FSDP2MixedPrecisionSettings.model_validate({"param_dtype": precision, "reduce_dtype": "FP_32"})
        model = get_fsdp2_wrapped_model(model, ["GPT2Block"], settings, mesh)
    initializer = get_composed_model_initializer("gpt2", WeightInitTypes.SCALED, 0.0, 0.02, num_layers=2)
    model = get_initialized_model(model, initializer)
    initial = _full_weights(model)
    # A large eps, so that rounding in gradients near 0 does not decide the direction of a step.
    optimizer = get_adam_w(1e-2, model, (0.9, 0.95), 1e-4, 0.1, ["embedding", "layernorm"])
    clipper = FSDPGradientClipper(model, GradientClippingMode.P2_NORM, max_norm=0.5)
    steps = []
    for step in range(3):
        steps.append(_backward(model, step, mesh))
        steps[-1]["norm"] = clipper.clip_gradients().item()
        optimizer.step()
        optimizer.zero_grad()
    if folder is not None:
        write_distributed({"app": AppState(model, optimizer)}, Path(folder))
    return {"initial": initial, "final": _full_weights(model), "steps": steps}


def _backward(model: nn.Module, step: int, mesh: DeviceMesh | None) -> dict[str, Any]:
    """The gradients of a batch's mean loss in two backward passes; returns the loss, and this process' logits."""
    degree = 1 if mesh is None else get_data_parallel_mesh(mesh).size()
    rank = 0 if mesh is None else get_parallel_rank(mesh, ParallelismDegrees.DP_SHARD)
    tokens = torch.randint(128, (GLOBAL_BATCH_SIZE, 17), generator=torch.Generator().manual_seed(step))
    targets = tokens[:, 1:].clone()
    targets[0, :10] = IGNORE_INDEX  # so that data parallel ranks have unequal numbers of targets
    count, logits, total = (targets != IGNORE_INDEX).sum(), [], torch.zeros(())
    for micro_batch in (slice(0, 2), slice(2, 4)):
        inputs, wanted = tokens[micro_batch, :-1][rank::degree], targets[micro_batch][rank::degree]
        predictions = model({"input_ids": inputs})
        loss_function = CLMCrossEntropyLoss(target_key="targets", prediction_key="logits")
        loss_sum, _ = loss_function.sum_and_count(InferenceResultBatch({"targets": wanted}, predictions))
        loss_sum.backward()
        logits.append(predictions["logits"].detach())
        total += loss_sum.detach()
    scale_gradients_(model, degree / count)  # FSDP averages over the data parallel ranks
    if mesh is not None:
        dist.all_reduce(total, group=get_data_parallel_mesh(mesh).get_group())
    gradients = {name: _full(parameter.grad) for name, parameter in model.named_parameters() if step == 0}
    return {"loss": (total / count).item(), "logits": torch.cat(logits), "gradients": gradients}


def _full(tensor: torch.Tensor | None) -> torch.Tensor:
    assert tensor is not None
    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).detach().clone()


def _full_weights(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: _full(parameter) for name, parameter in model.named_parameters()}


def fault_of_different_samples(config: dict[str, Any], mesh: DeviceMesh) -> str | None:
    """What the model says if each rank gives it a sample of its own, in evaluation only."""
    model = get_gpt2_tensor_parallelized_model(build_gpt2(**config), mesh)
    model({"input_ids": torch.zeros(1, 16, dtype=torch.int64)})
    try:
        model.eval()({"input_ids": torch.full((1, 16), get_rank())})
    except ConfigError as error:
        return str(error)
    return None


if __name__ == "__main__":
    output, runs = Path(sys.argv[1]), json.loads(sys.argv[2])
    with DistributedEnv():
        device_mesh = get_device_mesh(-1, get_world_size(), tensor_parallel_degree=2)
        results = [train(**run, mesh=device_mesh) for run in runs]
        results.append({"fault": fault_of_different_samples(runs[0]["config"], device_mesh)})
        torch.save(results, output / f"rank_{get_rank()}.pt")
