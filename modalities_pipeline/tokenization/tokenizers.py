"""Pretrained tokenizers, those of Hugging Face here. Their libraries are imported when a tokenizer is built."""

import functools
import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modalities_pipeline.data.files import digest_strings
from modalities_pipeline.exceptions import ConfigError, UnsupportedTokenizerError, UserError
from modalities_pipeline.tokenization.hf_loading import calls_backend_directly, first_line, load_hf_tokenizer
from modalities_pipeline.tokenization.sentencepiece_tokenizer import PreTrainedSPTokenizer
from modalities_pipeline.tokenization.tokenizer_wrapper import TokenizerWrapper

if TYPE_CHECKING:
    from modalities_pipeline.tokenization.encoders import Encoder

logger = logging.getLogger(__name__)

_PADDINGS = (False, True, "longest", "max_length", "do_not_pad")
_UNLIMITED = 10**20  # transformers pads and cuts at no limit from here on

__all__ = [
    "PreTrainedHFTokenizer",
    "PreTrainedSPTokenizer",
    "TokenizerWrapper",
]


class PreTrainedHFTokenizer(TokenizerWrapper):
    """A tokenizer that `AutoTokenizer` loads from a folder or the Hugging Face hub."""

    def __init__(
        self,
        pretrained_model_name_or_path: str,
        truncation: bool = False,
        padding: bool | str = False,
        max_length: int | None = None,
        special_tokens: Mapping[str, str | Sequence[str]] | None = None,
    ) -> None:
        """Load the tokenizer.

        Args:
            pretrained_model_name_or_path: folder or hub name.
            truncation: cut texts at `max_length`, or at the tokenizer's own limit; otherwise they are never cut.
            padding: False, or "max_length" to pad every text to `max_length` (needs a pad token).
            max_length: in tokens; without truncation or padding it has no effect.
            special_tokens: name of a special token ("pad_token", ...) -> a token that the vocabulary has already.

        Raises:
            DatasetNotFoundError: nothing can be loaded from that folder or name.
            ConfigError: a special token's name or the kind of padding is none of Hugging Face's, or there is no token
                to pad with.
            UnsupportedTokenizerError: a special token is not in the vocabulary.
        """
        self.tokenizer: Any = load_hf_tokenizer(pretrained_model_name_or_path)
        self._flags = {"truncation": truncation, "padding": padding, "max_length": max_length}
        if special_tokens is not None:
            self._set_special_tokens(special_tokens)
        self._check_padding()
        self._vocabulary: dict[str, int] = self.tokenizer.get_vocab()
        self._num_token_ids = max(max(self._vocabulary.values()) + 1, self.tokenizer.vocab_size)
        self._special_ids = frozenset(self.tokenizer.all_special_ids)

    def _set_special_tokens(self, special_tokens: Mapping[str, str | Sequence[str]]) -> None:
        old_size = len(self.tokenizer)
        try:
            self.tokenizer.add_special_tokens(dict(special_tokens), replace_extra_special_tokens=False)
        except (AssertionError, ValueError, TypeError) as error:
            raise ConfigError(f"special_tokens {dict(special_tokens)}: {first_line(error)}.") from error
        if len(self.tokenizer) != old_size:
            raise UnsupportedTokenizerError(
                f"special_tokens {dict(special_tokens)} would add {len(self.tokenizer) - old_size} tokens to a "
                f"vocabulary of {old_size}. Choose tokens that it has, or add them to the tokenizer's files."
            )

    def _check_padding(self) -> None:
        padding = self._flags["padding"]
        if padding not in _PADDINGS:
            raise ConfigError(f"padding {padding!r} is unknown. Use one of: {', '.join(map(repr, _PADDINGS))}.")
        if padding not in (False, "do_not_pad") and self.tokenizer.pad_token is None:
            raise ConfigError(
                f"padding {padding!r} needs a token to pad with, and the tokenizer has none. Name one: special_tokens: "
                "{pad_token: ...}, or set padding: false."
            )

    def tokenize(self, text: str) -> list[int]:
        """See `TokenizerWrapper`; special tokens that the tokenizer adds by itself are included."""
        return self.tokenizer(text, verbose=False, **self._flags)["input_ids"]

    def tokenize_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """See `TokenizerWrapper`."""
        if self._flags["padding"] not in (False, "do_not_pad", "max_length"):
            # Padding to the longest text of a batch would make ids depend on the batch.
            return [self.tokenize(text) for text in texts]
        if not texts:
            return []
        return self.tokenizer(list(texts), verbose=False, return_attention_mask=False, **self._flags)["input_ids"]

    def reference_encoder(self) -> "Encoder":
        """See `TokenizerWrapper`."""
        from modalities_pipeline.tokenization.encoders import SERIAL_TOKENIZERS, HuggingFaceEncoder, ListEncoder

        backend = self._prepared_backend()
        if backend is None:
            return ListEncoder(self, "transformers", environment=SERIAL_TOKENIZERS)
        return HuggingFaceEncoder(backend)

    def fast_encoder(self) -> "Encoder | str":
        """See `TokenizerWrapper`."""
        from modalities_pipeline.tokenization.fast_backend import fast_encoder_of

        backend = self._prepared_backend()
        if backend is None:
            return f"{type(self.tokenizer).__name__} is not just a tokenizer.json"
        return fast_encoder_of(backend)

    @property
    def added_tokens(self) -> list[str]:
        """See `TokenizerWrapper`."""
        return sorted(str(token) for token in self.tokenizer.added_tokens_decoder.values())

    def _prepared_backend(self) -> Any:
        """The `tokenizers.Tokenizer` that gives the ids, cutting and padding as `tokenize` does; None if none does."""
        self.tokenize("")
        if not calls_backend_directly(self.tokenizer):
            return None
        backend = self.tokenizer.backend_tokenizer
        if self._flags["padding"] != "max_length":
            # Padding to the longest text of a batch does nothing to a text alone.
            backend.no_padding()
        return backend

    def decode(self, token_ids: Sequence[int]) -> str:
        """See `TokenizerWrapper`."""
        return self.tokenizer.decode(token_ids)

    @property
    def vocab_size(self) -> int:
        """See `TokenizerWrapper`."""
        return self.tokenizer.vocab_size

    @property
    def num_token_ids(self) -> int:
        """See `TokenizerWrapper`."""
        return self._num_token_ids

    @property
    def special_tokens(self) -> list[str]:
        """See `TokenizerWrapper`."""
        return sorted(self.tokenizer.all_special_tokens)

    @property
    def padded_length(self) -> int | None:
        """See `TokenizerWrapper`."""
        if self._flags["padding"] != "max_length":
            return None
        max_length = self._flags["max_length"]
        if isinstance(max_length, int):
            return max_length
        limit = self.tokenizer.model_max_length
        return limit if limit < _UNLIMITED else None

    def find_token_id(self, token: str) -> int | None:
        """See `TokenizerWrapper`."""
        return self._vocabulary.get(token)

    def get_token_id(self, token: str) -> int:
        """See `TokenizerWrapper`; the unknown token's id, with a warning, where there is one."""
        token_id = self.find_token_id(token)
        if token_id is not None:
            return token_id
        unknown_id = self.tokenizer.unk_token_id
        if unknown_id is None:
            raise UserError(f"The tokenizer has no token '{token}' (special tokens: {', '.join(self.special_tokens)}).")
        logger.warning("The tokenizer has no token '%s'; its unknown token stands for it.", token)
        return unknown_id

    def is_special_token_id(self, token_id: int) -> bool:
        """See `TokenizerWrapper`."""
        return token_id in self._special_ids

    def fingerprint(self) -> str:
        """See `TokenizerWrapper`; computed once, so later changes of `tokenizer` itself are not seen."""
        return self._fingerprint

    @functools.cached_property
    def _fingerprint(self) -> str:
        flags = {
            **self._flags,
            "model_max_length": self.tokenizer.model_max_length if self._flags["truncation"] else None,
        }
        special_tokens = {name: str(token) for name, token in self.tokenizer.special_tokens_map.items()}
        parts = (special_tokens, self.special_tokens, flags)
        return digest_strings(
            [self._content(), *(json.dumps(part, sort_keys=True, ensure_ascii=False) for part in parts)]
        )

    def _content(self) -> str:
        """Rules and vocabulary as text, without truncation and padding, which each call sets anew from the flags."""
        backend = getattr(self.tokenizer, "backend_tokenizer", None)
        if backend is None:
            return json.dumps([type(self.tokenizer).__name__, sorted(self._vocabulary.items())], ensure_ascii=False)
        head, separator, rest = backend.to_str().partition('"added_tokens":')
        return separator + rest if separator else head

    def save(self, output_dir: Path) -> None:
        """See `TokenizerWrapper`."""
        self.tokenizer.save_pretrained(output_dir)
