"""Tokenizers of real size; their files are not part of this repository."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from modalities_pipeline.tokenization.adversarial_texts import adversarial_texts
from modalities_pipeline.tokenization.certification import choose_encoder
from modalities_pipeline.tokenization.tokenizers import PreTrainedHFTokenizer, PreTrainedSPTokenizer

_SOURCES = sorted(Path(__file__).parents[1].rglob("*.py"))


@pytest.fixture(scope="module")
def gpt2(large_tokenizers: Path) -> PreTrainedHFTokenizer:
    return PreTrainedHFTokenizer(str(large_tokenizers / "gpt2"))


@pytest.fixture(scope="module")
def sentencepiece_32k(large_tokenizers: Path) -> PreTrainedSPTokenizer:
    return PreTrainedSPTokenizer(str(large_tokenizers / "sentencepiece_dclm" / "en_32k_tokenizer.model"))


def test_gpt2_gives_the_ids_of_modalities(gpt2: PreTrainedHFTokenizer, recorded: list[dict[str, Any]]) -> None:
    expectation = next(entry for entry in recorded if entry["tokenizer"] == "gpt2")
    assert gpt2.vocab_size == gpt2.num_token_ids == expectation["vocab_size"]
    assert gpt2.get_token_id("<|endoftext|>") == gpt2.get_token_id("no such token") == expectation["eod_id"]
    chosen = choose_encoder(gpt2, [text for text, _, _ in expectation["encode"]])
    assert (chosen.encoder.name, chosen.fallback_reason) == ("fastokens", None)
    for text, ids, decoded in expectation["encode"]:
        assert gpt2.tokenize(text) == chosen.encoder.encode([text]).ids.tolist() == ids
        assert gpt2.decode(ids) == decoded


def test_gpt2_is_fast_with_the_same_ids(gpt2: PreTrainedHFTokenizer) -> None:
    texts = [*adversarial_texts(gpt2.added_tokens), *(path.read_text("utf-8") for path in _SOURCES)]
    fast, reference = choose_encoder(gpt2, texts).encoder.encode(texts), gpt2.reference_encoder().encode(texts)
    assert np.array_equal(fast.ids, reference.ids)
    assert np.array_equal(fast.lengths, reference.lengths)


def test_a_large_sentencepiece_model_gives_in_batches_what_it_gives_one_by_one(
    sentencepiece_32k: PreTrainedSPTokenizer,
) -> None:
    assert sentencepiece_32k.vocab_size == 32_768
    texts = [*adversarial_texts(["</s>"]), *(path.read_text("utf-8") for path in _SOURCES[:20])]
    ids, lengths = sentencepiece_32k.reference_encoder().encode(texts)
    one_by_one = [sentencepiece_32k.tokenize(text) for text in texts]
    assert ids.tolist() == [token_id for part in one_by_one for token_id in part]
    assert lengths.tolist() == [len(part) for part in one_by_one]
