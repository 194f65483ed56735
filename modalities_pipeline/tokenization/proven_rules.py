"""Which tokenizers the fast backend is allowed for: those whose rules it was proven to follow.

A test on texts finds only the differences that somebody thought of. Where the backend hands a pattern to a general
engine for regular expressions, engines differ in corners: which letters are the same in another case (U+017F is an "s"
for some), which characters are blanks (U+180E was one). So only rules are allowed that the backend implements by
itself, and for which millions of random texts and every character of Unicode gave the reference's ids. Everything else
is left to the reference, which is slower and never wrong.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_PROVEN_PATTERNS = frozenset(
    rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits}|{_REST}"
    for digits in (r"\p{N}{1,3}", r"\p{N}")  # of cl100k and Llama 3; of Qwen 2 and 3
)

_Rule = Mapping[str, Any]


def unproven_rule(tokenizer_json: str) -> str | None:
    """The first rule of a `tokenizer.json` that the fast backend was not proven to follow, in words; None if none is.

    Proven are BPE models with, before them:

    - normalizers: none, NFC, Prepend, Replace of a fixed text, and sequences of them;
    - pre-tokenizers: none, ByteLevel (with the split of GPT-2 or without), Digits, and Split at one of the patterns of
      cl100k, Llama 3 and Qwen, and sequences of them.
    """
    content = json.loads(tokenizer_json)
    return (
        _unproven_model(content["model"])
        or _unproven(content.get("normalizer"), "normalizer", "normalizers", _NORMALIZERS)
        or _unproven(content.get("pre_tokenizer"), "pre-tokenizer", "pretokenizers", _PRE_TOKENIZERS)
    )


def _unproven_model(model: _Rule) -> str | None:
    if model.get("type") != "BPE":
        return f"its model is {model.get('type')}, not BPE"
    for key in ("continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(key):
            return f"its model has a {key}"
    return None


def _unproven(rule: _Rule | None, kind: str, parts_key: str, proven: Mapping[str, Callable[[_Rule], bool]]) -> str | None:
    if rule is None:
        return None
    if rule["type"] == "Sequence":
        faults = (_unproven(part, kind, parts_key, proven) for part in rule[parts_key])
        return next(filter(None, faults), None)
    if rule["type"] in proven and proven[rule["type"]](rule):
        return None
    pattern = rule.get("pattern")
    return f"its {kind} is {rule['type']}" + (f" at {json.dumps(pattern, ensure_ascii=False)}" if pattern else "")


def _always(_: _Rule) -> bool:
    return True


def _is_proven_split(rule: _Rule) -> bool:
    return rule["pattern"].get("Regex") in _PROVEN_PATTERNS and rule["behavior"] == "Isolated" and not rule["invert"]


_NORMALIZERS: Mapping[str, Callable[[_Rule], bool]] = {
    "NFC": _always,
    "Prepend": _always,
    "Replace": lambda rule: "String" in rule["pattern"],
}
_PRE_TOKENIZERS: Mapping[str, Callable[[_Rule], bool]] = {
    "ByteLevel": _always,
    "Digits": _always,
    "Split": _is_proven_split,
}
