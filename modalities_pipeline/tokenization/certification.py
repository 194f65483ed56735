"""Which encoder a pack uses: the fast one where it proves to give the reference's ids, else the reference.

The proof is made at the start of every pack, on the fixed adversarial texts (once per tokenizer object) and on a sample
of the pack's own documents.
"""

import dataclasses
import logging
import weakref
from collections.abc import Sequence

import numpy as np

from modalities_pipeline.tokenization.adversarial_texts import adversarial_texts
from modalities_pipeline.tokenization.encoders import Encoder, FlatTokens, temporary_environment
from modalities_pipeline.tokenization.fast_backend import is_failure_of_library
from modalities_pipeline.tokenization.tokenizer_wrapper import TokenizerWrapper

logger = logging.getLogger(__name__)

_MAX_SHOWN_CHARACTERS = 40

_adversarial_verdicts: weakref.WeakKeyDictionary[TokenizerWrapper, Encoder | str] = weakref.WeakKeyDictionary()
_logged: weakref.WeakKeyDictionary[TokenizerWrapper, set[str]] = weakref.WeakKeyDictionary()


@dataclasses.dataclass(frozen=True)
class ChosenEncoder:
    """An encoder, and why it is not the fast one (None if it is)."""

    encoder: Encoder
    fallback_reason: str | None


def choose_encoder(tokenizer: TokenizerWrapper, sample: Sequence[str], allow_fast: bool = True) -> ChosenEncoder:
    """The encoder for documents of which `sample` are some; the log says which, and why if it is not the fast one."""
    reference = tokenizer.reference_encoder()
    verdict = _verdict(tokenizer, reference, sample) if allow_fast else "the settings ask for the reference"
    chosen = ChosenEncoder(reference, verdict) if isinstance(verdict, str) else ChosenEncoder(verdict, None)
    _log_once(tokenizer, chosen)
    return chosen


def _verdict(tokenizer: TokenizerWrapper, reference: Encoder, sample: Sequence[str]) -> Encoder | str:
    """The fast encoder, or what speaks against it."""
    with temporary_environment(reference.environment):
        verdict = _adversarial_verdicts.get(tokenizer)
        if verdict is None:
            verdict = tokenizer.fast_encoder()
            if not isinstance(verdict, str):
                texts = adversarial_texts(tokenizer.added_tokens)
                verdict = _difference(verdict, reference, texts, "an adversarial text") or verdict
            _adversarial_verdicts[tokenizer] = verdict
        if isinstance(verdict, str):
            return verdict
        return _difference(verdict, reference, sample, "a document of this corpus") or verdict


def _difference(fast: Encoder, reference: Encoder, texts: Sequence[str], kind: str) -> str | None:
    """A sentence on the first text whose ids differ, or None."""
    results = []
    for encoder in (reference, fast):
        try:
            results.append(encoder.encode(texts))
        except BaseException as error:
            if not is_failure_of_library(error):
                raise
            return f"{encoder.name} {encoder.version} fails on {kind} ({type(error).__name__}: {error})"
    expected, found = results
    position = _first_difference(found, expected)
    if position is None:
        return None
    shown = texts[position][:_MAX_SHOWN_CHARACTERS]
    return f"{fast.name} {fast.version} gives other ids than {reference.name} for {kind} ({shown!r})"


def _first_difference(found: FlatTokens, expected: FlatTokens) -> int | None:
    """Position of the first text whose ids differ."""
    if np.array_equal(found.lengths, expected.lengths) and np.array_equal(found.ids, expected.ids):
        return None
    bounds = [np.concatenate(([0], np.cumsum(tokens.lengths))) for tokens in (found, expected)]
    for position in range(min(len(found.lengths), len(expected.lengths))):
        ours, theirs = (
            tokens.ids[bound[position] : bound[position + 1]]
            for tokens, bound in zip((found, expected), bounds, strict=True)
        )
        if not np.array_equal(ours, theirs):
            return position
    return min(len(found.lengths), len(expected.lengths)) - 1


def _log_once(tokenizer: TokenizerWrapper, chosen: ChosenEncoder) -> None:
    """One line per tokenizer and outcome, not one per file."""
    encoder = chosen.encoder
    line = f"Documents are tokenized by {encoder.name} {encoder.version}"
    if chosen.fallback_reason is None:
        line += ", which gives the reference's ids on the adversarial texts and on a sample of the documents"
    else:
        line += f", not by the fast backend: {chosen.fallback_reason}"
    lines = _logged.setdefault(tokenizer, set())
    if line not in lines:
        lines.add(line)
        logger.info("%s.", line)
