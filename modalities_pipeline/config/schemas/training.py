"""A training config: the components that are top-level keys, and what has to hold between them."""

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict

from modalities_pipeline.config import pydantic_if_types as types
from modalities_pipeline.config.schemas.findings import Finding
from modalities_pipeline.config.schemas.settings import TrainingSettings
from modalities_pipeline.config.schemas.training_checks import check_training


class TrainingComponentsInstantiationModel(BaseModel):
    """The components of a training, as top-level keys; other keys are only there to be referred to."""

    model_config = ConfigDict(arbitrary_types_allowed=True, protected_namespaces=())

    settings: TrainingSettings
    app_state: types.PydanticAppStateType
    loss_fn: types.PydanticLossIFType
    train_dataset: types.PydanticDatasetIFType
    train_dataloader: types.PydanticLLMDataLoaderIFType
    eval_dataloaders: list[types.PydanticLLMDataLoaderIFType]
    progress_subscriber: types.PydanticMessageSubscriberIFType
    evaluation_subscriber: types.PydanticMessageSubscriberIFType
    checkpoint_saving: types.PydanticCheckpointSavingIFType
    gradient_clipper: types.PydanticGradientClipperIFType
    model_raw: types.PydanticPytorchModuleType
    profiler: types.PydanticSteppableProfilerIFType | None = None
    mfu_calculator: types.PydanticMFUCalculatorABCType | None = None
    scheduled_pipeline: types.PydanticPipelineType | None = None
    device_mesh: types.PydanticDeviceMeshIFType | None = None

    @classmethod
    def cross_checks(cls, sections: Mapping[str, Any]) -> Iterator[Finding]:
        """What is wrong between sections (see `training_checks`), before anything is built and after."""
        yield from check_training(sections)
