"""Pipeline parallelism: each rank has some stages of a model, and micro batches pass through them."""

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.pipelining import PipelineStage

from modalities_pipeline.distributed.configs import ParallelismDegrees
from modalities_pipeline.distributed.mesh import get_mesh_for_parallelism_method
from modalities_pipeline.distributed.pipeline_configs import PipelineSelectionTypes
from modalities_pipeline.distributed.pipeline_running import PipelineSchedule
from modalities_pipeline.distributed.pipeline_schedules import (
    PipelineSchedules,
    check_num_microbatches,
    stage_ids_of_rank,
)
from modalities_pipeline.distributed.pipeline_stages import cut_stages
from modalities_pipeline.distributed.stages_generator import StagesGenerator
from modalities_pipeline.exceptions import ConfigError
from modalities_pipeline.loss_functions import Loss


class Pipeline:
    """The stages of this rank, the models in them, and, if it has one, the schedule that runs them.

    Attributes:
        pp_stages: in ascending order.
        model_parts: the model of each stage.
        pp_schedule: None until `get_scheduled_pipeline` has made one.
    """

    def __init__(
        self, pp_stages: list[PipelineStage], model_parts: list[nn.Module], pp_schedule: PipelineSchedule | None = None
    ) -> None:
        self.pp_stages = pp_stages
        self.model_parts = model_parts
        self.pp_schedule = pp_schedule

    @property
    def has_first_pp_stage(self) -> bool:
        """Whether this rank takes the token ids."""
        return any(stage.is_first for stage in self.pp_stages)

    @property
    def has_last_pp_stage(self) -> bool:
        """Whether this rank computes the loss."""
        return any(stage.is_last for stage in self.pp_stages)


def get_staged_pipeline(
    whole_model: nn.Module,
    stages_generator: StagesGenerator,
    device_mesh: DeviceMesh,
    local_rank: int,
    pp_schedule_name: PipelineSchedules,
    num_layers_per_stage: int,
) -> Pipeline:
    """The stages of this rank along the mesh's dimension pp; they share their modules with `whole_model`.

    Raises:
        ConfigError: the mesh has no dimension pp; the model cannot be cut like that, or it computes its loss itself;
            the schedule needs another number of stages on each rank.
    """
    if getattr(whole_model, "fused_loss_target_key", None) is not None:
        raise ConfigError("pipeline/staged: the schedule computes the loss. Set the model's fused_loss to null.")
    pp_mesh = get_mesh_for_parallelism_method(device_mesh, ParallelismDegrees.PP)
    names = stages_generator.get_stages(num_layers_per_stage, pp_mesh.size())
    own_ids = stage_ids_of_rank(pp_schedule_name, len(names), pp_mesh.size(), pp_mesh.get_local_rank())
    models = cut_stages(whole_model, names)
    kind = device_mesh.device_type
    device = torch.device(kind) if kind == "cpu" else torch.device(kind, local_rank)
    group = pp_mesh.get_group()
    stages = [PipelineStage(models[number], number, len(names), device, group=group) for number in own_ids]
    return Pipeline(stages, [models[number] for number in own_ids])


def get_scheduled_pipeline(
    loss_fn: Loss,
    pp_schedule_name: PipelineSchedules,
    batch_size: int,
    microbatch_size: int,
    pp_degree: int,
    pipeline: Pipeline,
) -> Pipeline:
    """The pipeline with a schedule.

    Raises:
        ConfigError: the pipeline is of another degree, its stages are not those of the schedule, the batch cannot be
            cut into micro batches for it, or the loss is not one between one prediction and one target.
    """
    if batch_size % microbatch_size:
        raise ConfigError(f"pipeline/scheduled: batch_size {batch_size} is not divisible by microbatch_size.")
    num_microbatches = batch_size // microbatch_size
    stage = pipeline.pp_stages[0]
    if stage.group_size != pp_degree:
        raise ConfigError(
            f"pipeline/scheduled: pp_degree is {pp_degree}, but the pipeline has {stage.group_size} ranks. Use "
            "number_conversion/parallel_degree of the mesh."
        )
    check_num_microbatches(pp_schedule_name, num_microbatches, pp_degree)
    own_ids = [stage.stage_index for stage in pipeline.pp_stages]
    wanted_ids = stage_ids_of_rank(pp_schedule_name, stage.num_stages, pp_degree, stage.group_rank)
    if own_ids != wanted_ids:
        raise ConfigError(
            f"pipeline/scheduled: {pp_schedule_name} needs stages {wanted_ids} on this rank, but it has {own_ids}. "
            "Give pipeline/staged the same pp_schedule_name."
        )
    schedule = PipelineSchedule(pipeline.pp_stages, pp_schedule_name, loss_fn, num_microbatches, batch_size)
    return Pipeline(pipeline.pp_stages, pipeline.model_parts, schedule)


def select_from_pipeline(
    pipeline: Pipeline, selection_type: PipelineSelectionTypes
) -> list[PipelineStage] | list[nn.Module] | PipelineSchedule:
    """The stages, the models in them (lists, also of one), or the schedule.

    Raises:
        ConfigError: there is no schedule.
    """
    if selection_type is PipelineSelectionTypes.PP_STAGE:
        return pipeline.pp_stages
    if selection_type is PipelineSelectionTypes.MODEL_PART:
        return pipeline.model_parts
    if pipeline.pp_schedule is None:
        raise ConfigError("pipeline/selector: the pipeline has no schedule. Select from pipeline/scheduled.")
    return pipeline.pp_schedule


def build_pipeline(
    pp_stages: PipelineStage | list[PipelineStage],
    model_parts: nn.Module | list[nn.Module],
    pp_schedule: PipelineSchedule | None = None,
) -> Pipeline:
    """Put models, wrapped or not, into the stages that they were selected from, in the same order.

    Raises:
        ConfigError: there are not as many models as stages.
    """
    stages = pp_stages if isinstance(pp_stages, list) else [pp_stages]
    parts = model_parts if isinstance(model_parts, list) else [model_parts]
    if len(stages) != len(parts):
        raise ConfigError(
            f"pipeline/builder: {len(parts)} model_parts are given for {len(stages)} pp_stages. Select both from the "
            "same pipeline."
        )
    for stage, part in zip(stages, parts, strict=True):
        stage.submod = part
    return Pipeline(stages, parts, pp_schedule)
