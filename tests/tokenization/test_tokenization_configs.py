"""What the configs of tokenizers take."""

import logging
from pathlib import Path

import pytest
from pydantic import ValidationError

from modalities_pipeline.config.factory import ComponentFactory
from modalities_pipeline.config.registry import Registry
from modalities_pipeline.tokenization import configs
from modalities_pipeline.tokenization.configs import PreTrainedHFTokenizerConfig, PreTrainedSPTokenizerConfig


@pytest.mark.parametrize("padding", [False, True, "longest", "max_length", "do_not_pad"])
def test_padding_of_hugging_face_is_a_kind_of_padding(padding):
    fields = {"pretrained_model_name_or_path": "x", "padding": padding}
    assert PreTrainedHFTokenizerConfig.model_validate(fields).padding == padding
    with pytest.raises(ValidationError, match="padding"):
        PreTrainedHFTokenizerConfig.model_validate({**fields, "padding": "max_lenght"})


@pytest.mark.parametrize(
    "old",
    [
        *({"padding": False, "truncation": False}, {"padding": "do_not_pad"}, {"truncation": None, "max_length": 512}),
        *({"padding": True}, {"padding": "max_length", "max_length": 512}, {"truncation": True}),
    ],
)
def test_old_keys_of_sentencepiece_that_change_nothing_are_accepted_and_named_once(old, caplog):
    configs._warn_once.cache_clear()
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            PreTrainedSPTokenizerConfig.model_validate({"tokenizer_model_file": "x", **old})
    (record,) = caplog.records
    assert f"{', '.join(sorted(old))}: no effect, a SentencePiece tokenizer never pads or cuts" in record.getMessage()


@pytest.mark.parametrize(
    ("old", "key"), [({"truncation": True, "max_length": 512}, "truncation"), ({"padding": "left"}, "padding")]
)
def test_old_keys_of_sentencepiece_that_would_change_ids_are_refused(old, key):
    with pytest.raises(ValidationError) as error:
        PreTrainedSPTokenizerConfig.model_validate({"tokenizer_model_file": "x", **old})
    assert {fault["loc"] for fault in error.value.errors()} == {(key,)}


def test_a_config_without_old_keys_is_taken_in_silence(caplog):
    PreTrainedSPTokenizerConfig.model_validate({"tokenizer_model_file": "x"})
    assert not caplog.records


def test_a_sentencepiece_tokenizer_is_built_from_an_old_config(tiny_sp_file: Path):
    config = {"tokenizer_model_file": str(tiny_sp_file), "padding": False, "truncation": False, "max_length": 51200000}
    node = {"component_key": "tokenizer", "variant_key": "pretrained_sp_tokenizer", "config": config}
    tokenizer = ComponentFactory(Registry()).build_component(node)
    assert tokenizer.decode(tokenizer.tokenize("a b")) == "a b"
