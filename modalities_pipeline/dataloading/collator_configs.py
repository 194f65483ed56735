"""Configs of the collators."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from modalities_pipeline.config.component import ComponentConfig, are_known
from modalities_pipeline.config.pydantic_if_types import PydanticCollateFnIFType, PydanticTokenizerIFType

OnBadRow = Literal["error", "mask"]


class GPT2LLMCollateFnConfig(ComponentConfig):
    """Fields of `gpt_2_llm_collator`."""

    sample_key: Annotated[
        str, Field(description="name of the tokens in a sample, and of the inputs in a batch", examples=["input_ids"])
    ]
    target_key: Annotated[str, Field(description="name of the targets in a batch", examples=["target_ids"])]


class CoCaCollateFnConfig(ComponentConfig):
    """Fields of `coca_collator`."""

    sample_keys: Annotated[
        list[str],
        Field(examples=[["images", "captions"]], description="entries of a sample that become the samples of a batch"),
    ]
    target_keys: Annotated[
        list[str], Field(examples=[[]], description="entries of a sample that become targets as they are")
    ]
    text_sample_key: Annotated[
        str, Field(description="one of sample_keys; its last token is taken off", examples=["captions"])
    ]
    text_target_key: Annotated[
        str, Field(description="name of the targets that are made from the text", examples=["target_ids"])
    ]

    @model_validator(mode="after")
    def _check_text_keys(self) -> Self:
        keys = self.sample_keys, self.target_keys, self.text_sample_key, self.text_target_key
        fault = fault_of_text_keys(*keys) if are_known(*keys) else None
        if fault:
            raise ValueError(fault)
        return self


def fault_of_text_keys(
    sample_keys: list[str], target_keys: list[str], text_sample_key: str, text_target_key: str
) -> str | None:
    """Why these keys of `coca_collator` do not fit together; None if they do."""
    if text_sample_key not in sample_keys:
        return f"text_sample_key '{text_sample_key}' has to be one of sample_keys ({', '.join(sample_keys)})"
    if text_target_key in target_keys:
        return f"text_target_key '{text_target_key}' must not be one of target_keys: it is made from the text"
    return None


class LossMaskingTokenConfig(ComponentConfig):
    """The tokens before and after every part that is in the loss; they are not in it themselves."""

    b_include_to_loss_token: Annotated[str, Field(min_length=1, description="the token before")]
    e_include_to_loss_token: Annotated[str, Field(min_length=1, description="the token after")]


class LossMaskingCollateFnWrapperConfig(ComponentConfig):
    """Fields of `mask_loss_collator_wrapper`."""

    wrapped_collate_fn: Annotated[PydanticCollateFnIFType, Field(description="makes the batch that is masked")]
    target_keys_to_mask: Annotated[
        list[str], Field(min_length=1, examples=[["target_ids"]], description="names of the targets in a batch")
    ]
    loss_ignore_index: Annotated[int, Field(description="takes the place of what is not in the loss", examples=[-100])]
    mask_tokens: LossMaskingTokenConfig
    tokenizer: Annotated[PydanticTokenizerIFType, Field(description="whose tokens mask_tokens are")]
    on_bad_row: Annotated[
        OnBadRow, Field(description="what happens to a row whose marks do not alternate; not in Modalities")
    ] = "error"
