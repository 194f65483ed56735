"""The fast encoder is used only where it proves to give the reference's ids."""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from modalities_pipeline.tokenization import certification
from modalities_pipeline.tokenization.adversarial_texts import adversarial_texts
from modalities_pipeline.tokenization.certification import choose_encoder
from modalities_pipeline.tokenization.encoders import Encoder, FlatTokens
from modalities_pipeline.tokenization.tokenizers import PreTrainedHFTokenizer

SAMPLE = ["def write(path): return the list", "a document of this corpus", "", "last one"]


class WrongEncoder(Encoder):
    """Encodes like another, but for the texts that a function changes the ids of."""

    name = "wrong"
    version = "1"
    is_fast = True

    def __init__(self, right: Encoder, change: Callable[[str, list[int]], list[int]]) -> None:
        self._right = right
        self._change = change
        self.num_calls = 0

    def encode(self, texts: Sequence[str]) -> FlatTokens:
        self.num_calls += 1
        ids = [self._change(text, self._right.encode([text]).ids.tolist()) for text in texts]
        lengths = np.array([len(part) for part in ids], dtype=np.int64)
        return FlatTokens(np.array([token_id for part in ids for token_id in part], dtype=np.uint32), lengths)


@pytest.fixture
def tokenizer(tiny_bpe_dir: Path) -> PreTrainedHFTokenizer:
    return PreTrainedHFTokenizer(str(tiny_bpe_dir))


@pytest.fixture
def use_wrong(
    tokenizer: PreTrainedHFTokenizer, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Callable[[str, list[int]], list[int]]], WrongEncoder]:
    """Function change of (text, ids) -> the encoder that the tokenizer now calls its fast one."""

    def use(change: Callable[[str, list[int]], list[int]]) -> WrongEncoder:
        wrong = WrongEncoder(tokenizer.reference_encoder(), change)
        monkeypatch.setattr(tokenizer, "fast_encoder", lambda: wrong)
        return wrong

    return use


def test_the_fast_encoder_is_chosen_where_nothing_differs(
    tokenizer: PreTrainedHFTokenizer, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        chosen = choose_encoder(tokenizer, SAMPLE)
        choose_encoder(tokenizer, SAMPLE)
    assert (chosen.encoder.name, chosen.fallback_reason) == ("fastokens", None)
    assert [record.getMessage().split(" is ")[0] for record in caplog.records] == [
        f"Documents are tokenized by fastokens {chosen.encoder.version}, which gives the reference's ids on the "
        "adversarial texts and on a sample of the documents."
    ]


@pytest.mark.parametrize("number", [0, 17, -1])
def test_one_wrong_id_in_one_adversarial_text_is_enough(
    tokenizer: PreTrainedHFTokenizer, use_wrong: Callable[..., WrongEncoder], number: int
) -> None:
    texts = [text for text in adversarial_texts(tokenizer.added_tokens) if text]
    use_wrong(lambda text, ids: [*ids[:-1], ids[-1] ^ 1] if text == texts[number] else ids)
    chosen = choose_encoder(tokenizer, SAMPLE)
    assert chosen.encoder.name == "tokenizers"
    assert f"gives other ids than tokenizers for an adversarial text ({texts[number][:40]!r})" in str(
        chosen.fallback_reason
    )


@pytest.mark.parametrize(
    "change", [lambda ids: [*ids[:-1], ids[-1] ^ 1], lambda ids: ids[:-1], lambda ids: [*ids, 0], lambda ids: []]
)
def test_one_wrong_document_of_the_corpus_is_enough(
    tokenizer: PreTrainedHFTokenizer,
    use_wrong: Callable[..., WrongEncoder],
    caplog: pytest.LogCaptureFixture,
    change: Callable[[list[int]], list[int]],
) -> None:
    use_wrong(lambda text, ids: change(ids) if text == SAMPLE[1] else ids)
    with caplog.at_level(logging.INFO):
        chosen = choose_encoder(tokenizer, SAMPLE)
    assert chosen.encoder.name == "tokenizers"
    assert f"for a document of this corpus ({SAMPLE[1]!r})" in str(chosen.fallback_reason)
    assert "not by the fast backend: wrong 1 gives other ids than tokenizers" in caplog.text
    assert choose_encoder(tokenizer, ["other corpus"]).encoder.name == "wrong"


def test_a_token_moved_from_one_document_to_the_next_is_noticed(
    tokenizer: PreTrainedHFTokenizer, use_wrong: Callable[..., WrongEncoder]
) -> None:
    wrong = use_wrong(lambda _, ids: ids)
    right_encode = wrong.encode

    def encode(texts: Sequence[str]) -> FlatTokens:
        tokens = right_encode(texts)
        if list(texts) == SAMPLE:
            tokens.lengths[:2] += (-1, 1)
        return tokens

    wrong.encode = encode  # type: ignore[method-assign]
    assert "for a document of this corpus" in str(choose_encoder(tokenizer, SAMPLE).fallback_reason)


@pytest.mark.parametrize("error", [ValueError("no"), type("PanicException", (BaseException,), {})("no")])
def test_an_encoder_that_fails_is_not_used(
    tokenizer: PreTrainedHFTokenizer, use_wrong: Callable[..., WrongEncoder], error: BaseException
) -> None:
    def fail(text: str, ids: list[int]) -> list[int]:
        if text == SAMPLE[3]:
            raise error
        return ids

    use_wrong(fail)
    chosen = choose_encoder(tokenizer, SAMPLE)
    assert chosen.encoder.name == "tokenizers"
    assert "fails on a document of this corpus" in str(chosen.fallback_reason)


def test_the_adversarial_texts_are_compared_once_per_tokenizer_and_the_documents_each_time(
    tokenizer: PreTrainedHFTokenizer, use_wrong: Callable[..., WrongEncoder], monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = use_wrong(lambda _, ids: ids)
    calls: list[str] = []
    difference = certification._difference
    monkeypatch.setattr(
        certification, "_difference", lambda *arguments: calls.append(arguments[3]) or difference(*arguments)
    )
    for _ in range(3):
        assert choose_encoder(tokenizer, SAMPLE).encoder is wrong
    assert calls == ["an adversarial text", *["a document of this corpus"] * 3]


def test_settings_may_ask_for_the_reference(tokenizer: PreTrainedHFTokenizer) -> None:
    chosen = choose_encoder(tokenizer, SAMPLE, allow_fast=False)
    assert chosen.encoder.name == "tokenizers"
    assert chosen.fallback_reason == "the settings ask for the reference"
