"""Encoders: many texts to one flat array of ids, the form in which documents are packed."""

from __future__ import annotations

import array
import contextlib
import functools
import importlib.metadata
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from modalities_pipeline.tokenization.tokenizer_wrapper import TokenizerWrapper

SERIAL_TOKENIZERS: Mapping[str, str] = MappingProxyType({"TOKENIZERS_PARALLELISM": "false"})

_DTYPES = {"I": np.uint32, "q": np.int64}
_CACHE_CAPACITY_IN_WORDS = 1 << 17  # about 100 MB


class FlatTokens(NamedTuple):
    """The ids of several texts, one after another.

    Attributes:
        ids: all ids, shape (sum of lengths,), uint32 or int64.
        lengths: ids per text, shape (num_texts,), int64.
    """

    ids: NDArray[np.integer[Any]]
    lengths: NDArray[np.int64]


class Encoder(ABC):
    """Gives the ids of many texts at once, each text's as `TokenizerWrapper.tokenize` gives them.

    Attributes:
        name: of the library or class that does it.
        version: of that library.
        is_fast: whether it encodes about as fast as JSON lines are read, so that one thread of it goes a long way.
        is_concurrent: whether several threads may call `encode` at once and gain by it.
        environment: variables that bound the library's own threads to the calling one, needed while it encodes.
    """

    name: str
    version: str
    is_fast = False
    is_concurrent = False
    environment: Mapping[str, str] = MappingProxyType({})

    @abstractmethod
    def encode(self, texts: Sequence[str]) -> FlatTokens:
        """The ids of the texts."""


class ListEncoder(Encoder):
    """The encoder of any tokenizer, through its lists of ids."""

    def __init__(
        self,
        tokenizer: TokenizerWrapper,
        library: str | None = None,
        is_concurrent: bool = False,
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Name the library that the tokenizer calls, if any, and what holds for it; see `Encoder`."""
        self._tokenizer = tokenizer
        self.name = library or type(tokenizer).__name__
        self.version = version_of(library or "modalities-pipeline")
        self.is_concurrent = is_concurrent
        self.environment = environment

    def encode(self, texts: Sequence[str]) -> FlatTokens:
        """See `Encoder`; ids are int64."""
        return flatten(self._tokenizer.tokenize_batch(texts), "q")


class HuggingFaceEncoder(Encoder):
    """The reference for Hugging Face tokenizers: the `tokenizers` library, without the detour of `transformers`."""

    name = "tokenizers"
    is_concurrent = True
    environment = SERIAL_TOKENIZERS

    def __init__(self, backend: Any) -> None:
        """Encode with a `tokenizers.Tokenizer`; its truncation and padding apply."""
        self._backend = backend
        # Words met before are looked up; the library's own limit is so low that most are merged again and again.
        resize_cache = getattr(backend.model, "_resize_cache", None)
        if resize_cache is not None:
            resize_cache(_CACHE_CAPACITY_IN_WORDS)
        self.version = version_of("tokenizers")

    def encode(self, texts: Sequence[str]) -> FlatTokens:
        """See `Encoder`; ids are uint32."""
        encodings = self._backend.encode_batch_fast(list(texts), add_special_tokens=True)
        return flatten([encoding.ids for encoding in encodings], "I")


def flatten(ids_of_texts: Sequence[list[int]], typecode: Literal["I", "q"]) -> FlatTokens:
    """Lists of ids as one array, of uint32 ("I") or int64 ("q"): `array` reads lists four times as fast as numpy."""
    ids = array.array(typecode)
    for ids_of_text in ids_of_texts:
        ids.fromlist(ids_of_text)
    lengths = np.fromiter(map(len, ids_of_texts), dtype=np.int64, count=len(ids_of_texts))
    return FlatTokens(np.frombuffer(ids, dtype=_DTYPES[typecode]), lengths)


@functools.cache
def version_of(library: str) -> str:
    """The installed version of a distribution."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(library)
    return "unknown"


@contextlib.contextmanager
def temporary_environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables of this process and give them back their old values, or none, afterwards."""
    old = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in old.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
