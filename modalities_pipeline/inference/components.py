"""The components of this folder, as rows of the table of components. Imports nothing but the row."""

from modalities_pipeline.config.entity import ComponentEntity
from modalities_pipeline.config.interfaces import TEXT_INFERENCE_COMPONENT

_FOLDER = "modalities_pipeline.inference"

COMPONENTS: list[ComponentEntity] = [
    ComponentEntity(
        "inference_component",
        "text",
        f"{_FOLDER}.text_inference:TextInferenceComponent",
        f"{_FOLDER}.configs:TextInferenceComponentConfig",
        TEXT_INFERENCE_COMPONENT,
        "continues a prompt with a model, token by token, and prints the text as it comes",
    ),
]
