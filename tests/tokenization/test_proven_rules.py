"""The fast backend is allowed for rules that it was proven to follow, and for no others."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

from modalities_pipeline.tokenization.certification import choose_encoder
from modalities_pipeline.tokenization.contraction_texts import contraction_texts
from modalities_pipeline.tokenization.encoders import HuggingFaceEncoder
from modalities_pipeline.tokenization.fast_backend import FastokensEncoder, fast_encoder_of
from modalities_pipeline.tokenization.proven_rules import unproven_rule
from modalities_pipeline.tokenization.tokenizers import PreTrainedHFTokenizer

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_WORD = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_END = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_SUFFIX = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
O200K = (
    rf"{_WORD}*{_END}+{_SUFFIX}|{_WORD}+{_END}*{_SUFFIX}|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)


def _byte_level(use_regex: bool = False, add_prefix_space: bool = False) -> Any:
    return pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space, use_regex=use_regex)


def _split(pattern: str, behavior: str = "isolated") -> Any:
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), behavior), _byte_level()])


PROVEN = {
    "GPT-2": (None, _byte_level(use_regex=True)),
    "GPT-2 with a space before": (None, _byte_level(use_regex=True, add_prefix_space=True)),
    "bytes": (None, _byte_level()),
    "digits": (None, pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), _byte_level(True)])),
    "Llama 3": (None, _split(LLAMA3)),
    "Qwen 2": (normalizers.NFC(), _split(QWEN2)),
}
UNPROVEN = {
    "GPT-4o": (None, _split(O200K)),
    "GPT-2 as a pattern": (None, _split(GPT2)),
    "a pattern taken out": (None, _split(LLAMA3, "removed")),
    "a space before": (
        None,
        pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated"), _byte_level(add_prefix_space=True)]),
    ),
    "a pattern replaced": (normalizers.Replace(Regex(r"\s+"), " "), _byte_level(use_regex=True)),
    "lower case": (normalizers.Lowercase(), _byte_level(use_regex=True)),
    "punctuation": (None, pre_tokenizers.Sequence([pre_tokenizers.Punctuation(), _byte_level(True)])),
}


@pytest.fixture
def with_rules() -> Any:
    """Function (normalizer, pre-tokenizer) -> a `tokenizers.Tokenizer` with these rules that merges contractions."""

    def change(normalizer: Any, pre_tokenizer: Any) -> Tokenizer:
        words = ["se", "me", "'s", "'m"]
        byte_letters = dict.fromkeys(pre_tokenizers.ByteLevel.alphabet())
        vocabulary = {token: number for number, token in enumerate([*byte_letters, *words, "'se", "'me"])}
        merges = [("s", "e"), ("m", "e"), ("'", "s"), ("'", "m"), ("'", "se"), ("'", "me")]
        tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
        tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, pre_tokenizer
        return tokenizer

    return change


@pytest.mark.parametrize("name", PROVEN)
def test_the_common_rules_are_proven(name: str, with_rules: Any) -> None:
    tokenizer = with_rules(*PROVEN[name])
    assert unproven_rule(tokenizer.to_str()) is None
    fast = fast_encoder_of(tokenizer)
    assert isinstance(fast, FastokensEncoder)
    texts = contraction_texts()
    found, expected = fast.encode(texts), HuggingFaceEncoder(tokenizer).encode(texts)
    assert np.array_equal(found.ids, expected.ids)
    assert np.array_equal(found.lengths, expected.lengths)


@pytest.mark.parametrize("with_prefix", [False, True])
def test_rules_of_models_that_fall_back_to_bytes_are_proven(with_prefix: bool) -> None:
    marks = [chr(0x2581), "a", "b", "'", "s", f"a{chr(0x2581)}", "'s"]
    vocabulary = {token: number for number, token in enumerate([*(f"<0x{byte:02X}>" for byte in range(256)), *marks])}
    merges = [("a", chr(0x2581)), ("'", "s")]
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, byte_fallback=True, fuse_unk=True))
    replace = normalizers.Replace(" ", chr(0x2581))
    if with_prefix:  # as Llama 2 has it
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(chr(0x2581)), replace])
    else:  # as Gemma has it
        tokenizer.normalizer = replace
        tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    fast = fast_encoder_of(tokenizer)
    assert isinstance(fast, FastokensEncoder)
    texts = contraction_texts()
    assert np.array_equal(fast.encode(texts).ids, HuggingFaceEncoder(tokenizer).encode(texts).ids)


@pytest.mark.parametrize("name", UNPROVEN)
def test_other_rules_are_left_to_the_reference(name: str, with_rules: Any) -> None:
    reason = str(fast_encoder_of(with_rules(*UNPROVEN[name])))
    assert "is not proven to give the reference's ids" in reason
    assert reason.startswith(("its normalizer is", "its pre-tokenizer is"))


def test_whole_words_and_affixes_are_left_to_the_reference(with_rules: Any) -> None:
    tokenizer = with_rules(*PROVEN["GPT-2"])
    content = json.loads(tokenizer.to_str())
    content["model"]["end_of_word_suffix"] = "</w>"
    assert unproven_rule(json.dumps(content)) == "its model has the key end_of_word_suffix"
    content["model"]["type"] = "Unigram"
    assert unproven_rule(json.dumps(content)) == "its model is Unigram"


@pytest.mark.parametrize("flag", ["single_word", "lstrip", "rstrip"])
def test_added_tokens_that_look_at_their_neighbours_are_left_to_the_reference(with_rules: Any, flag: str) -> None:
    """Where several of them meet, the backend was seen to choose another one."""
    tokenizer = with_rules(*PROVEN["GPT-2"])
    tokenizer.add_tokens([AddedToken("se")])
    assert unproven_rule(tokenizer.to_str()) is None
    tokenizer.add_tokens([AddedToken("me", **{flag: True})])
    assert unproven_rule(tokenizer.to_str()) == f"its added token 'me' has the flag {flag}"


@pytest.mark.parametrize("name", ["GPT-4o", "GPT-2 as a pattern"])
def test_the_texts_tell_engines_apart_where_the_rules_do_not(name: str, with_rules: Any) -> None:
    """Known differences of the backend: the second line of defence would find them, too."""
    tokenizer = with_rules(*UNPROVEN[name])
    texts = contraction_texts()
    found, expected = FastokensEncoder(tokenizer.to_str()).encode(texts), HuggingFaceEncoder(tokenizer).encode(texts)
    assert not (np.array_equal(found.ids, expected.ids) and np.array_equal(found.lengths, expected.lengths))


def test_a_tokenizer_folder_with_unproven_rules_gets_the_reference(with_rules: Any, tmp_path: Path) -> None:
    with_rules(*UNPROVEN["GPT-4o"]).save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    tokenizer = PreTrainedHFTokenizer(str(tmp_path))
    chosen = choose_encoder(tokenizer, ["o'\u017f'se"])
    assert chosen.encoder.name == "tokenizers"
    assert "its pre-tokenizer is" in str(chosen.fallback_reason)
    assert chosen.encoder.encode(["o'\u017f'se"]).ids.tolist() == tokenizer.tokenize("o'\u017f'se")
