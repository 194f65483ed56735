"""The fast encoder: fastokens, a reimplementation of Hugging Face's `tokenizers` that is many times faster.

It reads the same `tokenizer.json` and promises the same ids. Nobody takes that on trust: it is used only for rules that
it was proven to follow (`proven_rules`), and `certification` compares it with the reference before each use.
"""

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from modalities_pipeline.tokenization.encoders import Encoder, FlatTokens, temporary_environment, version_of
from modalities_pipeline.tokenization.proven_rules import unproven_rule

_LIBRARY = "fastokens"


class FastokensEncoder(Encoder):
    """Encodes in the calling thread, without a Python object per token."""

    name = _LIBRARY
    is_fast = True
    is_concurrent = True

    def __init__(self, tokenizer_json: str) -> None:
        """Build the encoder from the content of a `tokenizer.json`.

        Raises:
            ImportError: fastokens is not installed.
            ValueError: it does not support the tokenizer.
        """
        fastokens: Any = importlib.import_module(_LIBRARY)
        self.version = version_of(_LIBRARY)
        self._tokenizer = fastokens.Tokenizer.from_json_str(tokenizer_json)
        # The library starts its threads with the first text; one, the caller's, takes the least CPU time in total.
        with temporary_environment({"FASTOKENS_BPE_THREADS": "1"}):
            self.encode(["a"])

    def encode(self, texts: Sequence[str]) -> FlatTokens:
        """See `Encoder`; ids are uint32."""
        ids, offsets = self._tokenizer.encode_batch_flat(list(texts), add_special_tokens=True)
        bounds = np.frombuffer(offsets, dtype="<u8").astype(np.int64)
        return FlatTokens(np.frombuffer(ids, dtype="<u4"), np.diff(bounds))


def fast_encoder_of(backend: Any) -> Encoder | str:
    """The fast encoder that does what a `tokenizers.Tokenizer` does, or a sentence that says why there is none."""
    unsupported = _unsupported_feature(backend)
    if unsupported is not None:
        return unsupported
    tokenizer_json = backend.to_str()
    unproven = unproven_rule(tokenizer_json)
    if unproven is not None:
        return f"{unproven}, for which {_LIBRARY} is not proven to give the reference's ids"
    try:
        return FastokensEncoder(tokenizer_json)
    except ImportError as error:
        return f"{_LIBRARY} cannot be imported ({error})"
    except BaseException as error:
        if not is_failure_of_library(error):
            raise
        return f"{_LIBRARY} does not support this tokenizer ({type(error).__name__}: {error})"


def is_failure_of_library(error: BaseException) -> bool:
    """Whether an exception is the library's: an `Exception`, or the panic of one that is written in Rust.

    The class of panics is derived from `BaseException` alone and cannot be imported from anywhere.
    """
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


def _unsupported_feature(backend: Any) -> str | None:
    """What the tokenizer is set to that is left to the reference."""
    if backend.truncation is not None:
        return "texts are cut (truncation), which is left to the reference"
    if backend.padding is not None:
        return "texts are padded, which is left to the reference"
    if backend.encode_special_tokens:
        return "special tokens in texts are split, which is left to the reference"
    if getattr(backend.model, "dropout", None):
        return "BPE dropout gives other ids each time"
    return None
