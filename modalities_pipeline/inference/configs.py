"""Configs of the components of this folder. Imports no torch."""

from typing import Annotated

from pydantic import Field, FiniteFloat

from modalities_pipeline.config.component import ComponentConfig
from modalities_pipeline.config.device_names import DeviceName
from modalities_pipeline.config.pydantic_if_types import PydanticPytorchModuleType, PydanticTokenizerIFType


class TextInferenceComponentConfig(ComponentConfig):
    """Fields of `inference_component/text`."""

    model: PydanticPytorchModuleType
    tokenizer: PydanticTokenizerIFType
    prompt_template: Annotated[
        str,
        Field(description="prompt; {name} is a blank that is asked for, {{name}} is text, other braces are, too"),
    ]
    sequence_length: Annotated[
        int, Field(ge=1, description="tokens, prompt included, at which the text ends at the latest")
    ]
    temperature: Annotated[
        Annotated[FiniteFloat, Field(ge=0.0)] | None,
        Field(description="logits are divided by it; 0 or null: the likeliest token is taken"),
    ] = 1.0
    eod_token: Annotated[str | None, Field(description="ends a document; null: none does")] = "<eod>"
    device: Annotated[DeviceName, Field(description="cpu, cuda, or the number of a GPU")]
    top_k: Annotated[
        Annotated[int, Field(strict=True, ge=1)] | None,
        Field(description="number of likeliest tokens to choose among; null: all"),
    ] = None
    top_p: Annotated[
        Annotated[FiniteFloat, Field(gt=0.0, le=1.0)] | None,
        Field(
            description="probability that the likeliest tokens to choose among add up to; null: all are chosen among"
        ),
    ] = None
    seed: Annotated[
        Annotated[int, Field(strict=True)] | None,
        Field(description="the same one gives the same text for the same prompt; null: another text each time"),
    ] = 0
    max_new_tokens: Annotated[
        Annotated[int, Field(strict=True, ge=1)] | None,
        Field(description="tokens, prompt not included, at which the text ends; null: as many as fit"),
    ] = None
