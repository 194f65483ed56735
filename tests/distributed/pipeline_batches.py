"""Runs batches through pipelines of a tiny model, one schedule after the other; run by torchrun on two processes."""

import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from modalities_pipeline.distributed.configs import FSDP2MixedPrecisionSettings
from modalities_pipeline.distributed.env import DistributedEnv, get_rank
from modalities_pipeline.distributed.fsdp import get_fsdp2_wrapped_model
from modalities_pipeline.distributed.mesh import get_device_mesh
from modalities_pipeline.distributed.pipeline_configs import PipelineSelectionTypes
from modalities_pipeline.distributed.pipeline_parallel import (
    Pipeline,
    build_pipeline,
    get_scheduled_pipeline,
    get_staged_pipeline,
    select_from_pipeline,
)
from modalities_pipeline.distributed.pipeline_schedules import PipelineSchedules
from modalities_pipeline.distributed.stages_generator import GPT2LLMStagesGenerator
from modalities_pipeline.loss_functions import IGNORE_INDEX, CLMCrossEntropyLoss
from modalities_pipeline.models.gpt2 import build_gpt2
from modalities_pipeline.models.initialization import get_composed_model_initializer, get_initialized_model
from modalities_pipeline.models.initialization_configs import WeightInitTypes

BATCH_SIZE = 4
LOSS = CLMCrossEntropyLoss(target_key="target_ids", prediction_key="logits")


def batches() -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Two batches whose micro batches have unequal numbers of targets that count."""
    tokens = torch.randint(128, (2, BATCH_SIZE, 17), generator=torch.Generator().manual_seed(0))
    inputs, targets = tokens[..., :-1], tokens[..., 1:].clone()
    targets[0, 0, :15] = IGNORE_INDEX
    targets[1, 1:3] = IGNORE_INDEX
    return list(zip(inputs, targets, strict=True))


def num_targets() -> int:
    """How many targets count in both batches."""
    return sum(int((targets != IGNORE_INDEX).sum()) for _, targets in batches())


def initialized(model: nn.Module | list[nn.Module]) -> Any:
    """The model, or its parts, with weights that depend on their names only."""
    initializer = get_composed_model_initializer("gpt2", WeightInitTypes.SCALED, 0.0, 0.1, num_layers=2)
    return get_initialized_model(model, initializer)


def make_pipeline(config: dict[str, Any], schedule: PipelineSchedules, is_sharded: bool) -> Pipeline:
    """A scheduled pipeline over the two ranks, wired as in a YAML file."""
    mesh = get_device_mesh(1, 2, pipeline_parallel_degree=2)
    generator = GPT2LLMStagesGenerator(config["n_layer"])
    staged = get_staged_pipeline(
        whole_model=build_gpt2(**config, use_meta_device=True),
        stages_generator=generator,
        device_mesh=mesh,
        local_rank=get_rank(),
        pp_schedule_name=schedule,
        num_layers_per_stage=2 if schedule.takes_one_stage else 1,
    )
    parts: Any = select_from_pipeline(staged, PipelineSelectionTypes.MODEL_PART)
    if is_sharded:
        settings = FSDP2MixedPrecisionSettings.model_validate({"param_dtype": "FP_32", "reduce_dtype": "FP_32"})
        parts = get_fsdp2_wrapped_model(parts, ["GPT2Block"], settings, mesh)
    built = build_pipeline(select_from_pipeline(staged, PipelineSelectionTypes.PP_STAGE), parts)
    pipeline = get_scheduled_pipeline(LOSS, schedule, BATCH_SIZE, 1, 2, built)
    initialized(select_from_pipeline(pipeline, PipelineSelectionTypes.MODEL_PART))
    return pipeline


def run(pipeline: Pipeline) -> list[dict[str, Any]]:
    """Twice: evaluate if that is possible, then accumulate the gradients of two batches."""
    schedule: Any = pipeline.pp_schedule
    rounds = []
    for _ in range(2):
        for part in pipeline.model_parts:
            part.zero_grad()
        can_evaluate = schedule.kind.can_evaluate
        evaluated = [total.item() for total in schedule.evaluate(*batches()[0])] if can_evaluate else None
        totals = [schedule.step(*batch, loss_scale=1 / num_targets()) for batch in batches()]
        parameters = [item for part in pipeline.model_parts for item in part.named_parameters()]
        rounds.append(
            {
                "evaluated": evaluated,
                "totals": [[total.item() for total in pair] for pair in totals],
                "gradients": {name: _full(parameter.grad).clone() for name, parameter in parameters},
            }
        )
    return rounds


def _full(gradient: torch.Tensor) -> torch.Tensor:
    return gradient.full_tensor() if isinstance(gradient, DTensor) else gradient


if __name__ == "__main__":
    output, model_config = Path(sys.argv[1]), json.loads(sys.argv[2])
    with DistributedEnv():
        results = {}
        for kind in PipelineSchedules:
            for is_sharded in (False, True):
                results[kind.value, is_sharded] = run(make_pipeline(model_config, kind, is_sharded))
        torch.save(results, output / f"rank_{get_rank()}.pt")
