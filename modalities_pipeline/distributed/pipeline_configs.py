"""Configs of pipeline parallelism: stages of a model on different ranks. Imports no torch."""

from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import AliasChoices, BeforeValidator, Field, model_validator
from pydantic_core import PydanticKnownError

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

_Positive = Annotated[int, Field(strict=True, ge=1)]
_PipelineStages = Annotated[Any, PydanticThirdPartyTypeIF(PIPELINE_STAGE, or_list=True)]

# What torch.distributed.pipelining.schedules.get_schedule_class knows; it does not mind the case.
_SCHEDULES = ("1F1B", "Interleaved1F1B", "GPipe", "LoopedBFS", "InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV")


def _known_schedule(name: Any) -> Any:
    if isinstance(name, str) and name.lower() not in map(str.lower, _SCHEDULES):
        *others, last = map(repr, _SCHEDULES)
        raise PydanticKnownError("enum", {"expected": f"{', '.join(others)} or {last}"})
    return name


ScheduleName = Annotated[
    str,
    BeforeValidator(_known_schedule),
    Field(examples=["1F1B"], description=f"schedule of torch: {', '.join(_SCHEDULES)}"),
]


class StagedPipelineConfig(ComponentConfig):
    """Fields of `staged`."""

    whole_model: PydanticPytorchModuleType
    stages_generator: PydanticStagesGeneratorType
    device_mesh: PydanticDeviceMeshIFType
    local_rank: Annotated[int, Field(strict=True, ge=0)]
    pp_schedule_name: ScheduleName
    num_layers_per_stage: _Positive


class ScheduledPipelineConfig(ComponentConfig):
    """Fields of `scheduled`."""

    loss_fn: PydanticLossIFType
    pp_schedule_name: ScheduleName
    batch_size: Annotated[_Positive, Field(description="samples per rank and step of the pipeline")]
    microbatch_size: Annotated[_Positive, Field(description="samples that pass through a stage together")]
    pp_degree: Annotated[int, Field(strict=True, ge=2, description="number of pipeline ranks")]
    pipeline: PydanticPipelineType

    @model_validator(mode="after")
    def _check_sizes(self) -> Self:
        if are_known(self.batch_size, self.microbatch_size) and self.batch_size % self.microbatch_size:
            message = f"{self.batch_size} is not divisible by microbatch_size ({self.microbatch_size})"
            raise_at_keys(self, [("batch_size", message)])
        return self


class PipelineSelectionTypes(StrEnum):
    """Parts of a pipeline."""

    PP_STAGE = "PP_STAGE"
    MODEL_PART = "MODEL_PART"
    PP_SCHEDULE = "PP_SCHEDULE"


class ComponentSelectorFromPipelineConfig(ComponentConfig):
    """Fields of `selector`."""

    pipeline: PydanticPipelineType
    selection_type: PipelineSelectionTypes


class PipelineConfig(ComponentConfig):
    """Fields of `builder`."""

    pp_stages: _PipelineStages = Field(validation_alias=AliasChoices("pp_stages", "pp_stage"))
    model_parts: PydanticPytorchModuleOrListType = Field(validation_alias=AliasChoices("model_parts", "model_part"))
    pp_schedule: PydanticPipelineType | None = None


class GPT2LLMStagesGeneratorConfig(ComponentConfig):
    """Fields of `gpt2_stages_generator`: embedding and head count as so many layers when stages are made even."""

    num_model_layers: _Positive
    input_layer_equivalence: _Positive = 1
    output_layer_equivalence: _Positive = 1
