"""A profiling config."""

from pydantic import BaseModel, ConfigDict

from modalities_pipeline.config.pydantic_if_types import (
    PydanticSteppableComponentIFType,
    PydanticSteppableProfilerIFType,
)


class ProfilingInstantiationModel(BaseModel):
    """Steps a component under a profiler."""

    model_config = ConfigDict(arbitrary_types_allowed=True, protected_namespaces=())

    steppable_component: PydanticSteppableComponentIFType
    profiler: PydanticSteppableProfilerIFType
