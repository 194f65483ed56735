"""Which tokenizers the fast backend is allowed for: those whose rules it was proven to follow.

A test on texts finds only the differences that somebody thought of. Where the backend hands a pattern to a general
engine for regular expressions, engines differ in corners: which letters are the same in another case (U+017F is an "s"
for some), which characters are blanks (U+180E was one). So only rules are allowed for which more than a million random
texts full of such corners, and every character of Unicode, gave the reference's ids. Everything else is left to the
reference, which is slower and never wrong.
"""

import json
from collections.abc import Mapping
from typing import Any

import orjson

_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_PROVEN_PATTERNS = frozenset(
    rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits}|{_REST}"
    for digits in (r"\p{N}{1,3}", r"\p{N}")  # of cl100k and Llama 3; of Qwen 2 and 3
)

_PLAIN_BYTES: dict[str, Any] = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}
_GPT2_WORDS: dict[str, Any] = {**_PLAIN_BYTES, "use_regex": True}
_PROVEN_SPLITS: list[dict[str, Any]] = [
    {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    for pattern in sorted(_PROVEN_PATTERNS)
]
_DIGITS: list[dict[str, Any]] = [{"type": "Digits", "individual_digits": individual} for individual in (False, True)]
_PROVEN_PRE_TOKENIZERS: list[list[dict[str, Any]]] = [
    [],
    [_PLAIN_BYTES],
    [_GPT2_WORDS],
    [{**_GPT2_WORDS, "add_prefix_space": True}],
    *([digits, _GPT2_WORDS] for digits in _DIGITS),
    *([split, _PLAIN_BYTES] for split in _PROVEN_SPLITS),
    [{"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}],
]
_PROVEN_NORMALIZERS = [[], ["NFC"], ["Replace"], ["Prepend", "Replace"]]
_IRRELEVANT = "trim_offsets"
_MAX_SHOWN_CHARACTERS = 120


_UNPROVEN_FLAGS = ("single_word", "lstrip", "rstrip")


def unproven_rule(tokenizer_json: str) -> str | None:
    """The first rule of a `tokenizer.json` that the fast backend was not proven to follow, in words; None if none is.

    Proven are BPE models with, before them:

    - normalizers: none; NFC; Replace of a fixed text, with Prepend before it or without;
    - pre-tokenizers: none; ByteLevel with the split of GPT-2, alone or behind Digits; ByteLevel without it, alone or
      behind Split at one of the patterns of cl100k, Llama 3 and Qwen; Split at the blank, as Gemma has it;
    - added tokens that are neither whole words (`single_word`) nor take in the blanks beside them (`lstrip`, `rstrip`):
      where several of these meet, the order in which they are found decides, and it is not always the same.
    """
    content = orjson.loads(tokenizer_json)
    normalizers = _parts(content.get("normalizer"), "normalizers")
    pre_tokenizers = _parts(content.get("pre_tokenizer"), "pretokenizers")
    is_regex = any("String" not in part["pattern"] for part in normalizers if part["type"] == "Replace")
    if is_regex or [part["type"] for part in normalizers] not in _PROVEN_NORMALIZERS:
        return f"its normalizer is {_in_words(normalizers)}"
    if pre_tokenizers not in _PROVEN_PRE_TOKENIZERS:
        return f"its pre-tokenizer is {_in_words(pre_tokenizers)}"
    for token in content.get("added_tokens", []):
        for flag in _UNPROVEN_FLAGS:
            if token[flag]:
                return f"its added token {token['content']!r} has the flag {flag}"
    return _unproven_model(content["model"])


def _unproven_model(model: Mapping[str, Any]) -> str | None:
    if model.get("type") != "BPE":
        return f"its model is {model.get('type')}"
    affixes = [key for key in ("continuing_subword_prefix", "end_of_word_suffix") if model.get(key)]
    return f"its model has the key {affixes[0]}" if affixes else None


def _parts(rule: Mapping[str, Any] | None, parts_key: str) -> list[dict[str, Any]]:
    """A rule as the list of rules that it applies one after the other."""
    if rule is None:
        return []
    if rule["type"] == "Sequence":
        return [flat for part in rule[parts_key] for flat in _parts(part, parts_key)]
    return [{key: value for key, value in rule.items() if key != _IRRELEVANT}]


def _in_words(parts: list[dict[str, Any]]) -> str:
    text = json.dumps(parts[0] if len(parts) == 1 else parts, ensure_ascii=False)
    return text if len(text) <= _MAX_SHOWN_CHARACTERS else f"{text[:_MAX_SHOWN_CHARACTERS]}\u2026"
