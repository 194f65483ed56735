"""Trains a tiny FSDP1 or plain model, saves and loads it; run by torchrun it writes what happened to files."""

import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.optim import Optimizer

from modalities_pipeline.batch import InferenceResultBatch
from modalities_pipeline.checkpointing.app_state import AppState
from modalities_pipeline.checkpointing.fsdp1_loading import FSDP1CheckpointLoading, get_fsdp1_checkpointed_optimizer
from modalities_pipeline.checkpointing.fsdp1_saving import FSDP1CheckpointSaving
from modalities_pipeline.checkpointing.strategies import CheckpointingInstruction
from modalities_pipeline.checkpointing.torch_loading import get_checkpointed_model
from modalities_pipeline.distributed.configs import MixedPrecisionSettings, ShardingStrategy
from modalities_pipeline.distributed.env import DistributedEnv, get_rank, get_world_size
from modalities_pipeline.distributed.fsdp1 import get_fsdp1_wrapped_model
from modalities_pipeline.exceptions import CheckpointingError
from modalities_pipeline.loss_functions import CLMCrossEntropyLoss
from modalities_pipeline.models.gpt2 import build_gpt2
from modalities_pipeline.models.initialization import get_composed_model_initializer, get_initialized_model
from modalities_pipeline.models.initialization_configs import WeightInitTypes
from modalities_pipeline.optim.optimizers import get_adam_w
from modalities_pipeline.progress.training_progress import TrainingProgress

GLOBAL_BATCH_SIZE = 4
NUM_STEPS, NUM_STEPS_BEFORE_SAVING = 3, 2
PROGRESS = TrainingProgress(NUM_STEPS_BEFORE_SAVING, 128, NUM_STEPS, 192)


def train(
    config: dict[str, Any], strategy: str | None, precision: str = "NO_MIXED_PRECISION", folder: str | None = None
) -> dict[str, Any]:
    """Train on this process' part of a fixed global batch: a plain model, or wrapped if there is a `strategy`.

    Args:
        config: fields of the model.
        folder: where to save a checkpoint after two steps; the third step is then made by what is loaded from it.

    Returns the full tensors and the losses of the global batch: the same on every rank.
    """
    model: nn.Module = initialized_model(config)
    if strategy is not None:
        if get_rank() > 0:  # so that it shows if the ranks do not start with the weights of rank 0
            for parameter in model.parameters():
                nn.init.ones_(parameter)
        kinds = MixedPrecisionSettings(precision), ShardingStrategy(strategy)
        model = get_fsdp1_wrapped_model(model, True, *kinds, ["GPT2Block"])
    optimizer = make_optimizer(model)
    losses = [_step(model, optimizer, step) for step in range(NUM_STEPS_BEFORE_SAVING)]
    saved = _full_weights(model)
    if strategy is not None and folder is not None:
        _save(model, optimizer, Path(folder))
        paths = json.loads((Path(folder) / "last_checkpoint_info.json").read_text("utf-8"))
        model, optimizer = _load(config, *(Path(path) for path in paths.values()), *kinds)
    losses += [_step(model, optimizer, step) for step in range(NUM_STEPS_BEFORE_SAVING, NUM_STEPS)]
    return {"saved": saved, "final": _full_weights(model), "losses": losses}


def fault_of_a_missing_file(config: dict[str, Any]) -> str | None:
    """What this rank says if there is no checkpoint; only rank 0 looks for it."""
    try:
        _load(config, Path("nowhere"), Path("nowhere.bin"), MixedPrecisionSettings.FP_32, ShardingStrategy.FULL_SHARD)
    except CheckpointingError as error:
        return str(error)
    return None


def initialized_model(config: dict[str, Any]) -> nn.Module:
    """A plain model with weights that its seed decides."""
    initializer = get_composed_model_initializer("gpt2", WeightInitTypes.SCALED, 0.0, 0.02, num_layers=2)
    return get_initialized_model(build_gpt2(**config), initializer)


def make_optimizer(model: nn.Module) -> Optimizer:
    """Two groups, and a large eps, so that rounding in gradients near 0 does not decide the direction of a step."""
    return get_adam_w(1e-2, model, (0.9, 0.95), 1e-4, 0.1, ["embedding", "layernorm"])


def _save(model: nn.Module, optimizer: Optimizer, folder: Path) -> None:
    saving = FSDP1CheckpointSaving(folder, get_rank(), "x")
    saving.run_checkpoint_instruction(CheckpointingInstruction(True), PROGRESS, AppState(model, optimizer))


def _load(
    config: dict[str, Any],
    model_path: Path,
    optimizer_path: Path,
    precision: MixedPrecisionSettings,
    strategy: ShardingStrategy,
) -> tuple[nn.Module, Optimizer]:
    loading = FSDP1CheckpointLoading(get_rank(), ["GPT2Block"], precision, strategy)
    model = get_checkpointed_model(loading, model_path, build_gpt2(**config, use_meta_device=True))
    return model, get_fsdp1_checkpointed_optimizer(loading, optimizer_path, model, make_optimizer(model))


def _step(model: nn.Module, optimizer: Optimizer, step: int) -> float:
    tokens = torch.randint(128, (GLOBAL_BATCH_SIZE, 17), generator=torch.Generator().manual_seed(step))
    part = slice(get_rank(), None, get_world_size())
    predictions = model({"input_ids": tokens[part, :-1]})
    loss_function = CLMCrossEntropyLoss(target_key="targets", prediction_key="logits")
    loss_sum, _ = loss_function.sum_and_count(InferenceResultBatch({"targets": tokens[part, 1:]}, predictions))
    count = tokens[:, 1:].numel()
    # FSDP averages gradients over the ranks.
    (loss_sum / count * get_world_size()).backward()
    optimizer.step()
    optimizer.zero_grad()
    loss = loss_sum.detach()
    if dist.is_initialized():
        dist.all_reduce(loss)
    return (loss / count).item()


def _full_weights(model: nn.Module) -> dict[str, torch.Tensor]:
    state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
    return {name: tensor.clone() for name, tensor in state.items()}


if __name__ == "__main__":
    output, runs = Path(sys.argv[1]), json.loads(sys.argv[2])
    with DistributedEnv():
        results = [train(**run) for run in runs]
        results.append({"fault": fault_of_a_missing_file(runs[0]["config"])})
        torch.save(results, output / f"rank_{get_rank()}.pt")
