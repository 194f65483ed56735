"""Encoders: flat arrays of ids that are those of the tokenizers, text by text."""

import itertools
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from modalities_pipeline.tokenization.adversarial_texts import adversarial_texts
from modalities_pipeline.tokenization.encoders import Encoder, FlatTokens, flatten, temporary_environment, version_of
from modalities_pipeline.tokenization.tokenizer_wrapper import TokenizerWrapper
from modalities_pipeline.tokenization.tokenizers import PreTrainedHFTokenizer, PreTrainedSPTokenizer


def _lists(tokens: FlatTokens) -> list[list[int]]:
    bounds = np.concatenate(([0], np.cumsum(tokens.lengths))).tolist()
    return [tokens.ids[start:end].tolist() for start, end in itertools.pairwise(bounds)]


def _texts(tokenizer: TokenizerWrapper) -> list[str]:
    """The adversarial texts; of the long ones their beginnings, so that one call per text takes no time."""
    return [text[:500] for text in adversarial_texts(tokenizer.added_tokens)]


FLAGS: list[dict[str, Any]] = [
    {},
    {"truncation": True, "max_length": 3},
    {"truncation": True},
    {"max_length": 3},
    {"padding": "max_length", "max_length": 5, "special_tokens": {"pad_token": "<pad>"}},
    {"padding": "max_length", "special_tokens": {"pad_token": "<pad>"}},
    {"padding": "max_length", "truncation": True, "max_length": 4, "special_tokens": {"pad_token": "<pad>"}},
    {"padding": True, "special_tokens": {"pad_token": "<pad>"}},
    {"padding": "longest", "truncation": True, "max_length": 4, "special_tokens": {"pad_token": "<pad>"}},
    {"padding": "do_not_pad"},
]


@pytest.mark.parametrize("flags", FLAGS, ids=str)
def test_the_reference_for_hugging_face_gives_the_ids_of_tokenize(
    tiny_wordlevel_dir: Path, flags: dict[str, Any]
) -> None:
    tokenizer = PreTrainedHFTokenizer(str(tiny_wordlevel_dir), **flags)
    texts = ["hello world the cat sat on the mat .", "a b", "", "x <eod> y", *_texts(tokenizer)]
    encoder = tokenizer.reference_encoder()
    assert (encoder.name, encoder.version) == ("tokenizers", version_of("tokenizers"))
    assert _lists(encoder.encode(texts)) == [tokenizer.tokenize(text) for text in texts]


def test_the_reference_for_byte_level_bpe_gives_the_ids_of_tokenize(tiny_bpe_dir: Path) -> None:
    tokenizer = PreTrainedHFTokenizer(str(tiny_bpe_dir))
    texts = _texts(tokenizer)
    assert _lists(tokenizer.reference_encoder().encode(texts)) == [tokenizer.tokenize(text) for text in texts]


def test_the_reference_for_sentencepiece_gives_the_ids_of_tokenize(tiny_sp_file: Path) -> None:
    tokenizer = PreTrainedSPTokenizer(str(tiny_sp_file))
    texts = _texts(tokenizer)
    encoder = tokenizer.reference_encoder()
    assert (encoder.name, encoder.is_concurrent) == ("sentencepiece", True)
    assert _lists(encoder.encode(texts)) == [tokenizer.tokenize(text) for text in texts]


def test_a_tokenizer_whose_class_does_more_than_its_backend_is_asked_itself(tiny_bpe_dir: Path) -> None:
    tokenizer = PreTrainedHFTokenizer(str(tiny_bpe_dir))

    class Shouting(type(tokenizer.tokenizer)):  # type: ignore[misc]
        def _encode_plus(self, text: Any, *args: Any, **kwargs: Any) -> Any:
            texts = text.upper() if isinstance(text, str) else [part.upper() for part in text]
            return super()._encode_plus(texts, *args, **kwargs)

    tokenizer.tokenizer.__class__ = Shouting
    assert "just a tokenizer.json" in str(tokenizer.fast_encoder())
    expected = PreTrainedHFTokenizer(str(tiny_bpe_dir)).tokenize("RETURN A")
    assert _lists(tokenizer.reference_encoder().encode(["return a"])) == [expected]


@pytest.mark.parametrize("kind", ["hf", "sp"])
def test_no_texts_give_no_ids(kind: str, tiny_wordlevel_dir: Path, tiny_sp_file: Path) -> None:
    tokenizer: TokenizerWrapper = (
        PreTrainedHFTokenizer(str(tiny_wordlevel_dir)) if kind == "hf" else PreTrainedSPTokenizer(str(tiny_sp_file))
    )
    encoder: Encoder = tokenizer.reference_encoder()
    ids, lengths = encoder.encode([])
    assert (ids.shape, lengths.shape) == ((0,), (0,))


def test_flat_ids_keep_empty_texts_and_large_ids() -> None:
    tokens = flatten([[], [1, 2**32 - 1], [], [0]], "I")
    assert _lists(tokens) == [[], [1, 2**32 - 1], [], [0]]
    assert (tokens.ids.dtype, tokens.lengths.dtype) == (np.uint32, np.int64)


def test_an_environment_comes_back_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAS_SET", "old")
    monkeypatch.delenv("WAS_NOT_SET", raising=False)
    inside: list[str] = []

    def fail() -> None:
        with temporary_environment({"WAS_SET": "new", "WAS_NOT_SET": "new"}):
            inside.extend((os.environ["WAS_SET"], os.environ["WAS_NOT_SET"]))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert inside == ["new", "new"]
    assert os.environ["WAS_SET"] == "old"
    assert "WAS_NOT_SET" not in os.environ


def test_an_unknown_library_has_no_version() -> None:
    assert version_of("no-such-library") == "unknown"
