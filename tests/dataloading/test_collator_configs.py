"""What the configs of collators take."""

import pytest
from pydantic import ValidationError

from modalities_pipeline.config.interfaces import COLLATE_FN, TOKENIZER
from modalities_pipeline.config.unbuilt import Unbuilt
from modalities_pipeline.dataloading.collator_configs import (
    CoCaCollateFnConfig,
    GPT2LLMCollateFnConfig,
    LossMaskingCollateFnWrapperConfig,
)

COLLATOR = Unbuilt("collate_fn", "gpt_2_llm_collator", COLLATE_FN)
WORDS = Unbuilt("tokenizer", "pretrained_hf_tokenizer", TOKENIZER)
MASKING = {
    "wrapped_collate_fn": COLLATOR,
    "target_keys_to_mask": ["target_ids"],
    "loss_ignore_index": -100,
    "mask_tokens": {"b_include_to_loss_token": "<b>", "e_include_to_loss_token": "<e>"},
    "tokenizer": WORDS,
}


def test_keys_are_text():
    with pytest.raises(ValidationError, match="target_key"):
        GPT2LLMCollateFnConfig.model_validate({"sample_key": "input_ids", "target_key": 1})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"text_sample_key": "text"}, r"'text' has to be one of sample_keys \(images, captions\)"),
        ({"target_keys": ["target_ids"]}, "'target_ids' must not be one of target_keys"),
    ],
)
def test_the_text_of_images_is_a_sample_and_its_targets_are_made_from_it(change, message):
    fields = {
        "sample_keys": ["images", "captions"],
        "target_keys": [],
        "text_sample_key": "captions",
        "text_target_key": "target_ids",
    }
    assert CoCaCollateFnConfig.model_validate(fields)
    with pytest.raises(ValidationError, match=message):
        CoCaCollateFnConfig.model_validate({**fields, **change})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"wrapped_collate_fn": WORDS}, "has to be a CollateFnIF, but tokenizer/pretrained_hf_tokenizer is"),
        ({"tokenizer": COLLATOR}, "has to be a TokenizerWrapper"),
        ({"target_keys_to_mask": []}, "target_keys_to_mask"),
        ({"on_bad_row": "ignore"}, "'error' or 'mask'"),
        ({"mask_tokens": {"b_include_to_loss_token": "<b>", "e_include_to_loss_tokne": "<e>"}}, "e_include_to_loss"),
        ({"mask_tokens": {"b_include_to_loss_token": "", "e_include_to_loss_token": "<e>"}}, "b_include_to_loss_token"),
    ],
)
def test_loss_masking_that_cannot_work_is_refused(change, message):
    """B077, B078"""
    assert LossMaskingCollateFnWrapperConfig.model_validate(MASKING).on_bad_row == "error"
    with pytest.raises(ValidationError, match=message):
        LossMaskingCollateFnWrapperConfig.model_validate({**MASKING, **change})
