"""Configs of losses. Imports no torch."""

from collections.abc import Iterator
from typing import Annotated, Self

from pydantic import Field, model_validator

from modalities_pipeline.config.component import ComponentConfig, raise_at_keys
from modalities_pipeline.config.pydantic_if_types import PydanticLossIFType
from modalities_pipeline.optim.numbers import Number

Tag = Annotated[str, Field(min_length=1, description="name of the loss in reports")]


class CLMCrossEntropyLossConfig(ComponentConfig):
    """Fields of `clm_cross_entropy_loss`."""

    target_key: Annotated[
        str, Field(examples=["target_ids"], description="key of the token ids to be predicted, in a batch's targets")
    ]
    prediction_key: Annotated[str, Field(examples=["logits"], description="key of the logits in the predictions")]
    tag: Tag = "CLMCrossEntropyLoss"
    computes_in_fp32: Annotated[
        bool,
        Field(
            description="whether logits are made float32 first; false: computed in the dtype of the logits, as in "
            "Modalities, where a loss in bfloat16 moves in steps of 0.03"
        ),
    ] = True


class NCELossConfig(ComponentConfig):
    """Fields of `nce_loss`."""

    prediction_key1: Annotated[
        str, Field(examples=["vision_cls"], description="key of embeddings (batch, width) in the predictions")
    ]
    prediction_key2: Annotated[
        str, Field(examples=["text_cls"], description="key of the embeddings that belong to them row by row")
    ]
    is_asymmetric: Annotated[bool, Field(description="whether only the first predicts the second")] = True
    temperature: Annotated[Number, Field(gt=0.0, description="divides the scores")] = 1.0
    tag: Tag = "NCELoss"


class WeightedSumLossConfig(ComponentConfig):
    """Fields of `weighted_sum`."""

    losses: Annotated[
        list[PydanticLossIFType],
        Field(
            min_length=1,
            description="means of these are added; terms are counted as by the first",
        ),
    ]
    weights: Annotated[
        list[Number], Field(examples=[[1.0]], description="one for each loss, by which its mean is multiplied")
    ]
    tag: Tag = "WeightedSumLoss"

    @model_validator(mode="after")
    def _check_lengths(self) -> Self:
        raise_at_keys(self, self._faults())
        return self

    def _faults(self) -> Iterator[tuple[str, str]]:
        if len(self.weights) != len(self.losses):
            yield "weights", f"has {len(self.weights)} numbers for {len(self.losses)} losses"
        elif not any(self.weights):
            yield "weights", "one of them must not be 0"
