"""A config of which only the model is needed: conversion, and loading what was converted."""

from typing import Self

from pydantic import BaseModel, ConfigDict, model_validator

from modalities_pipeline.config.pydantic_if_types import PydanticPytorchModuleType


class ModelInstantiationModel(BaseModel):
    """A model, or one with the weights of a checkpoint."""

    model_config = ConfigDict(arbitrary_types_allowed=True, protected_namespaces=())

    model: PydanticPytorchModuleType | None = None
    checkpointed_model: PydanticPytorchModuleType | None = None

    @model_validator(mode="after")
    def _has_model(self) -> Self:
        if self.model is None and self.checkpointed_model is None:
            raise ValueError("there is neither 'checkpointed_model' nor 'model'")
        return self
