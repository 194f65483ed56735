"""Pretrained tokenizers of Hugging Face and SentencePiece. Their libraries are imported when a tokenizer is built."""

import json
import logging
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from modalities_pipeline.config.component import ComponentConfig
from modalities_pipeline.data.files import digest_file, digest_strings
from modalities_pipeline.exceptions import ConfigError, DatasetNotFoundError, UnsupportedTokenizerError, UserError
from modalities_pipeline.tokenization.tokenizer_wrapper import TokenizerWrapper

logger = logging.getLogger(__name__)

SENTENCEPIECE_FILE_NAME = "tokenizer.model"

__all__ = [
    "PreTrainedHFTokenizer",
    "PreTrainedHFTokenizerConfig",
    "PreTrainedSPTokenizer",
    "PreTrainedSPTokenizerConfig",
    "TokenizerWrapper",
]


class PreTrainedHFTokenizerConfig(ComponentConfig):
    """Config of `PreTrainedHFTokenizer`."""

    pretrained_model_name_or_path: str
    max_length: Annotated[int, Field(strict=True, ge=0)] | None = None
    truncation: bool = False
    padding: bool | str = False
    special_tokens: dict[str, str | list[str] | tuple[str, ...]] | None = None


class PreTrainedSPTokenizerConfig(ComponentConfig):
    """Config of `PreTrainedSPTokenizer`."""

    tokenizer_model_file: str


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
            ConfigError: a special token's name is none of Hugging Face's.
            UnsupportedTokenizerError: a special token is not in the vocabulary.
        """
        from transformers import AutoTokenizer

        try:
            self.tokenizer: Any = AutoTokenizer.from_pretrained(pretrained_model_name_or_path)
        except (OSError, ValueError) as error:
            raise DatasetNotFoundError(
                f"No Hugging Face tokenizer can be loaded from '{pretrained_model_name_or_path}' "
                f"({_first_line(error)}). Name a folder with tokenizer.json and tokenizer_config.json, or a model of "
                "the hub (needs network)."
            ) from error
        self._flags = {"truncation": truncation, "padding": padding, "max_length": max_length}
        if special_tokens is not None:
            self._set_special_tokens(special_tokens)
        self._vocabulary: dict[str, int] = self.tokenizer.get_vocab()
        self._num_token_ids = max(max(self._vocabulary.values()) + 1, self.tokenizer.vocab_size)
        self._special_ids = frozenset(self.tokenizer.all_special_ids)

    def _set_special_tokens(self, special_tokens: Mapping[str, str | Sequence[str]]) -> None:
        old_size = len(self.tokenizer)
        try:
            self.tokenizer.add_special_tokens(dict(special_tokens), replace_extra_special_tokens=False)
        except (AssertionError, ValueError, TypeError) as error:
            raise ConfigError(f"special_tokens {dict(special_tokens)}: {_first_line(error)}.") from error
        if len(self.tokenizer) != old_size:
            raise UnsupportedTokenizerError(
                f"special_tokens {dict(special_tokens)} would add {len(self.tokenizer) - old_size} tokens to a "
                f"vocabulary of {old_size}. Choose tokens that it has, or add them to the tokenizer's files."
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
        max_length = self._flags["max_length"]
        return max_length if self._flags["padding"] == "max_length" and isinstance(max_length, int) else None

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
        """See `TokenizerWrapper`."""
        backend = getattr(self.tokenizer, "backend_tokenizer", None)
        if backend is not None:
            content = json.loads(backend.to_str())
            # Each call sets both anew from the flags.
            del content["truncation"], content["padding"]
        else:
            content = {"class": type(self.tokenizer).__name__, "vocabulary": sorted(self._vocabulary.items())}
        flags = {
            **self._flags,
            "model_max_length": self.tokenizer.model_max_length if self._flags["truncation"] else None,
        }
        special_tokens = {name: str(token) for name, token in self.tokenizer.special_tokens_map.items()}
        parts = (content, special_tokens, self.special_tokens, flags)
        return digest_strings([json.dumps(part, sort_keys=True, ensure_ascii=False) for part in parts])

    def save(self, output_dir: Path) -> None:
        """See `TokenizerWrapper`."""
        self.tokenizer.save_pretrained(output_dir)


class PreTrainedSPTokenizer(TokenizerWrapper):
    """A SentencePiece model; no beginning or end token is added."""

    def __init__(self, tokenizer_model_file: str) -> None:
        """Load the model.

        Raises:
            DatasetNotFoundError: there is no such file.
            ConfigError: it is no SentencePiece model.
        """
        import sentencepiece

        self._model_path = Path(tokenizer_model_file)
        if not self._model_path.is_file():
            raise DatasetNotFoundError(f"{tokenizer_model_file} does not exist. Name a SentencePiece .model file.")
        self.tokenizer = sentencepiece.SentencePieceProcessor()
        try:
            self.tokenizer.Load(str(tokenizer_model_file))
        except RuntimeError as error:
            raise ConfigError(f"{tokenizer_model_file} is no SentencePiece model ({_first_line(error)}).") from error

    def tokenize(self, text: str) -> list[int]:
        """See `TokenizerWrapper`."""
        return self.tokenizer.Encode(text)

    def tokenize_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """See `TokenizerWrapper`."""
        return self.tokenizer.Encode(list(texts))

    def decode(self, token_ids: Sequence[int]) -> str:
        """See `TokenizerWrapper`."""
        return self.tokenizer.Decode(list(token_ids))

    @property
    def vocab_size(self) -> int:
        """See `TokenizerWrapper`."""
        return self.tokenizer.vocab_size()

    @property
    def num_token_ids(self) -> int:
        """See `TokenizerWrapper`."""
        return self.vocab_size

    @property
    def special_tokens(self) -> list[str]:
        """See `TokenizerWrapper`: the model's control pieces."""
        ids = range(self.vocab_size)
        return sorted(self.tokenizer.IdToPiece(token_id) for token_id in ids if self.is_special_token_id(token_id))

    def find_token_id(self, token: str) -> int | None:
        """See `TokenizerWrapper`."""
        token_id = self.tokenizer.PieceToId(token)
        return token_id if self.tokenizer.IdToPiece(token_id) == token else None

    def get_token_id(self, token: str) -> int:
        """See `TokenizerWrapper`; the unknown piece does not stand for other tokens."""
        token_id = self.find_token_id(token)
        if token_id is None or token_id == self.tokenizer.unk_id():
            raise UserError(f"The tokenizer has no token '{token}' (special tokens: {', '.join(self.special_tokens)}).")
        return token_id

    def is_special_token_id(self, token_id: int) -> bool:
        """See `TokenizerWrapper`: control pieces are special."""
        return self.tokenizer.IsControl(token_id)

    def fingerprint(self) -> str:
        """See `TokenizerWrapper`."""
        return digest_strings(["sentencepiece", digest_file(self._model_path)])

    def save(self, output_dir: Path) -> None:
        """See `TokenizerWrapper`."""
        shutil.copyfile(self._model_path, output_dir / SENTENCEPIECE_FILE_NAME)


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
