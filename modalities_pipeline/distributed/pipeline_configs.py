"""Configs of pipeline parallelism: stages of a model on different ranks. Imports no torch."""

from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import AliasChoices, BeforeValidator, Field, model_validator

from modalities_pipeline.config.component import ComponentConfig, are_known, raise_at_keys
from modalities_pipeline.config.interfaces import PIPELINE_STAGE
from modalities_pipeline.config.pydantic_if_types import (
    PydanticDeviceMeshIFType,
    PydanticLossIFType,
    PydanticPipelineType,
    PydanticPytorchModuleOrListType,
    PydanticPytorchModuleType,
    PydanticStagesGeneratorType,
    PydanticThirdPartyTypeIF,
)
from modalities_pipeline.config.unbuilt import Unbuilt
from modalities_pipeline.distributed.configs import ParallelismDegrees, static_parallel_degree
from modalities_pipeline.distributed.pipeline_schedules import (
    PipelineSchedules,
    check_num_microbatches,
    stage_ids_of_rank,
)
from modalities_pipeline.distributed.stages_generator import GPT2LLMStagesGenerator, StagesGenerator
from modalities_pipeline.exceptions import ConfigError

_Positive = Annotated[int, Field(strict=True, ge=1)]
_PipelineStages = Annotated[Any, PydanticThirdPartyTypeIF(PIPELINE_STAGE, or_list=True)]
_Schedule = Annotated[
    Any, PydanticThirdPartyTypeIF("modalities_pipeline.distributed.pipeline_running:PipelineSchedule")
]


def _in_any_case(name: Any) -> Any:
    """torch does not mind the case of a schedule's name."""
    if isinstance(name, str):
        return next((schedule for schedule in PipelineSchedules if schedule.lower() == name.lower()), name)
    return name


ScheduleName = Annotated[
    PipelineSchedules,
    BeforeValidator(_in_any_case),
    Field(
        examples=["1F1B"],
        description="schedule of torch. 1F1B and GPipe: one stage on each rank; ZBVZeroBubble and DualPipeV: two, and "
        "they cannot evaluate; the others: one or more. With these two and InterleavedZeroBubble, sharded models keep "
        "their parameters gathered for the backward pass, whatever reshard_after_forward says",
    ),
]


class GPT2LLMStagesGeneratorConfig(ComponentConfig):
    """Fields of `gpt2_stages_generator`: embedding and head count as so many layers when stages are made even."""

    num_model_layers: Annotated[_Positive, Field(description="n_layer of the model")]
    input_layer_equivalence: Annotated[_Positive, Field(description="as how many layers the embeddings count")] = 1
    output_layer_equivalence: Annotated[_Positive, Field(description="as how many layers the head counts")] = 1


class StagedPipelineConfig(ComponentConfig):
    """Fields of `staged`."""

    whole_model: Annotated[
        PydanticPytorchModuleType,
        Field(description="a gpt2 model without weight tying; with use_meta_device no rank has memory for all of it"),
    ]
    stages_generator: Annotated[PydanticStagesGeneratorType, Field(description="where the model may be cut")]
    device_mesh: Annotated[PydanticDeviceMeshIFType, Field(description="with a pipeline_parallel_degree above 1")]
    local_rank: Annotated[
        int, Field(strict=True, ge=0, description="number of this rank's device, ${cuda_env:LOCAL_RANK}")
    ]
    pp_schedule_name: ScheduleName
    num_layers_per_stage: Annotated[
        _Positive, Field(description="most layers of a stage, embeddings and head counted as the generator says")
    ]

    @model_validator(mode="after")
    def _check_stages(self) -> Self:
        raise_at_keys(self, [*self._faults_of_model(), *self._faults_of_stages()])
        return self

    def _faults_of_model(self) -> Iterator[tuple[str, str]]:
        model = self.whole_model.config if isinstance(self.whole_model, Unbuilt) else None
        if getattr(model, "use_weight_tying", None) is True:
            yield "whole_model", "embedding and head are on different stages; set the model's use_weight_tying to false"
        if getattr(model, "fused_loss", None) is not None:
            yield "whole_model", "the schedule computes the loss; set the model's fused_loss to null"
        generator = _known_generator(self.stages_generator)
        planned, actual = getattr(generator, "num_model_layers", None), getattr(model, "n_layer", None)
        if isinstance(planned, int) and isinstance(actual, int) and planned != actual:
            yield "stages_generator", f"its num_model_layers is {planned}, but the model's n_layer is {actual}"

    def _faults_of_stages(self) -> Iterator[tuple[str, str]]:
        pp_size = static_parallel_degree(self.device_mesh, [ParallelismDegrees.PP])
        if pp_size == 1:
            yield "device_mesh", "the mesh needs a pipeline_parallel_degree greater than 1"
        generator = _known_generator(self.stages_generator)
        if pp_size in (None, 1) or generator is None or not are_known(self.num_layers_per_stage):
            return
        try:
            num_stages = generator.num_stages(self.num_layers_per_stage, pp_size)
        except ConfigError as error:
            yield "num_layers_per_stage", str(error)
            return
        yield from _fault("pp_schedule_name", stage_ids_of_rank, self.pp_schedule_name, num_stages, pp_size, 0)


class ScheduledPipelineConfig(ComponentConfig):
    """Fields of `scheduled`."""

    loss_fn: Annotated[PydanticLossIFType, Field(description="between one prediction and one target")]
    pp_schedule_name: ScheduleName
    batch_size: Annotated[_Positive, Field(examples=[8], description="samples per rank and step of the pipeline")]
    microbatch_size: Annotated[_Positive, Field(description="samples that pass through a stage together")]
    pp_degree: Annotated[int, Field(strict=True, ge=2, description="number of pipeline ranks")]
    pipeline: Annotated[PydanticPipelineType, Field(description="the pipeline/builder, or the pipeline/staged")]

    @model_validator(mode="after")
    def _check_sizes(self) -> Self:
        raise_at_keys(self, self._faults_of_sizes())
        return self

    def _faults_of_sizes(self) -> Iterator[tuple[str, str]]:
        loss = self.loss_fn.config if isinstance(self.loss_fn, Unbuilt) else None
        if loss is not None and not (hasattr(loss, "target_key") and hasattr(loss, "prediction_key")):
            message = f"{self.loss_fn.name} is not between one prediction and one target; use clm_cross_entropy_loss"
            yield "loss_fn", message
        if not are_known(self.batch_size, self.microbatch_size):
            return
        if self.batch_size % self.microbatch_size:
            yield "batch_size", f"{self.batch_size} is not divisible by microbatch_size ({self.microbatch_size})"
        elif are_known(self.pp_degree):
            sizes = self.batch_size // self.microbatch_size, self.pp_degree
            yield from _fault("batch_size", check_num_microbatches, self.pp_schedule_name, *sizes)


class PipelineSelectionTypes(StrEnum):
    """Parts of a pipeline."""

    PP_STAGE = "PP_STAGE"
    MODEL_PART = "MODEL_PART"
    PP_SCHEDULE = "PP_SCHEDULE"


class ComponentSelectorFromPipelineConfig(ComponentConfig):
    """Fields of `selector`."""

    pipeline: Annotated[PydanticPipelineType, Field(description="of which a part is taken")]
    selection_type: Annotated[
        PipelineSelectionTypes, Field(description="stages of this rank, the models in them, or the schedule")
    ]


class PipelineConfig(ComponentConfig):
    """Fields of `builder`."""

    pp_stages: _PipelineStages = Field(
        validation_alias=AliasChoices("pp_stages", "pp_stage"),
        examples=[{"instance_key": "pp_stages", "pass_type": "BY_REFERENCE"}],
        description="a pipeline/selector of PP_STAGE",
    )
    model_parts: PydanticPytorchModuleOrListType = Field(
        validation_alias=AliasChoices("model_parts", "model_part"),
        examples=[{"instance_key": "model_parts", "pass_type": "BY_REFERENCE"}],
        description="a pipeline/selector of MODEL_PART, or what wrappers made of it",
    )
    pp_schedule: Annotated[
        _Schedule | None, Field(description="schedule of a pipeline, by pipeline/selector; `scheduled` makes one")
    ] = None


def _known_generator(generator: StagesGenerator | Unbuilt | Any) -> StagesGenerator | None:
    """The generator if it is built, or known from its config."""
    config = generator.config if isinstance(generator, Unbuilt) else None
    if isinstance(config, GPT2LLMStagesGeneratorConfig):
        fields = dict(config)
        return GPT2LLMStagesGenerator(**fields) if are_known(*fields.values()) else None
    return generator if isinstance(generator, StagesGenerator) else None


def _fault(key: str, check: Callable[..., Any], *arguments: Any) -> Iterator[tuple[str, str]]:
    """The fault at `key` that a check raises as `ConfigError`, if it does."""
    try:
        check(*arguments)
    except ConfigError as error:
        yield key, str(error)
