"""Configs of the tokenizers."""

import functools
import logging
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from modalities_pipeline.config.component import ComponentConfig, raise_at_keys
from modalities_pipeline.config.input_paths import MustExist

logger = logging.getLogger(__name__)


class PreTrainedHFTokenizerConfig(ComponentConfig):
    """Fields of `pretrained_hf_tokenizer`; `max_length` alone, without truncation or padding, has no effect."""

    pretrained_model_name_or_path: Annotated[
        str,
        MustExist(may_be_name=True),
        Field(description="folder with tokenizer.json, or name of a model of the Hugging Face hub"),
    ]
    max_length: Annotated[Annotated[int, Field(strict=True, ge=0)] | None, Field(description="in tokens")] = None
    truncation: Annotated[
        bool, Field(description="cut texts at max_length, or without one at the tokenizer's own limit")
    ] = False
    padding: Annotated[
        Literal[False, True, "longest", "max_length", "do_not_pad"],
        Field(description="max_length: pad every text to max_length"),
    ] = False
    special_tokens: Annotated[
        dict[str, str | list[str] | tuple[str, ...]] | None,
        Field(description="name of a special token (pad_token, ...): a token that the vocabulary has already"),
    ] = None


class PreTrainedSPTokenizerConfig(ComponentConfig):
    """Fields of `pretrained_sp_tokenizer`.

    Earlier versions of Modalities had `padding`, `truncation` and `max_length`, too. A SentencePiece tokenizer never
    pads or cuts, so they have no effect, and are not passed on; where a text would have been cut, they are refused.
    """

    tokenizer_model_file: Annotated[str, MustExist(), Field(description="a SentencePiece .model file")]
    padding: Annotated[
        Literal[False, True, "longest", "max_length", "do_not_pad"] | None,
        Field(exclude=True, description="of old configs, changes nothing"),
    ] = None
    truncation: Annotated[
        Literal[False, True, "do_not_truncate"] | None,
        Field(exclude=True, description="of old configs, changes nothing"),
    ] = None
    max_length: Annotated[
        Annotated[int, Field(strict=True, ge=0)] | None,
        Field(exclude=True, description="of old configs, changes nothing"),
    ] = None

    @model_validator(mode="after")
    def _tell_what_changes_nothing(self) -> Self:
        if self.truncation is True and self.max_length is not None:
            message = "a SentencePiece tokenizer never pads or cuts, so no text is cut at max_length; leave the key out"
            raise_at_keys(self, [("truncation", message)])
        given = sorted(self.model_fields_set - {"tokenizer_model_file"})
        if given:
            _warn_once(", ".join(given))
        return self


@functools.cache
def _warn_once(keys: str) -> None:
    """A config is validated when it is checked and again when it is built; one warning is enough."""
    logger.warning(
        "tokenizer/pretrained_sp_tokenizer: %s: no effect, a SentencePiece tokenizer never pads or cuts. Leave it out.",
        keys,
    )
