"""What the configs of CoCa refuse before anything is built."""

import pytest
from coca_helpers import coca_config
from pydantic import ValidationError

from modalities_pipeline.models.coca_configs import CoCaConfig


@pytest.mark.parametrize(
    ("vision", "text", "changes", "location", "message"),
    [
        ({"n_head": 3}, {}, {}, ("vision_encoder_config", "n_head"), r"n_embd \(32\) is not divisible by it \(3\)"),
        ({}, {"n_head": 5}, {}, ("text_decoder_config", "n_head"), r"n_embd \(32\) is not divisible by it \(5\)"),
        ({}, {}, {"n_pool_head": 7}, ("n_pool_head",), r"n_embd \(32\) is not divisible by it \(7\)"),
        ({"n_embd": 64}, {}, {}, ("vision_encoder_config",), "has n_embd 64, but the text decoder's is 32"),
        ({"n_classes": 10}, {}, {}, ("vision_encoder_config",), "has n_classes 10, but CoCa needs all tokens"),
        ({"patch_size": 9}, {}, {}, ("vision_encoder_config", "patch_size"), r"9 is larger than the image \(8\)"),
        ({"img_size": [8, 3]}, {}, {}, ("vision_encoder_config", "patch_size"), r"4 is larger than the image \(3\)"),
        ({"dropout": 1.0}, {}, {}, ("vision_encoder_config", "dropout"), "less than 1"),
        (
            {},
            {},
            {"text_cls_prediction_key": "logits"},
            ("text_cls_prediction_key",),
            "'logits' is prediction_key already",
        ),
        ({}, {"sample_key": "images"}, {}, ("text_decoder_config",), "has sample_key 'images', where the images are"),
        ({}, {}, {"seed": -1}, ("seed",), "greater than or equal to 0"),
        ({}, {}, {"use_meta_device": True}, ("use_meta_device",), "not permitted"),
    ],
)
def test_what_does_not_fit_together_is_refused(vision, text, changes, location, message):
    with pytest.raises(ValidationError, match=message) as caught:
        CoCaConfig.model_validate(coca_config(vision, text, **changes))
    assert [fault["loc"] for fault in caught.value.errors()] == [location]
