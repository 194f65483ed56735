"""Pipelines refuse what they cannot run; on one process, as that needs no other rank."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage

from modalities_pipeline.distributed.mesh import get_device_mesh
from modalities_pipeline.distributed.pipeline_configs import PipelineSelectionTypes
from modalities_pipeline.distributed.pipeline_parallel import (
    Pipeline,
    build_pipeline,
    get_scheduled_pipeline,
    get_staged_pipeline,
    select_from_pipeline,
)
from modalities_pipeline.distributed.pipeline_running import PipelineSchedule
from modalities_pipeline.distributed.pipeline_schedules import PipelineSchedules
from modalities_pipeline.distributed.stages_generator import GPT2LLMStagesGenerator
from modalities_pipeline.exceptions import ConfigError, TrainingError
from modalities_pipeline.loss_functions import CLMCrossEntropyLoss, NCELoss

pytestmark = pytest.mark.usefixtures("process_group")

LOSS = CLMCrossEntropyLoss(target_key="target_ids", prediction_key="logits")


class _Model(nn.Module):
    """Logits over 8 tokens for each token id."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(8, 8)

    def forward(self, token_ids: torch.Tensor) -> torch.Tensor:
        return self.table(token_ids)


def _stages(num_stages: int) -> list[PipelineStage]:
    return [PipelineStage(_Model(), number, num_stages, torch.device("cpu")) for number in range(num_stages)]


def _schedule(kind: PipelineSchedules, num_stages: int, loss_fn: Any = LOSS) -> PipelineSchedule:
    return PipelineSchedule(_stages(num_stages), kind, loss_fn, num_microbatches=2, batch_size=4)


def _batch(batch_size: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    token_ids = torch.arange(batch_size * length).reshape(batch_size, length) % 8
    return token_ids, token_ids


def test_a_batch_of_another_shape_is_refused_before_ranks_wait_for_each_other():
    schedule = _schedule(PipelineSchedules.GPIPE, num_stages=1)
    schedule.step(*_batch(4, 5), loss_scale=1.0)
    for shape in ((3, 5), (4, 6)):
        with pytest.raises(TrainingError, match=r"pipeline that takes \(4, 5\)"):
            schedule.step(*_batch(*shape), loss_scale=1.0)
    loss_sum, count = schedule.evaluate(*_batch(4, 6))
    assert loss_sum > 0
    assert count == 24


def test_gradients_of_sharded_stages_that_an_evaluation_would_reset_are_not_lost():
    (stage,) = _stages(1)
    fully_shard(stage.submod, mesh=get_device_mesh(1, 1))
    schedule = PipelineSchedule([stage], PipelineSchedules.GPIPE, LOSS, num_microbatches=2, batch_size=4)
    schedule.step(*_batch(4, 5), loss_scale=1.0)
    with pytest.raises(TrainingError, match="before its gradients were used"):
        schedule.evaluate(*_batch(4, 5))
    stage.submod.zero_grad()
    assert schedule.evaluate(*_batch(4, 5)) == schedule.step(*_batch(4, 5), loss_scale=1.0)


@pytest.mark.parametrize("kind", [PipelineSchedules.ZBV_ZERO_BUBBLE, PipelineSchedules.DUAL_PIPE_V])
def test_a_schedule_that_cannot_evaluate_says_so_instead_of_hanging(kind):
    """W22"""
    with pytest.raises(ConfigError, match=f"{kind} cannot evaluate.* Use one of 1F1B"):
        _schedule(kind, num_stages=2).evaluate(*_batch(4, 5))


def test_a_schedule_that_splits_the_backward_pass_refuses_compiled_stages():
    stages = _stages(2)
    stages[0].submod = torch.compile(stages[0].submod)
    with pytest.raises(ConfigError, match=r"torch refuses ZBVZeroBubble here: .*torch\.compile"):
        PipelineSchedule(stages, PipelineSchedules.ZBV_ZERO_BUBBLE, LOSS, num_microbatches=2, batch_size=4)


def test_a_loss_between_two_predictions_is_refused():
    with pytest.raises(ConfigError, match="loss_fn: NCELoss is not a loss between one prediction and one target"):
        _schedule(PipelineSchedules.GPIPE, 1, NCELoss("a", "b"))


def test_a_batch_that_is_no_multiple_of_the_micro_batch_is_refused():
    """W22"""
    with pytest.raises(ConfigError, match="batch_size 5 is not divisible by microbatch_size"):
        get_scheduled_pipeline(LOSS, PipelineSchedules.GPIPE, 5, 2, 1, Pipeline(_stages(1), [nn.Identity()]))


def test_a_schedule_refuses_a_pipeline_of_another_degree_or_with_other_stages():
    stages = _stages(2)
    pipeline = Pipeline(stages, [stage.submod for stage in stages])
    with pytest.raises(ConfigError, match="pp_degree is 2, but the pipeline has 1 ranks"):
        get_scheduled_pipeline(LOSS, PipelineSchedules.LOOPED_BFS, 4, 1, 2, pipeline)
    with pytest.raises(ConfigError, match="GPipe needs 1 stage on each rank"):
        get_scheduled_pipeline(LOSS, PipelineSchedules.GPIPE, 4, 1, 1, pipeline)
    reversed_pipeline = Pipeline(stages[::-1], pipeline.model_parts)
    with pytest.raises(ConfigError, match=r"needs stages \[0, 1\] on this rank, but it has \[1, 0\]"):
        get_scheduled_pipeline(LOSS, PipelineSchedules.LOOPED_BFS, 4, 1, 1, reversed_pipeline)


def test_stages_need_a_mesh_with_a_dimension_for_them():
    mesh = get_device_mesh(1, 1)
    with pytest.raises(ConfigError, match="no dimension pp"):
        get_staged_pipeline(_Model(), GPT2LLMStagesGenerator(2), mesh, 0, PipelineSchedules.GPIPE, 2)


def test_wrapped_models_take_the_place_of_those_that_were_selected():
    pipeline = Pipeline(_stages(2), [])
    wrapped: list[nn.Module] = [nn.Identity(), nn.Identity()]
    stages: Any = select_from_pipeline(pipeline, PipelineSelectionTypes.PP_STAGE)
    built = build_pipeline(stages, wrapped)
    assert [stage.submod for stage in built.pp_stages] == wrapped
    assert select_from_pipeline(built, PipelineSelectionTypes.MODEL_PART) == wrapped
    assert built.has_first_pp_stage
    assert built.has_last_pp_stage
    with pytest.raises(ConfigError, match="1 model_parts are given for 2 pp_stages"):
        build_pipeline(stages, wrapped[0])
    with pytest.raises(ConfigError, match="the pipeline has no schedule"):
        select_from_pipeline(built, PipelineSelectionTypes.PP_SCHEDULE)
