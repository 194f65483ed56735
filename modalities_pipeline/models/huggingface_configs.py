"""Config of models of Hugging Face transformers. Imports no torch."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from modalities_pipeline.config.component import ComponentConfig


class HuggingFaceModelTypes(StrEnum):
    """Classes of transformers that load a model."""

    AutoModelForCausalLM = "AutoModelForCausalLM"
    AutoModelForMaskedLM = "AutoModelForMaskedLM"


class HuggingFacePretrainedModelConfig(ComponentConfig):
    """Fields of `huggingface_pretrained_model`."""

    model_type: Annotated[
        HuggingFaceModelTypes, Field(description="class of transformers: for predicting next or masked tokens")
    ]
    model_name: Annotated[Path, Field(description="folder of the model, or its name on the Hugging Face hub")]
    prediction_key: Annotated[str, Field(examples=["logits"], description="key of the output in the predictions")]
    huggingface_prediction_subscription_key: Annotated[
        str, Field(examples=["logits"], description="what to take from the model's own output")
    ]
    sample_key: Annotated[str, Field(examples=["input_ids"], description="key of the token ids in a batch's samples")]
    model_args: Annotated[
        list[Any] | None, Field(description="positional arguments of `from_pretrained` after the name")
    ] = None
    kwargs: Annotated[
        dict[str, Any] | None,
        Field(description="named arguments of `from_pretrained`; without `dtype` the weights are float32"),
    ] = None
