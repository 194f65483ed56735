"""Text of tokens that come one by one."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from modalities_pipeline.inference.streaming import TextStream
from modalities_pipeline.tokenization.sentencepiece_tokenizer import PreTrainedSPTokenizer


def _bytes_to_text(token_ids: Sequence[int]) -> str:
    return bytes(token_ids).decode("utf-8", errors="replace")


@pytest.mark.parametrize("text", ["naïve façade", "日本語 🙂🙃 é", "a\u200db", "\n\n  x"])
def test_characters_of_several_tokens_are_given_out_whole(text):
    stream = TextStream(_bytes_to_text, list(b"so: "))
    pieces = [stream.push(byte) for byte in text.encode()]
    assert "".join(pieces) == text
    assert "\ufffd" not in "".join(pieces)
    assert stream.finish() == ""


def test_an_unfinished_character_is_shown_at_the_end_only():
    stream = TextStream(_bytes_to_text, [])
    pieces = [stream.push(byte) for byte in b"a" + "🙂".encode()[:2]]
    assert pieces == ["a", "", ""]
    assert stream.finish() == "\ufffd"


def test_bytes_that_are_no_text_do_not_hold_back_what_follows():
    stream = TextStream(_bytes_to_text, [])
    pieces = [stream.push(byte) for byte in b"a\xffb"]
    assert pieces == ["a", "", "\ufffdb"]


def test_spaces_between_prompt_and_text_are_kept(tiny_sp_file: Path):
    """SentencePiece drops the space at the beginning of a text; the text given out is not the beginning."""
    tokenizer = PreTrainedSPTokenizer(str(tiny_sp_file))
    token_ids = tokenizer.tokenize("the cat sat on the mat and the dog")
    for num_prompt in range(len(token_ids)):
        stream = TextStream(tokenizer.decode, token_ids[:num_prompt])
        text = "".join(stream.push(token_id) for token_id in token_ids[num_prompt:]) + stream.finish()
        assert tokenizer.decode(token_ids[:num_prompt]) + text == tokenizer.decode(token_ids)
